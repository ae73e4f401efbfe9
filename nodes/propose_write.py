"""Prepare a write for approval: exactly what would be done, and on what grounds. Runs no tool.

Asked anew after the facts have changed, it shows how."""

from typing import NotRequired

from langchain_core.messages import AIMessage
from typing_extensions import TypedDict

from followup_agent.answers.words import say
from followup_agent.graph.context import AgentContext
from followup_agent.graph.gate import admit, digest
from followup_agent.judgement.judge import current_evidence
from followup_agent.state import (
    AgentState,
    Approval,
    Counters,
    Observation,
    Status,
    StopReason,
)
from followup_agent.tools.runner import Prepared


class Update(TypedDict):
    """What this node writes: an approval to wait for, or an observation of why there is none."""

    approval: Approval | None
    approved: None
    counters: NotRequired[Counters]
    observations: NotRequired[list[Observation]]
    status: Status
    stop_reason: StopReason | None
    messages: list[AIMessage]


async def propose_write(state: AgentState, context: AgentContext) -> Update:
    """Validate and scope the write; block it, or put it before a person."""
    decision = state["decision"]
    if decision is None or decision["type"] != "tool":
        raise TypeError("propose_write follows a tool decision")
    call = admit(state, decision, context)
    if not isinstance(call, Prepared):
        return Update(
            approval=None,
            approved=None,
            observations=[call],
            status="running",
            stop_reason=None,
            messages=[],
        )
    grounds = current_evidence(state["evidence"], state["tool_history"])
    void = state["approved"]  # there only when its facts have changed
    count = state["counters"]["approvals"] + 1
    approval = Approval(
        id=f"a{count}",
        tool_name=call.tool.name,
        args=call.canonical,
        reason=decision["reason"],
        evidence_ids=[item["id"] for item in grounds],
        digest=digest(call.tool.name, call.canonical, state["evidence"], context.policy.version),
        expires_at=(context.clock() + context.approval_lifetime).isoformat(),
        approver=context.approver,
        remarks=void["changed"] if void is not None else [],
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
        counters={**state["counters"], "approvals": count},
        status="needs_input",
        stop_reason="approval",
        messages=[AIMessage(title)],
    )
