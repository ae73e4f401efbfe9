"""Run the tool that was decided on. Interprets nothing."""

import hashlib
from datetime import datetime

from typing_extensions import TypedDict

from followup_agent.graph.context import AgentContext
from followup_agent.graph.gate import admit, digest, refuse
from followup_agent.state import AgentState, Approved, Observation
from followup_agent.tools.definition import ToolContext
from followup_agent.tools.outcome import Failed
from followup_agent.tools.runner import Prepared


class Update(TypedDict):
    """What this node writes."""

    observation: Observation
    approved: None


async def tool_executor(state: AgentState, context: AgentContext) -> Update:
    """Make the call once admitted; a write only with the approval of exactly this call."""
    decision = state["decision"]
    if decision is None or decision["type"] != "tool":
        raise TypeError("tool_executor follows a tool decision")
    call = admit(state, decision, context.tools)
    if not isinstance(call, Prepared):
        return Update(observation=call, approved=None)
    approved = None
    if call.tool.effect != "read":
        approved = state["approved"]
        wanted = digest(call.tool.name, call.canonical, state["evidence"], context.policy.version)
        if approved is None or approved["digest"] != wanted:
            blocked = refuse(decision, call.canonical, "not_approved", "nobody approved this call")
            return Update(observation=blocked, approved=None)
    run = await context.tools.run(call, _tool_context(state, context, approved))
    outcome = run.outcome
    failed = isinstance(outcome, Failed)
    observation = Observation(
        tool_name=call.tool.name,
        args=call.canonical,
        outcome=outcome.kind,
        failure_kind=outcome.failure_kind if isinstance(outcome, Failed) else None,
        message=outcome.message if isinstance(outcome, Failed) else "",
        result=None if isinstance(outcome, Failed) else outcome.result,
        attempts=run.attempts,
        duration_ms=run.duration_ms,
        repeat_of=None,
    )
    context.log.emit(
        f"agent.tool.{'succeeded' if outcome.kind == 'found' else outcome.kind}",
        decision={"type": "tool", "toolName": call.tool.name, "reason": decision["reason"]},
        tool={
            "args": call.canonical,
            "durationMs": run.duration_ms,
            "success": not failed,
            "outcome": outcome.kind,
        },
        error={"kind": outcome.failure_kind, "message": outcome.message}
        if isinstance(outcome, Failed)
        else None,
        state={"status": state["status"]},
    )
    return Update(observation=observation, approved=None)


def _tool_context(
    state: AgentState, context: AgentContext, approved: Approved | None
) -> ToolContext:
    return ToolContext(
        as_of=datetime.fromisoformat(state["as_of"]),
        timezone=context.timezone,
        now=context.clock(),
        customers=context.customers,
        thread_id=state["session_id"],
        run_id=state["run_id"],
        idempotency_key=approved and _key(approved["digest"], state["run_id"]),
        approved_by=approved and approved["by"],
        evidence_ids=tuple(item["id"] for item in state["evidence"]),
    )


def _key(digest_of_call: str, run_id: str) -> str:
    """One key for one approved action of one run: a repeated attempt writes nothing new."""
    return hashlib.sha256(f"{run_id} {digest_of_call}".encode()).hexdigest()
