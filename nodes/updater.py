"""Interpret what the executor saw, and write it back. The only writer of facts and evidence."""

import uuid
from collections.abc import Mapping
from typing import Any, NotRequired

from pydantic_core import to_json
from typing_extensions import TypedDict

from followup_agent.graph.context import AgentContext
from followup_agent.state import (
    AgentState,
    Counters,
    Evidence,
    Observation,
    RunError,
    ToolCallRecord,
)
from followup_agent.tools.definition import ToolDefinition
from followup_agent.tools.outcome import Fact, FailureKind

NOT_TECHNICAL = ("not_found", "not_approved")
"""Failures that are findings: the customer does not exist, a person said no. They end no run."""


class Update(TypedDict):
    """What this node writes."""

    tool_history: list[ToolCallRecord]
    facts: NotRequired[dict[str, dict[str, Fact]]]
    evidence: NotRequired[list[Evidence]]
    counters: Counters
    last_error: NotRequired[RunError]


async def updater(state: AgentState, context: AgentContext) -> Update:
    """Turn the observation into one record, and, when the tool answered, facts and evidence."""
    seen = state["observation"]
    call_id = f"c{len(state['tool_history']) + 1}"
    counters = state["counters"]
    if seen["repeat_of"] is not None:
        counters = {**counters, "repeated_calls": counters["repeated_calls"] + 1}
    if seen["outcome"] == "failed" or seen["result"] is None:
        if seen["failure_kind"] is not None and seen["attempts"] == 0:
            _log_refusal(context, seen)
        if seen["failure_kind"] is not None and seen["failure_kind"] not in NOT_TECHNICAL:
            counters = {**counters, "failures_in_a_row": counters["failures_in_a_row"] + 1}
        update = Update(
            tool_history=[_record(state, call_id, seen, seen["message"])],
            counters=counters,
        )
        if seen["failure_kind"] is not None:
            update["last_error"] = {"kind": seen["failure_kind"], "message": seen["message"]}
        return update
    tool = context.tools.registry.get(seen["tool_name"])
    if tool is None:
        raise LookupError(f"tool {seen['tool_name']!r} was run but is no longer registered")
    try:
        facts, evidence = interpret(tool, seen["args"], seen["result"], state, call_id)
    except Exception as error:
        # The call was made, whatever its file makes of the result: the record must have it.
        error_id = uuid.uuid4().hex[:8]
        context.log.error(error_id, error)
        message = f"the result of {tool.name} could not be read (error {error_id}, see the log)"
        kind: FailureKind = "internal" if tool.effect == "read" else "outcome_unknown"
        failed: Observation = {**seen, "outcome": "failed", "failure_kind": kind}
        return Update(
            tool_history=[_record(state, call_id, failed, message)],
            counters={**counters, "failures_in_a_row": counters["failures_in_a_row"] + 1},
            last_error={"kind": kind, "message": message},
        )
    subject = tool.subject_of(seen["args"])
    return Update(
        tool_history=[_record(state, call_id, seen, "; ".join(e["summary"] for e in evidence))],
        facts={subject: facts} if subject and facts else {},
        evidence=evidence,
        counters={**counters, "failures_in_a_row": 0},
    )


def interpret(
    tool: ToolDefinition,
    args: Mapping[str, Any],
    result: Mapping[str, Any],
    state: AgentState,
    call_id: str,
) -> tuple[dict[str, Fact], list[Evidence]]:
    """What the tool file says these arguments and this result mean."""
    # Stored as plain JSON, so that a recorded run can be interpreted again by a newer tool file.
    typed_args = tool.parse_args(args)
    typed_result = tool.result.model_validate_json(to_json(result))
    facts = {
        key: Fact(
            value=draft.value,
            unit=draft.unit,
            window_days=draft.window_days,
            call_id=call_id,
            as_of=state["as_of"],
        )
        for key, draft in tool.facts(typed_args, typed_result).items()
    }
    first = len(state["evidence"]) + 1
    evidence = [
        Evidence(
            id=f"e{number}",
            call_id=call_id,
            source=tool.name,
            summary=draft.summary,
            confidence=draft.confidence,
        )
        for number, draft in enumerate(
            tool.evidence(typed_args, typed_result, state["language"]), start=first
        )
    ]
    return facts, evidence


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
