"""Judge one customer: facts in, verdict out. Pure, and the same for every planner.

The score is a sum of signals, each fed by one tool. A tool that failed, or was not called, could
have added anything from nothing to all of its points; so the true score lies between a least and a
most, and the verdict is given only where both ends agree. Learning more can settle a verdict, and
losing a source can unsettle it; neither can turn a yes into a no.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from followup_agent.judgement.policy import Policy, Priorities
from followup_agent.state import Coverage, Evidence, Priority, Reason, ToolCallRecord, Verdict
from followup_agent.tools.outcome import Fact, FactValue, Language

SOURCES: Final = ("get_user_activity", "get_user_orders", "get_open_tickets")
"""The tools a judgement looks at, in the order they are called."""
QUESTION_SOURCE: Final = {
    "activity": "get_user_activity",
    "orders": "get_user_orders",
    "tickets": "get_open_tickets",
}
"""Which tool answers which question."""
WRITE_TOOL: Final = "send_followup_task"


class Signal(NamedTuple):
    """What one signal came to: between `least` and `most` points."""

    name: str
    tool: str
    least: float
    most: float


def coverage_of(history: Sequence[ToolCallRecord], subject: str) -> dict[str, Coverage]:
    """Source to the best that any of its calls for this customer came to."""
    rank: dict[Coverage, int] = {"not_checked": 0, "failed": 1, "empty": 2, "found": 3}
    coverage: dict[str, Coverage] = dict.fromkeys(SOURCES, "not_checked")
    for call in history:
        tool, outcome = call["tool_name"], call["outcome"]
        if (
            tool in coverage
            and call["args"].get("user_id") == subject
            and rank[outcome] > rank[coverage[tool]]
        ):
            coverage[tool] = outcome
    return coverage


def current_evidence(
    evidence: Sequence[Evidence], history: Sequence[ToolCallRecord]
) -> list[Evidence]:
    """The evidence that holds now: without that of a call which was made again later."""
    latest = {
        (call["tool_name"], json.dumps(call["args"], sort_keys=True)): call["call_id"]
        for call in history
        if call["success"]
    }
    holding = set(latest.values())
    return [item for item in evidence if item["call_id"] in holding]


def judge(
    subject: str,
    facts: Mapping[str, Fact],
    evidence: Sequence[Evidence],
    history: Sequence[ToolCallRecord],
    policy: Policy,
    language: Language,
) -> Verdict:
    """The verdict on one customer from what is known; `needs_followup` None when that is too little."""
    coverage = coverage_of(history, subject)
    signals = signals_of(facts, policy)
    least = min(100.0, sum(signal.least for signal in signals))
    most = min(100.0, sum(signal.most for signal in signals))
    needs_followup, priority = priority_of(least, most, policy.lines(segment_of(facts)))
    calls = {call["call_id"] for call in history if call["args"].get("user_id") == subject}
    cited = [
        item
        for item in current_evidence(evidence, history)
        if item["source"] in SOURCES and item["call_id"] in calls
    ]
    return Verdict(
        subject=subject,
        needs_followup=needs_followup,
        priority=priority,
        score=round(least),
        reasons=_reasons(cited, signals, needs_followup),
        advised_action=advise(needs_followup, priority, facts, coverage, language),
        coverage=coverage,
    )


def number(facts: Mapping[str, Fact], key: str) -> float | None:
    """A numeric fact; None when unknown, or known to be nothing."""
    fact = facts.get(key)
    value: FactValue = fact["value"] if fact else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def strongest_signal(facts: Mapping[str, Fact], policy: Policy) -> str | None:
    """The name of the signal that speaks most for follow-up; None when none does."""
    strongest = max(signals_of(facts, policy), key=lambda signal: signal.least)
    return strongest.name if strongest.least > 0 else None


def segment_of(facts: Mapping[str, Fact]) -> str | None:
    """The customer's segment; None before any tool has learned it."""
    fact = facts.get("segment")
    return str(fact["value"]) if fact else None


def signals_of(facts: Mapping[str, Fact], policy: Policy) -> list[Signal]:
    """What each signal comes to, by the facts there are."""
    segment = segment_of(facts)
    signals = policy.signals

    def of_days(name: str, key: str, days: float | None) -> Signal:
        signal = getattr(signals, name)
        if key not in facts:
            return Signal(name, signal.tool, 0.0, signal.points)
        points = 0.0 if days is None else signal.points * policy.ramp(name, segment).share(days)
        return Signal(name, signal.tool, points, points)

    # Never active: quiet since sign-up. Never paid: no payment rhythm that could have stopped.
    inactive = number(facts, "days_since_last_active")
    if inactive is None:
        inactive = number(facts, "days_since_signup")
    urgent = signals.urgent_tickets
    count = number(facts, "urgent_ticket_count")
    known = urgent.score(int(count)) if count is not None else 0.0
    return [
        of_days("inactive", "days_since_last_active", inactive),
        of_days("unpaid", "days_since_last_paid", number(facts, "days_since_last_paid")),
        Signal("urgent_tickets", urgent.tool, known, known if count is not None else urgent.points),
        of_days("open_tickets", "open_ticket_count", number(facts, "oldest_open_ticket_days")),
    ]


def priority_of(least: float, most: float, lines: Priorities) -> tuple[bool | None, Priority]:
    """Whether follow-up is needed, and how urgently, by a score between these two."""
    if least < lines.medium <= most:
        return None, "undetermined"
    if least >= lines.high:
        return True, "high"
    if least >= lines.medium:
        return True, "medium"
    return False, "low" if least >= lines.low else "none"


def _reasons(
    cited: Sequence[Evidence], signals: Sequence[Signal], needs_followup: bool | None
) -> list[Reason]:
    """The evidence as reasons, the source that weighs most first; all of it in its own order
    when nothing weighs."""
    if needs_followup:
        weight = {source: sum(s.least for s in signals if s.tool == source) for source in SOURCES}
        cited = sorted(cited, key=lambda item: -weight[item["source"]])
    return [Reason(text=item["summary"], evidence_ids=[item["id"]]) for item in cited]


def advise(
    needs_followup: bool | None,
    priority: Priority,
    facts: Mapping[str, Fact],
    coverage: Mapping[str, Coverage],
    language: Language,
) -> str:
    """What to do next, as one sentence without any number."""
    urgent = (number(facts, "urgent_ticket_count") or 0) > 0
    never_active = (
        "days_since_last_active" in facts and number(facts, "days_since_last_active") is None
    )
    zh = language == "zh"
    if needs_followup is None:
        return (
            "先补齐未能核实的数据，再作判断"
            if zh
            else "Get the missing data first, then judge again"
        )
    if needs_followup and urgent:
        return (
            "今天安排人工回访，先处理紧急工单并查看工单上下文"
            if zh
            else "Have a person call today: deal with the urgent ticket first, with its context at hand"
        )
    if needs_followup:
        return (
            "本周内安排人工回访，了解使用和付费变化的原因"
            if zh
            else "Have a person call this week and ask what changed in use and payments"
        )
    if never_active:
        return (
            "新客户尚无使用记录：发送上手引导，继续自动观察"
            if zh
            else "A new customer with nothing yet: send the onboarding guide and keep watching"
        )
    return (
        "继续自动观察，暂不需要人工介入"
        if zh
        else "Keep watching automatically; no person is needed"
    )
