"""Something is broken on purpose, and the right eval turns red: else the instrument measures nothing."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from followup_agent.evals.cases import Case, load_cases
from followup_agent.evals.evaluate import evaluate
from followup_agent.evals.report import Report, load_gates
from followup_agent.evals.states import planner_only, read_states
from followup_agent.evals.subject import Subject
from followup_agent.judgement.policy import load_policy
from followup_agent.planners.rules import RulePlanner
from followup_agent.state import AgentState
from followup_agent.tools import BUILT_IN

BASELINE = [case for case in load_cases() if case.tier == "baseline"]
JUDGEMENTS = [case for case in BASELINE if "judgement" in case.tags and not case.turns][::3]


def red(report: Report) -> set[str]:
    """The evals that are below the gate."""
    return {problem.split(" ")[0] for problem in report.gate.problems}


def asked_to(kind: str) -> list[Case]:
    """Cases of a tag, no more than needed."""
    return [case for case in BASELINE if kind in case.tags][:12]


class Hasty(RulePlanner):
    """Mutant of the planner: it never looks at orders, and forgets the period it was told."""

    async def decide(self, state: AgentState) -> Mapping[str, Any]:
        """As the rules, but for that."""
        decision = dict(await super().decide(state))
        if decision.get("tool_name") == "get_user_orders":
            decision["tool_name"] = "get_open_tickets"
            decision["args"] = {"user_id": decision["args"]["user_id"]}
        if decision.get("tool_name") == "get_user_activity":
            decision["args"] = {**decision["args"], "days": 7}
            decision["args"].pop("until", None)
        return decision


@pytest.fixture(scope="module")
def hasty() -> Subject:
    """The planner mutant."""
    names = [tool.name for tool in BUILT_IN]
    return Subject(planner=Hasty(load_policy(), names, "user_123"))


def test_a_planner_that_chooses_wrongly_turns_tool_selection_red(hasty: Subject) -> None:
    report = evaluate(asked_to("orders") + asked_to("judgement"), hasty)
    assert {"tool_selection"} <= red(report)
    failure = next(f for f in report.failures if f.eval == "tool_selection")
    assert "called" in failure.reason
    assert failure.trajectory


def test_a_planner_that_forgets_the_period_turns_argument_quality_red(hasty: Subject) -> None:
    windows = [c for c in asked_to("window") if c.expected_args.get("get_user_activity")]
    report = evaluate(windows, hasty)
    assert "argument_quality" in red(report)
    assert report.details["argument_quality"]["defaulted"] > 0


async def test_the_same_mutant_is_seen_by_the_planner_alone(hasty: Subject) -> None:
    report = await planner_only(read_states(), hasty, load_gates())
    assert not report.ok
    assert report.by_decision["tool"].score < 1.0


def test_a_policy_that_ignores_urgent_tickets_turns_only_task_completion_red() -> None:
    policy = load_policy()
    urgent = policy.signals.urgent_tickets.model_copy(update={"first": 0.0, "each_more": 0.0})
    signals = policy.signals.model_copy(update={"urgent_tickets": urgent})
    mutant = Subject(policy=policy.model_copy(update={"signals": signals}))
    report = evaluate(JUDGEMENTS, mutant)
    assert red(report) == {"task_completion"}
    assert any("priority" in f.reason or "needs_followup" in f.reason for f in report.failures)


def test_a_tool_that_counts_closed_tickets_turns_only_task_completion_red() -> None:
    real = next(tool for tool in BUILT_IN if tool.name == "get_open_tickets")

    async def run(args: Any, context: Any) -> Any:
        result = dict(await real.run(args, context))
        if not result["open_ticket_count"]:
            result |= {"open_ticket_count": 1, "urgent_ticket_count": 1,
                       "oldest_open_ticket_days": 19, "urgent_ticket_ids": ["T-000003"]}  # fmt: skip
        return result

    broken = dataclasses.replace(real, run=run)
    mutant = Subject(tools=tuple(broken if tool is real else tool for tool in BUILT_IN))
    report = evaluate(JUDGEMENTS, mutant)
    assert red(report) == {"task_completion"}


def test_without_a_mutant_the_same_cases_are_green() -> None:
    assert evaluate([*JUDGEMENTS, *asked_to("orders"), *asked_to("window")]).gate.problems == []
