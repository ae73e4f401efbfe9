"""How one customer's score arose, and the smallest change that would alter the verdict. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from followup_agent.judgement.judge import Signal, number, priority_of, segment_of, signals_of
from followup_agent.judgement.policy import Policy
from followup_agent.state import Priority
from followup_agent.tools.outcome import Fact

MAX_DAYS = 400
MAX_COUNT = 50
"""How far a change is looked for: no signal grows beyond."""
_MEASURE = {
    "inactive": "days_since_last_active",
    "unpaid": "days_since_last_paid",
    "urgent_tickets": "urgent_ticket_count",
    "open_tickets": "oldest_open_ticket_days",
}
"""Signal to the fact it goes by."""


class Part(NamedTuple):
    """One signal's points: between `least` and `most`, which differ where its source is not known."""

    signal: str
    tool: str
    least: float
    most: float
    points: float
    """The most the policy gives for it."""
    basis: str


class Change(NamedTuple):
    """A change of one fact, all else equal, that gives another verdict."""

    fact: str
    value: float | None
    """As it is."""
    to: int
    moved: float
    """Points of the score that it moves."""
    needs_followup: bool
    priority: Priority
    text: str


class Explanation(NamedTuple):
    """How the verdict came about."""

    subject: str
    segment: str | None
    policy_version: str
    needs_followup: bool | None
    priority: Priority
    least: float
    most: float
    parts: list[Part]
    changes: list[Change]
    """The smallest first, one for each fact that can alter the verdict by itself."""

    def as_json(self) -> dict[str, Any]:
        """One document."""
        return {
            **self._asdict(),
            "parts": [part._asdict() for part in self.parts],
            "changes": [change._asdict() for change in self.changes],
        }


def explain(
    subject: str, facts: Mapping[str, Fact], failures: Mapping[str, str], policy: Policy
) -> Explanation:
    """Explain the verdict on this customer; `failures` is tool to what it said when it failed."""
    segment = segment_of(facts)
    signals = signals_of(facts, policy)
    least, most, needs_followup, priority = _outcome(facts, policy)
    return Explanation(
        subject=subject,
        segment=segment,
        policy_version=policy.version,
        needs_followup=needs_followup,
        priority=priority,
        least=least,
        most=most,
        parts=[_part(signal, facts, failures, policy) for signal in signals],
        changes=sorted(_changes(facts, policy), key=lambda change: abs(change.moved)),
    )


def _outcome(
    facts: Mapping[str, Fact], policy: Policy
) -> tuple[float, float, bool | None, Priority]:
    signals = signals_of(facts, policy)
    least = min(100.0, sum(signal.least for signal in signals))
    most = min(100.0, sum(signal.most for signal in signals))
    return least, most, *priority_of(least, most, policy.lines(segment_of(facts)))


def _part(
    signal: Signal, facts: Mapping[str, Fact], failures: Mapping[str, str], policy: Policy
) -> Part:
    points: float = getattr(policy.signals, signal.name).points
    return Part(
        signal.name,
        signal.tool,
        signal.least,
        signal.most,
        points,
        failures.get(signal.tool) or _basis(signal.name, facts, policy),
    )


def _basis(signal: str, facts: Mapping[str, Fact], policy: Policy) -> str:
    """The fact and the rule, in words."""
    measure = _MEASURE[signal]
    value = number(facts, measure)
    shown = "none" if value is None else f"{value:g}"
    if signal == "urgent_tickets":
        rule = policy.signals.urgent_tickets
        return f"{measure} {shown}: {rule.first:g} for the first, {rule.each_more:g} for each more"
    if signal == "inactive" and value is None:
        since = number(facts, "days_since_signup")
        measure, shown = "days_since_signup", "none" if since is None else f"{since:g}"
    ramp = policy.ramp(signal, segment_of(facts))
    return f"{measure} {shown}: counts from {ramp.start:g} days, fully at {ramp.full:g}"


def _changes(facts: Mapping[str, Fact], policy: Policy) -> Iterator[Change]:
    """For each fact that is known, the nearest value that gives another priority."""
    least, _, needs_followup, priority = _outcome(facts, policy)
    if needs_followup is None:
        return  # a missing source is what would change it, not a fact
    for signal, measure in _MEASURE.items():
        if measure not in facts:
            continue
        value = number(facts, measure)
        for candidate in _nearest(signal, value):
            changed = _with(facts, signal, candidate)
            new_least, _, needed, other = _outcome(changed, policy)
            if needed is not None and other != priority:
                was = "none" if value is None else f"{value:g}"
                outcome = "follow-up" if needed else "no follow-up"
                yield Change(
                    measure,
                    value,
                    candidate,
                    new_least - least,
                    needed,
                    other,
                    f"{measure} {candidate} instead of {was} ({new_least - least:+.1f} points): "
                    f"{outcome}, priority {other}",
                )
                break


def _nearest(signal: str, value: float | None) -> list[int]:
    """Other values of the fact, the nearest first."""
    most = MAX_COUNT if signal == "urgent_tickets" else MAX_DAYS
    start = 0 if value is None else value
    return sorted(
        (other for other in range(most + 1) if other != value),
        key=lambda other: (abs(other - start), other),
    )


def _with(facts: Mapping[str, Fact], signal: str, value: int) -> dict[str, Fact]:
    """The facts with another value, and what goes with it: an urgent ticket is an open one."""
    measure = _MEASURE[signal]
    changed: dict[str, Fact] = {**facts, measure: {**facts[measure], "value": value}}
    if signal == "urgent_tickets" and (number(facts, "open_ticket_count") or 0) < value:
        changed["open_ticket_count"] = {**facts[measure], "value": value}
    return changed
