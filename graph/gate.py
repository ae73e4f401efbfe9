"""May this call be made? Asked before every tool call, by code, whatever the planner was told."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import JsonValue

from followup_agent.goals.ids import IdPattern
from followup_agent.graph.context import AgentContext
from followup_agent.judgement.judge import strongest_signal
from followup_agent.runs.ledger import ActionIdentity
from followup_agent.state import (
    AgentState,
    Approval,
    CallTool,
    Evidence,
    Observation,
    ToolCallRecord,
    facts_of,
)
from followup_agent.tools.definition import ToolContext
from followup_agent.tools.outcome import Failed, FailureKind
from followup_agent.tools.runner import Prepared, ToolRun, ToolRunner


def admit(state: AgentState, decision: CallTool, context: AgentContext) -> Prepared | Observation:
    """The call, ready to be made; or what to observe instead of making it.

    Refused: unknown tools, arguments that do not fit, customers the user did not name. A call that
    was answered before is answered from the record, so its tool runs once.
    """
    prepared = context.tools.prepare(decision["tool_name"], decision["args"])
    if isinstance(prepared, Failed):
        return refuse(decision, decision["args"], prepared.failure_kind, prepared.message)
    args = prepared.canonical
    for subject in _customers_in(prepared, context.ids):
        if subject not in state["parsed_goal"]["subjects"]:
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


def _customers_in(call: Prepared, ids: IdPattern) -> list[str]:
    """Whom the call is about: the argument that says so; of a tool that declares none, every
    argument that is a customer's id as a whole."""
    subject = call.tool.subject_of(call.canonical)
    if subject is not None or call.tool.subject_arg is not None:
        return [] if subject is None else [subject]
    texts = [value for value in call.canonical.values() if isinstance(value, str)]
    return [text for text in texts if ids.find(text) == [text]]


def admit_edit(edited: Mapping[str, Any], approval: Approval, tools: ToolRunner) -> Prepared | str:
    """The write as a reviewer has edited it, or what is wrong with the edit.

    Never another tool, never another customer; the arguments are validated as any others.
    """
    name, args = edited.get("name", approval["tool_name"]), edited.get("args")
    if name != approval["tool_name"]:
        return f"an edit may not change the tool: {name!r}"
    if not isinstance(args, Mapping):
        return "an edit needs the arguments as an object"
    prepared = tools.prepare(approval["tool_name"], args)
    if isinstance(prepared, Failed):
        return f"the edited arguments do not fit: {prepared.message}"
    before = prepared.tool.subject_of(approval["args"])
    if prepared.tool.subject_of(prepared.canonical) != before:
        return f"an edit may not change the customer: {before} it was"
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


def observe(call: Prepared, run: ToolRun) -> Observation:
    """The observation of a call that was made."""
    failed = run.outcome if isinstance(run.outcome, Failed) else None
    return Observation(
        tool_name=call.tool.name,
        args=call.canonical,
        outcome=run.outcome.kind,
        failure_kind=failed and failed.failure_kind,
        message=failed.message if failed else "",
        result=None if isinstance(run.outcome, Failed) else run.outcome.result,
        attempts=run.attempts,
        duration_ms=run.duration_ms,
        repeat_of=None,
    )


def tool_context_of(state: AgentState, context: AgentContext) -> ToolContext:
    """What every tool of this run is handed."""
    return ToolContext(
        as_of=datetime.fromisoformat(state["as_of"]),
        timezone=context.timezone,
        now=context.clock(),
        customers=context.customers,
        tasks=context.tasks,
        thread_id=state["session_id"],
        run_id=state["run_id"],
        evidence_ids=tuple(item["id"] for item in state["evidence"]),
    )


def identity_of(call: Prepared, state: AgentState, context: AgentContext) -> ActionIdentity:
    """The business identity of a write: the same in every run that comes to the same action.

    The day is that of the judgement, so that a run which waited over midnight, or was resumed,
    still means the same action.
    """
    if call.tool.once_per == "reason":
        reason = strongest_signal(facts_of(state), context.policy) or "requested"
    else:
        text = json.dumps(call.canonical, sort_keys=True, ensure_ascii=False)
        reason = f"arguments {hashlib.sha256(text.encode()).hexdigest()}"
    day = datetime.fromisoformat(state["as_of"]).astimezone(context.timezone).date()
    return ActionIdentity(
        tenant=context.tenant,
        customer_id=call.tool.subject_of(call.canonical),
        action=call.tool.name,
        reason_class=reason,
        day=day.isoformat(),
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
