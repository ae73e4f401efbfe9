"""Interpret what was observed, and write it back. The only writer of facts and evidence."""

import uuid
from typing import NotRequired

from typing_extensions import TypedDict

from followup_agent.graph.context import AgentContext
from followup_agent.graph.interpret import interpret
from followup_agent.state import (
    AgentState,
    Counters,
    Evidence,
    Observation,
    Quote,
    RunError,
    ToolCallRecord,
)
from followup_agent.tools.outcome import Fact, FailureKind

NOT_TECHNICAL = ("not_found", "not_approved")
"""Failures that are findings: the customer does not exist, a person said no. They end no run."""


class Update(TypedDict):
    """What this node writes."""

    tool_history: list[ToolCallRecord]
    facts: NotRequired[dict[str, dict[str, Fact]]]
    evidence: NotRequired[list[Evidence]]
    quotes: NotRequired[list[Quote]]
    counters: Counters
    last_error: NotRequired[RunError]


class _Gathered(TypedDict):
    """What the observations of one round come to."""

    tool_history: list[ToolCallRecord]
    facts: dict[str, dict[str, Fact]]
    evidence: list[Evidence]
    quotes: list[Quote]
    counters: Counters
    last_error: RunError | None


async def updater(state: AgentState, context: AgentContext) -> Update:
    """Turn each observation into one record, and, when the tool answered, facts and evidence."""
    gathered = _Gathered(
        tool_history=[],
        facts={},
        evidence=[],
        quotes=[],
        counters=state["counters"],
        last_error=None,
    )
    for seen in state["observations"]:
        _take_in(seen, gathered, state, context)
    update = Update(
        tool_history=gathered["tool_history"],
        facts=gathered["facts"],
        evidence=gathered["evidence"],
        quotes=gathered["quotes"],
        counters=gathered["counters"],
    )
    if gathered["last_error"] is not None:
        update["last_error"] = gathered["last_error"]
    return update


def _take_in(
    seen: Observation, gathered: _Gathered, state: AgentState, context: AgentContext
) -> None:
    call_id = f"c{len(state['tool_history']) + len(gathered['tool_history']) + 1}"
    counters = gathered["counters"]
    if seen["repeat_of"] is not None:
        counters = {**counters, "repeated_calls": counters["repeated_calls"] + 1}
    summary = seen["message"]
    if seen["failure_kind"] is not None and seen["attempts"] == 0:
        _log_refusal(context, seen)
    if seen["outcome"] != "failed" and seen["result"] is not None:
        tool = context.tools.registry.get(seen["tool_name"])
        if tool is None:
            raise LookupError(f"tool {seen['tool_name']!r} was run but is no longer registered")
        try:
            first = len(state["evidence"]) + len(gathered["evidence"]) + 1
            facts, evidence, quotes = interpret(
                tool, seen["args"], seen["result"], state, call_id, first_evidence=first
            )
        except Exception as error:
            # The call was made, whatever its file makes of the result: the record must have it.
            error_id = uuid.uuid4().hex[:8]
            context.log.error(error_id, error)
            summary = f"the result of {tool.name} could not be read (error {error_id}, see the log)"
            kind: FailureKind = "internal" if tool.effect == "read" else "outcome_unknown"
            seen = {**seen, "outcome": "failed", "failure_kind": kind}
        else:
            summary = "; ".join(item["summary"] for item in evidence)
            subject = tool.subject_of(seen["args"])
            if subject and facts:
                known = gathered["facts"].get(subject, {})
                gathered["facts"][subject] = {**known, **facts}
            gathered["evidence"] += evidence
            gathered["quotes"] += quotes
            counters = {**counters, "failures_in_a_row": 0}
    if seen["failure_kind"] is not None and seen["repeat_of"] is None:
        gathered["last_error"] = {"kind": seen["failure_kind"], "message": summary}
    if seen["failure_kind"] is not None and seen["failure_kind"] not in NOT_TECHNICAL:
        counters = {**counters, "failures_in_a_row": counters["failures_in_a_row"] + 1}
    gathered["counters"] = counters
    gathered["tool_history"].append(_record(state, call_id, seen, summary))


def _record(state: AgentState, call_id: str, seen: Observation, summary: str) -> ToolCallRecord:
    failed = seen["outcome"] == "failed"
    return ToolCallRecord(
        call_id=call_id,
        step=state["current_step"],
        tool_name=seen["tool_name"],
        args=seen["args"],
        outcome=seen["outcome"],
        failure_kind=seen["failure_kind"],
        result_summary=f"ERROR: {summary}" if failed else summary,
        success=not failed,
        attempts=seen["attempts"],
        duration_ms=seen["duration_ms"],
    )


def _log_refusal(context: AgentContext, seen: Observation) -> None:
    """A call that was never made: blocked for what it wanted, or failed for what it was."""
    if seen["failure_kind"] == "not_approved" and seen["repeat_of"] is None:
        event = None  # logged where it was decided
    elif seen["failure_kind"] in ("out_of_scope", "not_approved"):
        event = "agent.tool.blocked"
    else:
        event = "agent.tool.failed"
    if event:
        context.log.emit(
            event,
            decision={"type": "tool", "toolName": seen["tool_name"]},
            tool={"args": seen["args"], "durationMs": 0, "success": False, "outcome": "failed"},
            error={"kind": seen["failure_kind"], "message": seen["message"]},
            state={"status": "running"},
        )
