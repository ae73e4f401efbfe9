"""Every branch of the run, in one file, as pure functions of the state.

START           -> intake                     (refuses input with keys nobody reads)
planner         -> tool_executor | propose_write | pose_question
                   | synthesizer (finish, deadline, budget) | planner (unusable reply, once)
                   | give_up (planner_failed, model_refused, no_progress, recursion_limit)
propose_write   -> await_approval | updater (blocked)
await_approval  -> confirm_facts | await_approval (an edit that does not fit)
                   | updater (not approved) | give_up (cancelled)
confirm_facts   -> tool_executor | updater, propose_write (the facts have changed)
ask_user        -> planner | synthesizer (max_steps, deadline, budget)
                   | give_up (cancelled, recursion_limit)
updater         -> planner | propose_write (the facts have changed)
                   | synthesizer (max_steps, deadline, budget)
                   | give_up (repeated_failures, no_progress, recursion_limit)

intake -> planner, pose_question -> ask_user, tool_executor -> updater always. A node that breaks
goes to give_up (internal): LangGraph's error handler, in `graph/step.py`.
"""

from collections.abc import Mapping
from typing import Any, Literal

from langchain_core.runnables import Runnable, RunnableConfig
from typing_extensions import override

from followup_agent.service.errors import InvalidGoal
from followup_agent.state import (
    USED_UP,
    AgentInput,
    AgentState,
    StopReason,
    budget_spent,
    time_left_s,
)

MAX_FAILURES_IN_A_ROW = 2
"""Failed calls in a row that end a run. Seed document, section 9.3: one retry, then stop."""
MAX_INVALID_DECISIONS = 2
"""Unusable planner replies in a row that end a run: one may be repaired."""
MAX_REPEATED_CALLS = 2
"""Calls that were answered before: the first is answered from the record, the second ends it."""
MAX_QUESTIONS = 3
"""Questions in one run, over all resumes."""
SUPERSTEPS_PER_ROUND = 6
"""At most: planner, propose_write, await_approval, confirm_facts, tool_executor, updater."""
SUPERSTEPS_TO_END = 3
"""What must be left for a run to conclude by itself: the next node, the last one, and one spare."""


def recursion_limit(max_steps: int) -> int:
    """LangGraph's own limit for a run of so many steps: never met by a run that counts its steps."""
    return SUPERSTEPS_PER_ROUND * max_steps + 2 * SUPERSTEPS_TO_END


ENDED_BY_A_NODE: Mapping[StopReason | None, StopReason] = {
    reason: reason
    for reason in ("cancelled", "internal", "planner_failed", "model_refused", "deadline", "budget")
}
"""Reasons a node writes itself, for what only it has seen; all others are counted here."""


def stop_reason(state: AgentState) -> StopReason | None:
    """Why this run must end now, or None. The one place that decides it."""
    counters = state["counters"]
    if ended := ENDED_BY_A_NODE.get(state["stop_reason"]):
        return ended
    if counters["invalid_decisions"] >= MAX_INVALID_DECISIONS:
        return "planner_failed"
    if counters["failures_in_a_row"] >= MAX_FAILURES_IN_A_ROW:
        return "repeated_failures"
    if counters["repeated_calls"] >= MAX_REPEATED_CALLS:
        return "no_progress"
    decision = state["decision"]
    asks = decision is not None and decision["type"] == "ask_user"
    if asks and counters["questions"] >= MAX_QUESTIONS:
        return "no_progress"
    if decision is not None and decision["type"] == "finish":
        return "finish"
    if state["remaining_steps"] <= SUPERSTEPS_TO_END:
        return "recursion_limit"
    if time_left_s(state) == 0:
        return "deadline"
    if budget_spent(state):
        return "budget"
    if state["current_step"] >= state["max_steps"]:
        return "max_steps"
    return None


# LangGraph hands the input over merged with the state: on a new thread, with what channels start
# with; on a used one, with all of it.
_KNOWN_AT_FIRST = frozenset(
    {
        *AgentInput.__annotations__,
        *("facts", "evidence", "tool_history", "rounds", "quotes", "answers", "remaining_steps"),
    }
)
_KNOWN_LATER = _KNOWN_AT_FIRST | AgentState.__annotations__.keys()


class AfterStart(Runnable[Mapping[str, Any], Literal["intake"]]):
    """Refuse input with unknown keys: LangGraph would drop them and run on what is left.

    A `Runnable`, because LangGraph wraps a function in a task and a trace of its own.
    """

    name = "after_start"

    @override
    def invoke(
        self, input: Mapping[str, Any], config: RunnableConfig | None = None, **kwargs: Any
    ) -> Literal["intake"]:
        """'intake', or InvalidGoal."""
        known = _KNOWN_LATER if "run_id" in input else _KNOWN_AT_FIRST
        if unknown := sorted(input.keys() - known):
            raise InvalidGoal(
                f"unknown input {', '.join(map(repr, unknown))}: "
                'send {"user_goal": "…"}, or {"messages": […]} with a human message last; '
                "max_steps and as_of belong in the run's context"
            )
        return "intake"

    @override
    async def ainvoke(
        self, input: Mapping[str, Any], config: RunnableConfig | None = None, **kwargs: Any
    ) -> Literal["intake"]:
        """The same, in the event loop."""
        return self.invoke(input)


after_start = AfterStart()


def after_planner(
    state: AgentState,
) -> Literal[
    "tool_executor", "propose_write", "pose_question", "synthesizer", "planner", "give_up"
]:
    """Act, ask or finish, as decided; plan again after one unusable reply.

    Steps and budget are looked at after the act: what was paid for is still carried out.
    """
    decision = state["decision"]
    match stop_reason(state):
        case "finish" | "deadline":
            return "synthesizer"
        case "planner_failed" | "model_refused" | "no_progress" | "recursion_limit":
            return "give_up"
        case "budget" if decision is None:
            return "synthesizer"
    if decision is None:
        return "planner"
    if decision["type"] == "ask_user":
        return "pose_question"
    return "propose_write" if state["needs_approval"] else "tool_executor"


def after_propose_write(state: AgentState) -> Literal["await_approval", "updater"]:
    """Wait for a person, unless the write was blocked outright."""
    return "await_approval" if state["approval"] is not None else "updater"


def after_approval(
    state: AgentState,
) -> Literal["confirm_facts", "await_approval", "updater", "give_up"]:
    """On with the write only when it was approved."""
    if stop_reason(state) == "cancelled":
        return "give_up"
    if state["approval"] is not None:
        return "await_approval"
    return "confirm_facts" if state["approved"] is not None else "updater"


def after_confirm_facts(
    state: AgentState,
) -> Literal["tool_executor", "updater", "propose_write"]:
    """Run the write only when what it rests on still holds; ask anew when it does not."""
    if not _is_void(state):
        return "tool_executor"
    return "updater" if state["observations"] else "propose_write"


def after_ask_user(state: AgentState) -> Literal["planner", "synthesizer", "give_up"]:
    """Plan on with the answer, if there is a step left."""
    return _go_on(state)


def after_updater(
    state: AgentState,
) -> Literal["planner", "propose_write", "synthesizer", "give_up"]:
    """Give up on repeated failure or standstill, conclude at the step limit, else plan again; but
    a write whose approval is void is asked for anew, as it was decided."""
    return "propose_write" if _is_void(state) else _go_on(state)


def _is_void(state: AgentState) -> bool:
    """Whether there is an approval whose facts have changed."""
    return state["approved"] is not None and bool(state["approved"]["changed"])


def _go_on(state: AgentState) -> Literal["planner", "synthesizer", "give_up"]:
    reason = stop_reason(state)
    if reason is None:
        return "planner"
    return "synthesizer" if reason in USED_UP else "give_up"
