"""May this call be made? Asked before every tool call, by code, whatever the planner was told."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from followup_agent.state import AgentState, CallTool, Evidence, Observation, ToolCallRecord
from followup_agent.tools.outcome import Failed, FailureKind
from followup_agent.tools.runner import Prepared, ToolRunner


def admit(state: AgentState, decision: CallTool, tools: ToolRunner) -> Prepared | Observation:
    """The call, ready to be made; or what to observe instead of making it.

    Refused: unknown tools, arguments that do not fit, customers the user did not name. A call that
    was answered before is answered from the record, so its tool runs once.
    """
    prepared = tools.prepare(decision["tool_name"], decision["args"])
    if isinstance(prepared, Failed):
        return refuse(decision, decision["args"], prepared.failure_kind, prepared.message)
    args = prepared.canonical
    subject = prepared.tool.subject_of(args)
    if subject is not None and subject not in state["parsed_goal"]["subjects"]:
        message = f"the user did not ask about {subject!r}"
        return refuse(decision, args, "out_of_scope", message)
    earlier = answered_before(state["tool_history"], prepared.tool.name, args)
    if earlier is not None:
        return Observation(
            tool_name=prepared.tool.name,
            args=args,
            outcome=earlier["outcome"],
            failure_kind=earlier["failure_kind"],
            message=f"answered before, by {earlier['call_id']}",
            result=None,
            attempts=0,
            duration_ms=0,
            repeat_of=earlier["call_id"],
        )
    return prepared


def refuse(
    decision: CallTool, args: Mapping[str, JsonValue], kind: FailureKind, message: str
) -> Observation:
    """The observation of a call that was not made."""
    return Observation(
        tool_name=decision["tool_name"],
        args=dict(args),
        outcome="failed",
        failure_kind=kind,
        message=message,
        result=None,
        attempts=0,
        duration_ms=0,
        repeat_of=None,
    )


def answered_before(
    history: Sequence[ToolCallRecord], tool_name: str, args: Mapping[str, JsonValue]
) -> ToolCallRecord | None:
    """The earlier call with these very arguments that succeeded, or that a person turned down."""
    for call in history:
        settled = call["success"] or call["failure_kind"] in ("not_approved", "outcome_unknown")
        if settled and call["tool_name"] == tool_name and call["args"] == args:
            return call
    return None


def digest(
    tool_name: str,
    args: Mapping[str, JsonValue],
    evidence: Sequence[Evidence],
    policy_version: str,
) -> str:
    """SHA-256 over what a person is shown and agrees to: another argument, another digest."""
    shown: dict[str, Any] = {
        "tool_name": tool_name,
        "args": dict(args),
        "evidence": [dict(item) for item in evidence],
        "policy_version": policy_version,
    }
    text = json.dumps(shown, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
