"""Prepare a write for approval: exactly what would be done, and on what grounds. Runs no tool."""

from typing import NotRequired

from langchain_core.messages import AIMessage
from typing_extensions import TypedDict

from followup_agent.answers.words import say
from followup_agent.graph.context import AgentContext
from followup_agent.graph.gate import admit, digest
from followup_agent.state import AgentState, Approval, Observation, Status, StopReason
from followup_agent.tools.runner import Prepared


class Update(TypedDict):
    """What this node writes: an approval to wait for, or an observation of why there is none."""

    approval: Approval | None
    approved: None
    observation: NotRequired[Observation]
    status: Status
    stop_reason: StopReason | None
    messages: list[AIMessage]


async def propose_write(state: AgentState, context: AgentContext) -> Update:
    """Validate and scope the write; block it, or put it before a person."""
    decision = state["decision"]
    if decision is None or decision["type"] != "tool":
        raise TypeError("propose_write follows a tool decision")
    call = admit(state, decision, context.tools)
    if not isinstance(call, Prepared):
        return Update(
            approval=None,
            approved=None,
            observation=call,
            status="running",
            stop_reason=None,
            messages=[],
        )
    approval = Approval(
        id=f"a{state['current_step']}",
        tool_name=call.tool.name,
        args=call.canonical,
        reason=decision["reason"],
        evidence_ids=[item["id"] for item in state["evidence"]],
        digest=digest(call.tool.name, call.canonical, state["evidence"], context.policy.version),
        expires_at=(context.clock() + context.approval_lifetime).isoformat(),
    )
    context.log.emit(
        "agent.interrupted",
        decision={"type": "tool", "toolName": call.tool.name, "reason": decision["reason"]},
        tool={"args": call.canonical},
        state={"status": "needs_input"},
    )
    title = say(state["language"], "approval_title", tool_name=call.tool.name)
    return Update(
        approval=approval,
        approved=None,
        status="needs_input",
        stop_reason="approval",
        messages=[AIMessage(title)],
    )
