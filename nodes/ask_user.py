"""Pause for the answer. Nothing stands before the pause: on resume this node runs again from the
first line."""

from datetime import datetime
from typing import NotRequired

from langchain_core.messages import HumanMessage
from langgraph.types import interrupt
from typing_extensions import TypedDict

from followup_agent.goals.goal import read_answer
from followup_agent.graph.context import AgentContext
from followup_agent.graph.replies import ANSWER, TAKEN, is_cancel, reply_text
from followup_agent.state import (
    AgentState,
    Answered,
    Counters,
    Decision,
    Goal,
    Question,
    Status,
    StopReason,
)


class Update(TypedDict):
    """What this node writes."""

    status: Status
    stop_reason: StopReason | None
    decision: Decision | None
    parsed_goal: NotRequired[Goal]
    counters: NotRequired[Counters]
    answers: NotRequired[list[Answered]]
    pending_questions: list[Question]
    messages: list[HumanMessage]


async def ask_user(state: AgentState, context: AgentContext) -> Update:
    """Take the answer, `cancel`, or what a chat client sends, and read it into the goal."""
    answer = interrupt(
        {"type": "question", **state["pending_questions"][0]}, response_schema=ANSWER
    )
    text = reply_text(answer)
    context.log.emit("agent.resumed", decision={"type": "ask_user"}, state={"status": "running"})
    if is_cancel(answer):
        return Update(
            status="running",
            stop_reason="cancelled",
            decision=None,
            pending_questions=[],
            messages=[],
        )
    goal = read_answer(
        state["parsed_goal"],
        text,
        context.ids,
        datetime.fromisoformat(state["as_of"]),
        context.timezone,
    )
    counters = state["counters"]
    unusable = counters["unusable_answers"] + 1 if goal == state["parsed_goal"] else 0
    return Update(
        status="running",
        stop_reason=None,
        decision=None,
        parsed_goal=goal,
        counters={**counters, "unusable_answers": unusable},
        answers=[Answered(step=state["current_step"], answer=text)],
        pending_questions=[],
        messages=[HumanMessage(text, additional_kwargs=TAKEN)],
    )
