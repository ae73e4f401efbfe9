"""The built-in planner: deterministic rules, no model, no key.

It reads the goal, the facts and the history, and decides one step:

    which customer?  ->  what is wanted?  ->  the evidence still missing, source by source
                     ->  a follow-up task, when one is wanted  ->  finish
"""

from collections.abc import Collection, Mapping
from typing import Any

from followup_agent.answers.words import say
from followup_agent.goals.limits import MAX_DAYS
from followup_agent.judgement.judge import WRITE_TOOL
from followup_agent.judgement.policy import Policy
from followup_agent.planners.needs import lack_of, task_due, unasked, verdict_now
from followup_agent.state import (
    AgentState,
    AskUser,
    CallTool,
    Decision,
    Finish,
    Verdict,
)
from followup_agent.tools.outcome import Language

DUE_IN_DAYS = {"high": 1, "medium": 3, "low": 7}
"""How soon a task is due, by its priority: today's urgent work, this week's, next week's."""

MAX_UNUSABLE_ANSWERS = 2
"""A question is asked again once; after a second answer without anything usable it stops."""

_PURPOSE: Mapping[str, tuple[str, str]] = {
    "get_user_activity": ("查看{window}的活跃情况", "look at activity over {window}"),
    "get_user_orders": ("查看{window}的订单与付费", "look at orders and payments over {window}"),
    "get_open_tickets": ("查看未关闭的工单", "look at open tickets"),
}
_EXPECTED: Mapping[str, tuple[str, str]] = {
    "get_user_activity": ("登录次数、活跃天数、最近活跃时间", "logins, active days, last activity"),
    "get_user_orders": ("订单数、付费数、最近付费时间", "orders, payments, last payment"),
    "get_open_tickets": ("未关闭与紧急工单的数量", "numbers of open and of urgent tickets"),
    WRITE_TOOL: ("审批通过后创建一个跟进任务", "one follow-up task, once approved"),
}


class RulePlanner:
    """Decides by rules. Stateless: one object serves any number of runs."""

    name = "rules"

    def __init__(self, policy: Policy, tools: Collection[str], example_id: str) -> None:
        """Plan with these registered tools; `example_id` is shown when asking for an id."""
        self._policy = policy
        self._tools = tools
        self._example_id = example_id

    async def decide(self, state: AgentState) -> Mapping[str, Any]:
        """The next action."""
        if state["counters"]["unusable_answers"] >= MAX_UNUSABLE_ANSWERS:
            return _finish(state, "stop_asking")
        return (
            self._question(state)
            or self._next_source(state)
            or self._task(state)
            or _finish(state, "all_asked")
        )

    def _question(self, state: AgentState) -> Decision | None:
        """What only the user can tell."""
        lack = lack_of(state)
        if lack is None:
            return None
        language, goal = state["language"], state["parsed_goal"]
        subjects, comma = goal["subjects"], say(language, "comma")
        return _ask(
            language,
            lack,
            ids=comma.join(subjects or goal["unreadable_ids"]),
            id=subjects[0] if subjects else "",
            about=say(language, "about", id=subjects[0]) if subjects else "",
            example=self._example_id,
            max_days=MAX_DAYS,
        )

    def _next_source(self, state: AgentState) -> Decision | None:
        """The first source that is needed for this kind of goal and was not asked yet."""
        sources = unasked(state, self._tools)
        return self._look(state, sources[0]) if sources else None

    def _look(self, state: AgentState, tool_name: str) -> Decision:
        subject = state["parsed_goal"]["subjects"][0]
        window, zh = state["parsed_goal"]["window"], state["language"] == "zh"
        args: dict[str, Any] = {"user_id": subject}
        if tool_name != "get_open_tickets":
            args["days"] = window["days"]
            if window["until"]:
                args["until"] = window["until"]
        if zh:
            days = f"近 {window['days']} 天"
            days = f"截至 {window['until']} 的 {window['days']} 天" if window["until"] else days
        else:
            days = f"the last {window['days']} days"
            days = f"the {window['days']} days to {window['until']}" if window["until"] else days
        purpose = _PURPOSE[tool_name][0 if zh else 1].format(window=days)
        return CallTool(
            type="tool",
            tool_name=tool_name,
            args=args,
            reason=f"还缺证据：{purpose}" if zh else f"Evidence still missing: {purpose}",
            expected_outcome=_EXPECTED[tool_name][0 if zh else 1],
        )

    def _task(self, state: AgentState) -> Decision | None:
        """Propose a follow-up task when one is wanted and none was proposed yet."""
        language = state["language"]
        verdict = verdict_now(state, self._policy)
        if verdict is None or not task_due(state, self._tools, verdict):
            return None
        priority = verdict["priority"]
        level = priority if priority in DUE_IN_DAYS else "low"
        zh = language == "zh"
        return CallTool(
            type="tool",
            tool_name=WRITE_TOOL,
            args={
                "user_id": verdict["subject"],
                "reason": _task_reason(verdict, language),
                "priority": level,
                "due_in_days": DUE_IN_DAYS[level],
            },
            reason="目标要求创建跟进任务，证据已齐"
            if zh
            else "A task is wanted and the evidence is in",
            expected_outcome=_EXPECTED[WRITE_TOOL][0 if zh else 1],
        )


def _ask(language: Language, key: str, **values: object) -> Decision:
    question, reason = say(language, key, **values), say(language, f"{key}_why")
    return AskUser(type="ask_user", question=question, reason=reason)


def _task_reason(verdict: Verdict, language: Language) -> str:
    reasons = ("；" if language == "zh" else "; ").join(r["text"] for r in verdict["reasons"])
    return (reasons or verdict["advised_action"])[:500]


def _finish(state: AgentState, why: str) -> Decision:
    return Finish(type="finish", reason=say(state["language"], why), answer_draft="")
