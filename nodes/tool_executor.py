"""Run the tool that was decided on. Interprets nothing."""

from dataclasses import replace

from typing_extensions import TypedDict

from followup_agent.graph.context import AgentContext
from followup_agent.graph.gate import (
    admit,
    digest,
    identity_of,
    observe,
    refuse,
    tool_context_of,
)
from followup_agent.runs.ledger import Intent
from followup_agent.state import AgentState, Approved, Observation, time_left_s
from followup_agent.tools.once import run_once
from followup_agent.tools.outcome import Failed
from followup_agent.tools.runner import Prepared, ToolRun


class Update(TypedDict):
    """What this node writes."""

    observations: list[Observation]
    approved: None


async def tool_executor(state: AgentState, context: AgentContext) -> Update:
    """Make the call once admitted; a write only with the approval of exactly this call."""
    decision = state["decision"]
    if decision is None or decision["type"] != "tool":
        raise TypeError("tool_executor follows a tool decision")
    call = admit(state, decision, context)
    if not isinstance(call, Prepared):
        return Update(observations=[call], approved=None)
    approved = None
    if call.tool.effect != "read":
        approved = state["approved"]
        wanted = digest(call.tool.name, call.canonical, state["evidence"], context.policy.version)
        if approved is None or approved["changed"] or approved["digest"] != wanted:
            blocked = refuse(decision, call.canonical, "not_approved", "nobody approved this call")
            return Update(observations=[blocked], approved=None)
    run = await _carry_out(call, state, context, approved)
    outcome = run.outcome
    failed = isinstance(outcome, Failed)
    observation = observe(call, run)
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
    return Update(observations=[observation], approved=None)


async def _carry_out(
    call: Prepared, state: AgentState, context: AgentContext, approved: Approved | None
) -> ToolRun:
    """A read is simply made; a write goes through the ledger, so that it is made once."""
    tool_context = replace(tool_context_of(state, context), approved_by=approved and approved["by"])
    if approved is None:
        return await context.tools.run(call, tool_context, within_s=time_left_s(state))
    intent = Intent(
        identity=identity_of(call, state, context),
        args=call.canonical,
        thread_id=state["session_id"],
        run_id=state["run_id"],
        approved_by=approved["by"],
        at=tool_context.now,
    )
    return await run_once(call, tool_context, context.tools, context.ledger, intent)
