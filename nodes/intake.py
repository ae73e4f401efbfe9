"""Take the goal in, and start the run's state afresh. Plans nothing."""

import uuid
from typing import Annotated, Any

from langchain_core.messages import HumanMessage
from langgraph.config import get_config
from langgraph.types import Overwrite
from pydantic import BeforeValidator
from typing_extensions import TypedDict

from followup_agent.goals.goal import read_goal
from followup_agent.goals.text import clean_goal, language_of
from followup_agent.goals.times import parse_as_of
from followup_agent.graph.context import AgentContext
from followup_agent.graph.replies import TAKEN
from followup_agent.service.errors import InvalidGoal
from followup_agent.state import (
    GRAPH_VERSION,
    NO_COUNTS,
    NO_USAGE,
    AgentState,
    Answered,
    Approval,
    Approved,
    Counters,
    Decision,
    Evidence,
    Goal,
    Limits,
    ModelView,
    Question,
    Quote,
    Round,
    RunError,
    Status,
    StopReason,
    ToolCallRecord,
    Usage,
    Verdict,
)
from followup_agent.tools.outcome import Fact, Language


def _new_value(written: Any) -> Any:
    return written.value if isinstance(written, Overwrite) else written


_Whole = BeforeValidator(_new_value)
"""Written as an `Overwrite`, and checked as the value in it."""


class Update(TypedDict):
    """Everything a run starts with, so that nothing of an earlier run on the thread is left."""

    session_id: str
    run_id: str
    user_goal: str
    language: Language
    planner: str
    as_of: str
    as_of_given: bool
    graph_version: str
    parsed_goal: Goal
    status: Status
    stop_reason: StopReason | None
    current_step: int
    max_steps: int
    limits: Limits
    counters: Counters
    decision: Decision | None
    needs_approval: bool
    facts: Annotated[dict[str, dict[str, Fact]], _Whole]
    evidence: Annotated[list[Evidence], _Whole]
    tool_history: Annotated[list[ToolCallRecord], _Whole]
    rounds: Annotated[list[Round], _Whole]
    quotes: Annotated[list[Quote], _Whole]
    answers: Annotated[list[Answered], _Whole]
    pending_questions: list[Question]
    approval: Approval | None
    approved: Approved | None
    verdict: Verdict | None
    model_view: ModelView | None
    final_answer: str | None
    last_error: RunError | None
    usage: Usage
    messages: list[HumanMessage]


async def intake(state: AgentState, context: AgentContext) -> Update:
    """Read the goal from the last human message, else from `user_goal`; InvalidGoal for neither."""
    message = _new_message(state)
    if message is not None and not state.get("run_id") and state.get("user_goal"):
        raise InvalidGoal("there are two goals: send user_goal, or messages, not both")
    user_goal = clean_goal(state.get("user_goal") if message is None else str(message.text))
    run_id = str(uuid.uuid4())
    message_id = f"{run_id}-goal" if message is None else message.id
    try:
        as_of = (
            parse_as_of(context.options.as_of, context.timezone)
            if context.options.as_of
            else context.clock()
        )
    except ValueError as error:
        raise InvalidGoal(str(error)) from error
    return Update(
        session_id=str(get_config().get("configurable", {}).get("thread_id", "")),
        run_id=run_id,
        user_goal=user_goal,
        language=language_of(user_goal),
        planner=context.planner.name,
        as_of=as_of.isoformat(),
        as_of_given=context.options.as_of is not None,
        graph_version=GRAPH_VERSION,
        parsed_goal=read_goal(user_goal, context.ids, as_of, context.timezone),
        status="running",
        stop_reason=None,
        current_step=0,
        max_steps=context.options.max_steps,
        limits={
            **context.budget,
            "deadline_s": context.options.deadline_s or context.budget["deadline_s"],
        },
        counters=NO_COUNTS,
        decision=None,
        needs_approval=False,
        facts=Overwrite({}),  # type: ignore[typeddict-item]  # replaces what has grown
        evidence=Overwrite([]),  # type: ignore[typeddict-item]
        tool_history=Overwrite([]),  # type: ignore[typeddict-item]
        rounds=Overwrite([]),  # type: ignore[typeddict-item]
        quotes=Overwrite([]),  # type: ignore[typeddict-item]
        answers=Overwrite([]),  # type: ignore[typeddict-item]
        pending_questions=[],
        approval=None,
        approved=None,
        verdict=None,
        model_view=None,
        final_answer=None,
        last_error=None,
        usage=NO_USAGE,
        # In the place of the message it was read from, if any: the same text, marked as taken.
        messages=[HumanMessage(user_goal, id=message_id, additional_kwargs=TAKEN)],
    )


def _new_message(state: AgentState) -> HumanMessage | None:
    """The last message when a person wrote it and no run has taken it yet.

    A run that was cut off leaves its own goal as the last message: that one is not new.
    """
    messages = state.get("messages") or []
    last = messages[-1] if messages else None
    if isinstance(last, HumanMessage) and last.additional_kwargs != TAKEN:
        return last
    return None
