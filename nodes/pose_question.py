"""Record the question that is about to be asked. Asks nothing itself."""

from langchain_core.messages import AIMessage
from typing_extensions import TypedDict

from followup_agent.graph.context import AgentContext
from followup_agent.state import AgentState, Counters, Question, Status, StopReason


class Update(TypedDict):
    """What this node writes."""

    status: Status
    stop_reason: StopReason
    pending_questions: list[Question]
    counters: Counters
    messages: list[AIMessage]


async def pose_question(state: AgentState, context: AgentContext) -> Update:
    """Give the question an id and mark the run as waiting."""
    decision = state["decision"]
    if decision is None or decision["type"] != "ask_user":
        raise TypeError("pose_question follows an ask_user decision")
    count = state["counters"]["questions"] + 1
    question = Question(id=f"q{count}", question=decision["question"], reason=decision["reason"])
    context.log.emit(
        "agent.interrupted",
        decision={"type": "ask_user", "reason": decision["reason"]},
        state={"status": "needs_input"},
    )
    return Update(
        status="needs_input",
        stop_reason="ask_user",
        pending_questions=[question],
        counters={**state["counters"], "questions": count},
        messages=[AIMessage(decision["question"])],
    )
