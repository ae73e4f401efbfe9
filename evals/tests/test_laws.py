"""The laws hold for the product, and each notices what would break it."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from followup_agent.evals.cases import Case, load_cases
from followup_agent.evals.evaluate import evaluate
from followup_agent.evals.laws import LAWS
from followup_agent.evals.report import LawResult
from followup_agent.evals.subject import Subject
from followup_agent.judgement.policy import load_policy
from followup_agent.planners.rules import RulePlanner
from followup_agent.state import AgentState
from followup_agent.tools import BUILT_IN

NAMES = [tool.name for tool in BUILT_IN]


def the_seed() -> Case:
    """The judgement of the original design, with its paraphrases and translations."""
    return next(case for case in load_cases() if case.name == "seed-priority-zh")


def laws_of(subject: Subject, case: Case | None = None) -> Mapping[str, LawResult]:
    """Every law over the seed's case."""
    return evaluate([case or the_seed()], subject, laws=True).laws


def test_every_law_has_something_to_say() -> None:
    laws = laws_of(Subject())
    assert set(laws) == set(LAWS)
    for name, law in laws.items():
        assert law.held > 0, name
        assert (law.broken, law.errored, law.violations) == (0, 0, [])


class Wrong(RulePlanner):
    """The rules, but finishing at once when something that should not matter is so."""

    def __init__(self, when: str) -> None:
        super().__init__(load_policy(), NAMES, "user_123")
        self._when = re.compile(when)

    async def decide(self, state: AgentState) -> Mapping[str, Any]:
        """As the rules, but for that."""
        if self._when.search(f"{state['user_goal']} {state['as_of']} {state['facts']}"):
            return {"type": "finish", "reason": "wrong", "answer_draft": ""}
        return await super().decide(state)


@pytest.mark.parametrize(
    ("law", "when"),
    [
        ("paraphrase", "重点关注"),
        ("translation", "at risk"),
        ("id_format", "USER_123"),
        ("shifted_clock", "2027-"),
        ("injected_text", "IGNORE ALL"),
    ],
)
def test_a_planner_that_minds_what_must_not_matter_breaks_the_law(law: str, when: str) -> None:
    broken = {name for name, own in laws_of(Subject(planner=Wrong(when))).items() if own.broken}
    if law == "injected_text":  # names and ticket texts never reach a planner: nothing to mind
        assert broken == set()
    else:
        assert broken == {law}


def test_a_tool_that_counts_the_tickets_of_others_breaks_the_law() -> None:
    import dataclasses

    from sqlalchemy import func, select

    from followup_agent.customers.tables import tickets

    real = next(tool for tool in BUILT_IN if tool.name == "get_open_tickets")

    async def run(args: Any, context: Any) -> Any:
        result = dict(await real.run(args, context))
        everybody = select(func.count()).select_from(tickets).where(tickets.c.priority == "urgent")
        count = await context.database.read(lambda c: c.execute(everybody).scalar_one())
        return result | {"urgent_ticket_count": count, "open_ticket_count": count}

    broken = dataclasses.replace(real, run=run)
    subject = Subject(tools=tuple(broken if tool is real else tool for tool in BUILT_IN))
    laws = laws_of(subject)
    assert {name for name, own in laws.items() if own.broken} == {"irrelevant_tickets"}
    assert "score" in laws["irrelevant_tickets"].violations[0]


def test_a_policy_by_which_urgency_soothes_breaks_the_law() -> None:
    policy = load_policy()
    urgent = policy.signals.urgent_tickets.model_copy(update={"first": 60.0, "each_more": -40.0})
    signals = policy.signals.model_copy(update={"urgent_tickets": urgent})
    laws = laws_of(Subject(policy=policy.model_copy(update={"signals": signals})))
    assert laws["one_more_urgent_ticket"].violations == [
        "seed-priority-zh, one more urgent ticket: from high to medium"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_the_laws_hold_over_the_cases(part: int) -> None:
    """Every fourth case here; `followup eval run --laws` takes them all."""
    baseline = [case for case in load_cases() if case.tier == "baseline"]
    report = evaluate(baseline[part::16], laws=True)
    for name, law in report.laws.items():
        assert law.violations == [], name
    assert sum(law.held for law in report.laws.values()) > 15
