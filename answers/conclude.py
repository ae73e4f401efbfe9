"""Conclude a run: is the goal answered, what is the verdict, and what does the user read?

The answer is composed from the verdict, the evidence and the record of calls; a model's own words
stand in it only where the record bears them out (`answers/grounding.py`). So every number in it
stands in the evidence, and a task is claimed only when the record has it.
"""

from collections.abc import Sequence
from datetime import tzinfo

from typing_extensions import TypedDict

from followup_agent.answers.words import WORDS, say
from followup_agent.goals.ids import IdPattern
from followup_agent.judgement.judge import (
    QUESTION_SOURCE,
    SOURCES,
    WRITE_TOOL,
    coverage_of,
    current_evidence,
    judge,
    number,
)
from followup_agent.judgement.policy import Policy
from followup_agent.state import (
    USED_UP,
    AgentState,
    Evidence,
    ModelView,
    Status,
    StopReason,
    ToolCallRecord,
    Verdict,
    facts_of,
)
from followup_agent.tools.outcome import Language


class Conclusion(TypedDict):
    """What the last node of a run writes."""

    status: Status
    stop_reason: StopReason
    verdict: Verdict | None
    model_view: ModelView | None
    final_answer: str


def conclude(
    state: AgentState, policy: Policy, stop_reason: StopReason, ids: IdPattern, zone: tzinfo
) -> Conclusion:
    """The end of a run that stopped for this reason.

    `completed` only when the goal is answered; a run that gave up is `failed` and never says that
    no follow-up is needed.
    """
    state = {**state, "evidence": current_evidence(state["evidence"], state["tool_history"])}
    verdict = _verdict(state, policy)
    gave_up = stop_reason != "finish" and stop_reason not in USED_UP
    if stop_reason == "finish" and not state["tool_history"]:
        stop_reason = "no_progress"  # finished before anything was looked at
    answered = not gave_up and is_answered(state, verdict)
    if verdict is not None and gave_up and verdict["needs_followup"] is False:
        verdict = {**verdict, "needs_followup": None, "priority": "undetermined"}
    view = None
    if draft := _draft_of(state):
        # Imported here: reading a draft takes patterns that the rules never need.
        from followup_agent.answers.grounding import view_draft

        view = view_draft(draft, state, verdict, ids, zone)
    return Conclusion(
        status="completed" if answered else "failed",
        stop_reason=stop_reason,
        verdict=verdict,
        model_view=view,
        final_answer=_compose(state, verdict, answered, stop_reason, view),
    )


def _draft_of(state: AgentState) -> str:
    """The planner's own answer, when it has finished with one."""
    decision = state["decision"]
    if decision is None or decision["type"] != "finish":
        return ""
    return decision["answer_draft"].strip()


def is_answered(state: AgentState, verdict: Verdict | None) -> bool:
    """Whether what the run has found answers what the user asked."""
    goal, history = state["parsed_goal"], state["tool_history"]
    if any(call["failure_kind"] == "outcome_unknown" for call in history):
        return False
    if goal["kind"] == "task":
        return any(_task_settled(call) for call in history)
    if goal["kind"] == "judgement":
        return verdict is not None and verdict["needs_followup"] is not None
    if goal["kind"] in QUESTION_SOURCE and len(goal["subjects"]) == 1:
        coverage = coverage_of(history, goal["subjects"][0])
        return coverage[QUESTION_SOURCE[goal["kind"]]] in ("found", "empty")
    return goal["kind"] == "unclear" and any(call["success"] for call in history)


def _task_settled(call: ToolCallRecord) -> bool:
    """Created, or turned down by the person who was asked."""
    done = call["success"] or call["failure_kind"] == "not_approved"
    return call["tool_name"] == WRITE_TOOL and done


def _verdict(state: AgentState, policy: Policy) -> Verdict | None:
    goal = state["parsed_goal"]
    if goal["kind"] not in ("judgement", "task") or len(goal["subjects"]) != 1:
        return None
    return judge(
        goal["subjects"][0],
        facts_of(state),
        state["evidence"],
        state["tool_history"],
        policy,
        state["language"],
    )


def _compose(
    state: AgentState,
    verdict: Verdict | None,
    answered: bool,
    stop_reason: StopReason,
    view: ModelView | None,
) -> str:
    """The judgement, a model's words where the record bears them out, the basis, the action."""
    language, goal = state["language"], state["parsed_goal"]
    cited = _cited(state, verdict)
    parts = [_headline(state, verdict, answered)]
    if f"stopped_{stop_reason}" in WORDS:
        parts[0] += ("" if language == "zh" else " ") + say(language, f"stopped_{stop_reason}")
    error = state["last_error"]
    if stop_reason in ("planner_failed", "model_refused") and error is not None:
        parts.append(say(language, f"planner_{error['kind']}", detail=error["message"]))
    if answered and view is not None and view["used"]:
        parts.append(view["draft"].strip())
    if cited:
        basis = [say(language, "basis" if answered else "found_so_far")]
        basis += [f"- {text} [{evidence_id}]" for text, evidence_id in cited]
        if not goal["window"]["stated"] and _looked_back(state["tool_history"]):
            basis.append(say(language, "default_window", days=goal["window"]["days"]))
        parts.append("\n".join(basis))
    if others := _also_found(state, cited):
        parts.append("\n".join([say(language, "also_found"), *others]))
    if missing := _missing(state, verdict):
        parts.append(say(language, "missing", sources=missing))
    if verdict is not None:
        parts.append(say(language, "action", action=verdict["advised_action"]))
    if task := _task_line(state, verdict, view):
        parts.append(task)
    return "\n\n".join(parts)


def _headline(state: AgentState, verdict: Verdict | None, answered: bool) -> str:
    language, goal = state["language"], state["parsed_goal"]
    if not goal["subjects"]:
        return say(language, "no_subject")
    subject = say(language, "comma").join(goal["subjects"])
    if verdict is not None:
        needs = verdict["needs_followup"]
        key = "undetermined" if needs is None else "needs" if needs else "needs_not"
        priority = say(language, f"priority_{verdict['priority']}") if needs is not None else ""
        return say(language, key, subject=subject, priority=priority)
    if not answered:
        return say(language, "no_answer", subject=subject)
    return say(language, "answer", subject=subject, answer=_direct_answer(state))


def _direct_answer(state: AgentState) -> str:
    """The answer to an activity, order or ticket question, in a sentence."""
    language, kind = state["language"], state["parsed_goal"]["kind"]
    source = QUESTION_SOURCE.get(kind)
    said = [item["summary"] for item in state["evidence"] if source in (None, item["source"])]
    if kind == "tickets":
        urgent = (number(facts_of(state), "urgent_ticket_count") or 0) > 0
        said.append(say(language, "escalate" if urgent else "escalate_not"))
    return ("；" if language == "zh" else "; ").join(said)


def _cited(state: AgentState, verdict: Verdict | None) -> list[tuple[str, str]]:
    if verdict is not None:
        return [(r["text"], e) for r in verdict["reasons"] for e in r["evidence_ids"]]
    return [(item["summary"], item["id"]) for item in state["evidence"] if _is_read(item)]


def _also_found(state: AgentState, cited: Sequence[tuple[str, str]]) -> list[str]:
    """Evidence of other tools: the verdict does not use it, the user may."""
    used = {evidence_id for _, evidence_id in cited}
    return [
        f"- {item['summary']} [{item['id']}]"
        for item in state["evidence"]
        if item["id"] not in used and _is_read(item) and item["source"] not in SOURCES
    ]


def _is_read(item: Evidence) -> bool:
    return item["source"] != WRITE_TOOL


def _looked_back(history: Sequence[ToolCallRecord]) -> bool:
    return any("days" in call["args"] and call["success"] for call in history)


def _missing(state: AgentState, verdict: Verdict | None) -> str:
    """The sources that should have been read and were not, each with why."""
    language, goal, history = state["language"], state["parsed_goal"], state["tool_history"]
    if len(goal["subjects"]) != 1:
        return ""
    wanted = [QUESTION_SOURCE[goal["kind"]]] if goal["kind"] in QUESTION_SOURCE else SOURCES
    if goal["kind"] == "unclear":
        wanted = []
    coverage = verdict["coverage"] if verdict else coverage_of(history, goal["subjects"][0])
    named = []
    for source in wanted:
        if coverage[source] in ("found", "empty"):
            continue
        kinds = [call["failure_kind"] for call in history if call["tool_name"] == source]
        why = say(language, kinds[-1] if kinds and kinds[-1] else "not_checked")
        named.append(say(language, "with", source=say(language, source), why=why))
    return say(language, "comma").join(named)


def _task_line(state: AgentState, verdict: Verdict | None, view: ModelView | None) -> str:
    """What the record says of the follow-up task; nothing when none was due."""
    language: Language = state["language"]
    calls = [call for call in state["tool_history"] if call["tool_name"] == WRITE_TOOL]
    done = {call["call_id"] for call in calls if call["success"]}
    for item in state["evidence"]:
        if item["call_id"] in done:
            return say(language, "task_done", summary=item["summary"])
    kinds = [call["failure_kind"] for call in calls]
    if "outcome_unknown" in kinds:
        return say(language, "task_unknown")
    if "not_approved" in kinds:
        return say(language, "task_rejected")
    if kinds and kinds[-1]:
        return say(language, "task_failed", why=say(language, kinds[-1]))
    claimed = view is not None and not view["used"]
    wanted = state["parsed_goal"]["task"] != "none" or (verdict and verdict["needs_followup"])
    return say(language, "task_none") if wanted or claimed else ""
