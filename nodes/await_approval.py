"""Pause until a person has decided on the write. Nothing stands before the pause: on resume this
node runs again from the first line."""

from datetime import datetime
from typing import NotRequired

from langgraph.types import interrupt
from typing_extensions import TypedDict

from followup_agent.answers.words import say
from followup_agent.graph.context import AgentContext
from followup_agent.graph.gate import admit_edit, digest, refuse
from followup_agent.graph.replies import (
    DECISIONS,
    edited_action,
    is_approval,
    is_cancel,
    reply_text,
)
from followup_agent.state import (
    AgentState,
    Approval,
    Approved,
    Decision,
    Observation,
    Status,
    StopReason,
)


class Update(TypedDict):
    """What this node writes."""

    decision: NotRequired[Decision]
    approval: Approval | None
    approved: Approved | None
    observations: NotRequired[list[Observation]]
    status: Status
    stop_reason: StopReason | None


async def await_approval(state: AgentState, context: AgentContext) -> Update:
    """Show the write in the form that chat clients render, and take the decision on it."""
    reply = interrupt(request(state), response_schema=DECISIONS)
    approval, decision = state["approval"], state["decision"]
    if approval is None or decision is None or decision["type"] != "tool":
        raise TypeError("await_approval follows propose_write")
    context.log.emit(
        "agent.resumed",
        decision={"type": "tool", "toolName": approval["tool_name"]},
        state={"status": "running"},
    )
    edited = edited_action(reply)
    call = admit_edit(edited, approval, context.tools) if edited is not None else None
    if isinstance(call, str):  # asked again, with what is wrong with the edit
        context.log.emit(
            "agent.interrupted",
            decision={"type": "tool", "toolName": approval["tool_name"]},
            tool={"args": approval["args"]},
            error={"kind": "invalid_args", "message": call},
            state={"status": "needs_input"},
        )
        return Update(
            approval={**approval, "remarks": [call]},
            approved=None,
            status="needs_input",
            stop_reason="approval",
        )
    agreed = call is not None or is_approval(reply)
    obstacle = _obstacle(approval, context) if agreed else "not approved"
    if obstacle is None:
        args = approval["args"] if call is None else call.canonical
        shown = digest(approval["tool_name"], args, state["evidence"], context.policy.version)
        return Update(
            decision={**decision, "args": args},
            approval=None,
            approved=Approved(digest=shown, by=context.options.user, changed=[]),
            status="running",
            stop_reason=None,
        )
    if said := reply_text(reply):
        obstacle += f": {said[:500]}"
    context.log.emit(
        "agent.tool.blocked",
        decision={"type": "tool", "toolName": approval["tool_name"]},
        tool={"args": approval["args"]},
        error={"kind": "not_approved", "message": obstacle},
        state={"status": "running"},
    )
    return Update(
        approval=None,
        approved=None,
        observations=[refuse(decision, approval["args"], "not_approved", obstacle)],
        status="running",
        stop_reason="cancelled" if is_cancel(reply) else None,
    )


def _obstacle(approval: Approval, context: AgentContext) -> str | None:
    """Why an agreement does not count, or None."""
    if context.clock() >= datetime.fromisoformat(approval["expires_at"]):
        return f"the approval came after {approval['expires_at']}"
    if approval["approver"] not in (None, context.options.user):
        return f"{context.options.user} may not approve this, {approval['approver']} may"
    return None


def request(state: AgentState) -> dict[str, object]:
    """The pause's payload: LangChain's human-in-the-loop form, and the approval as it is kept."""
    approval = state["approval"]
    if approval is None:
        raise TypeError("await_approval follows propose_write")
    language = state["language"]
    cited = [item for item in state["evidence"] if item["id"] in approval["evidence_ids"]]
    lines = [
        say(language, "approval_title", tool_name=approval["tool_name"]),
        say(language, "approval_reason", reason=approval["reason"]),
        say(language, "basis"),
        *(f"- {item['summary']} [{item['id']}]" for item in cited),
        *([say(language, "approval_again")] if approval["remarks"] else []),
        *(f"- {remark}" for remark in approval["remarks"]),
    ]
    return {
        "action_requests": [
            {
                "name": approval["tool_name"],
                "args": approval["args"],
                "description": "\n".join(lines),
            }
        ],
        "review_configs": [
            {
                "action_name": approval["tool_name"],
                "allowed_decisions": ["approve", "edit", "reject"],
            }
        ],
        "approval": dict(approval),
    }
