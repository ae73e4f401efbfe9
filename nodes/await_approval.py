"""Pause until a person has decided on the write. Nothing stands before the pause: on resume this
node runs again from the first line."""

from datetime import datetime
from typing import NotRequired

from langgraph.types import interrupt
from typing_extensions import TypedDict

from followup_agent.answers.words import say
from followup_agent.graph.context import AgentContext
from followup_agent.graph.gate import refuse
from followup_agent.graph.replies import is_approval, is_cancel, reply_text
from followup_agent.state import AgentState, Approval, Approved, Observation, Status, StopReason


class Update(TypedDict):
    """What this node writes."""

    approval: Approval | None
    approved: Approved | None
    observation: NotRequired[Observation]
    status: Status
    stop_reason: StopReason | None


async def await_approval(state: AgentState, context: AgentContext) -> Update:
    """Show the write in the form that chat clients render, and take the decision on it."""
    reply = interrupt(request(state))
    approval, decision = state["approval"], state["decision"]
    if approval is None or decision is None or decision["type"] != "tool":
        raise TypeError("await_approval follows propose_write")
    approved = is_approval(reply) and context.clock() < datetime.fromisoformat(
        approval["expires_at"]
    )
    context.log.emit(
        "agent.resumed",
        decision={"type": "tool", "toolName": approval["tool_name"]},
        state={"status": "running"},
    )
    if approved:
        return Update(
            approval=None,
            approved=Approved(digest=approval["digest"], by=context.options.user),
            status="running",
            stop_reason=None,
        )
    late = is_approval(reply)
    message = f"the approval came after {approval['expires_at']}" if late else "not approved"
    if said := reply_text(reply):
        message += f": {said[:500]}"
    context.log.emit(
        "agent.tool.blocked",
        decision={"type": "tool", "toolName": approval["tool_name"]},
        tool={"args": approval["args"]},
        error={"kind": "not_approved", "message": message},
        state={"status": "running"},
    )
    return Update(
        approval=None,
        approved=None,
        observation=refuse(decision, approval["args"], "not_approved", message),
        status="running",
        stop_reason="cancelled" if is_cancel(reply) else None,
    )


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
            {"action_name": approval["tool_name"], "allowed_decisions": ["approve", "reject"]}
        ],
        "approval": dict(approval),
    }
