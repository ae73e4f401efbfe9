"""Every case, as a test: what `followup eval run` judges, in pytest and in LangSmith's experiments."""

from collections.abc import Iterator

import pytest
from langsmith import testing

from followup_agent.evals.cases import Case, load_cases
from followup_agent.evals.scorers import score
from followup_agent.evals.subject import Bench, Subject

CASES = load_cases()


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """Where the cases are run."""
    with Bench.temporary() as opened:
        yield opened


@pytest.mark.langsmith
@pytest.mark.parametrize("case", [c for c in CASES if c.tier == "baseline"], ids=lambda c: c.name)
async def test_the_rules_pass_every_baseline_case(case: Case, bench: Bench) -> None:
    testing.log_inputs({"user_goal": case.input})
    testing.log_reference_outputs(case.model_dump(mode="json", exclude_unset=True))
    episode = await bench.run(case, Subject())
    testing.log_outputs({"answer": episode.run.answer if episode.run else None})
    scores = score(case, episode)
    for given in scores:
        testing.log_feedback(key=given.eval, score=given.value, comment=given.reason)
    wrong = [f"{given.eval}: {given.reason}" for given in scores if not given.passed]
    assert wrong == [], episode.trajectory


def test_there_are_cases_enough_and_half_of_them_are_chinese() -> None:
    chinese = [case for case in CASES if case.language == "zh"]
    assert len(CASES) >= 120
    assert 0.4 <= len(chinese) / len(CASES) <= 0.6


def test_no_two_cases_ask_the_same_of_the_same_company() -> None:
    asked = [
        case.model_dump_json(exclude={"name", "tags", "why", "tier", "paraphrases", "translations"})
        for case in CASES
    ]
    assert len(set(asked)) == len(asked)


def test_every_kind_of_case_is_there_in_both_languages() -> None:
    wanted = {
        "judgement", "activity", "orders", "tickets", "window", "timezone", "missing-id",
        "unknown-customer", "two-customers", "empty", "fault", "step-limit", "approve", "edit",
        "reject", "injection", "off-topic", "noisy",
    }  # fmt: skip
    for language in ("zh", "en"):
        tags = {tag for case in CASES if case.language == language for tag in case.tags}
        assert wanted - tags == set(), language
