"""What a run still needs, from its state: from the user, from the sources, and of a task.

Pure, and the same for every planner: the rules go by it, a model is told by it what it left out.
"""

from collections.abc import Collection
from typing import Literal

from followup_agent.answers.conclude import is_answered
from followup_agent.goals.limits import MAX_DAYS
from followup_agent.judgement.judge import (
    QUESTION_SOURCE,
    SOURCES,
    WRITE_TOOL,
    coverage_of,
    judge,
)
from followup_agent.judgement.policy import Policy
from followup_agent.state import AgentState, Goal, ToolCallRecord, Verdict, facts_of

Lack = Literal[
    "ask_which_of", "ask_unreadable", "ask_what", "ask_which", "ask_window", "ask_unknown"
]
"""What only the user can tell; the names of the questions in `answers/words.py`."""


def lack_of(state: AgentState) -> Lack | None:
    """What only the user can tell now: the customer, the wish, a possible period."""
    goal = state["parsed_goal"]
    subjects = goal["subjects"]
    if len(subjects) > 1:
        return "ask_which_of"
    if not subjects and goal["unreadable_ids"]:
        return "ask_unreadable"
    if goal["kind"] == "unclear":
        return "ask_what"
    if not subjects:
        return "ask_which"
    if not 1 <= goal["window"]["days"] <= MAX_DAYS:
        return "ask_window"
    if any(call["failure_kind"] == "not_found" for call in calls_for(state, subjects[0])):
        return "ask_unknown"
    return None


def calls_for(state: AgentState, subject: str) -> list[ToolCallRecord]:
    """The calls about this customer."""
    return [call for call in state["tool_history"] if call["args"].get("user_id") == subject]


def sources_of(goal: Goal, tools: Collection[str]) -> list[str]:
    """The sources that a goal of this kind goes by, of the tools there are."""
    wanted = [QUESTION_SOURCE[goal["kind"]]] if goal["kind"] in QUESTION_SOURCE else SOURCES
    return [name for name in wanted if name in tools]


def unasked(state: AgentState, tools: Collection[str]) -> list[str]:
    """The sources that the goal goes by and that were not asked yet, in their order."""
    subjects = state["parsed_goal"]["subjects"]
    if len(subjects) != 1:
        return []
    coverage = coverage_of(state["tool_history"], subjects[0])
    wanted = sources_of(state["parsed_goal"], tools)
    return [name for name in wanted if coverage[name] == "not_checked"]


def verdict_now(state: AgentState, policy: Policy) -> Verdict | None:
    """The verdict on what is known now; None while there is not one customer."""
    subjects = state["parsed_goal"]["subjects"]
    if len(subjects) != 1:
        return None
    return judge(
        subjects[0],
        facts_of(state),
        state["evidence"],
        state["tool_history"],
        policy,
        state["language"],
    )


def task_due(state: AgentState, tools: Collection[str], verdict: Verdict | None) -> bool:
    """Whether the goal wants a task that was not proposed yet."""
    goal = state["parsed_goal"]
    if verdict is None or goal["task"] == "none" or WRITE_TOOL not in tools:
        return False
    if any(call["tool_name"] == WRITE_TOOL for call in calls_for(state, verdict["subject"])):
        return False
    return goal["task"] == "requested" or bool(verdict["needs_followup"])


def left_out(state: AgentState, tools: Collection[str], policy: Policy) -> list[str]:
    """The tools without which a finish now would leave the goal open; empty when it would not."""
    verdict = verdict_now(state, policy)
    if verdict is None:
        return []
    if task_due(state, tools, verdict):
        return [*unasked(state, tools), WRITE_TOOL]
    return [] if is_answered(state, verdict) else unasked(state, tools)
