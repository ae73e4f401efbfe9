"""What each evaluator calls right, and what it calls wrong."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from followup_agent.evals.cases import Case, Match
from followup_agent.evals.scorers import (
    argument,
    argument_quality,
    groundedness,
    language,
    matches,
    needless_calls,
    score,
    task_completion,
    tool_selection,
)
from followup_agent.evals.subject import Bench, Crash, Episode, Subject

ACTIVITY, ORDERS, TICKETS = "get_user_activity", "get_user_orders", "get_open_tickets"


def case(**fields: Any) -> Case:
    """A case about user_123, who needs follow-up."""
    return Case.model_validate(
        {
            "name": "a-case",
            "input": "帮我判断 user_123 最近是否需要重点跟进",
            "language": "zh",
            "tags": ["t"],
            "expected_status": "completed",
            **fields,
        }
    )


@pytest.fixture(scope="module")
def judged() -> Episode:
    """A real judgement of user_123."""
    with Bench.temporary() as bench:
        return asyncio.run(bench.run(case(), Subject()))


def changed(episode: Episode, **fields: Any) -> Episode:
    """The episode with another run."""
    assert episode.run is not None
    return episode.model_copy(update={"run": episode.run.model_copy(update=fields)})


@pytest.mark.parametrize(
    ("called", "expected", "mode", "right"),
    [
        ([ACTIVITY, ORDERS], [ACTIVITY, ORDERS], "exact_order", True),
        ([ORDERS, ACTIVITY], [ACTIVITY, ORDERS], "exact_order", False),
        ([ORDERS, ACTIVITY], [ACTIVITY, ORDERS], "any_order", True),
        ([ACTIVITY, ACTIVITY], [ACTIVITY], "any_order", False),
        ([ACTIVITY], [ACTIVITY, ORDERS], "subset", True),
        ([ACTIVITY, TICKETS], [ACTIVITY, ORDERS], "subset", False),
        ([ACTIVITY, TICKETS, ORDERS], [ORDERS, ACTIVITY], "superset", True),
        ([ACTIVITY], [ACTIVITY, ORDERS], "superset", False),
        ([], [], "exact_order", True),
        ([ACTIVITY], [], "exact_order", False),
        ([], [ACTIVITY], "subset", True),
        ([ACTIVITY], [], "superset", True),
    ],
)
def test_each_match_mode(called: list[str], expected: list[str], mode: Match, right: bool) -> None:
    assert matches(called, expected, mode) is right


NAMES = st.lists(st.sampled_from([ACTIVITY, ORDERS, TICKETS]), max_size=5)


@given(NAMES, NAMES)
def test_the_modes_agree_with_each_other(called: list[str], expected: list[str]) -> None:
    exact, any_order, subset, superset = (
        matches(called, expected, mode)
        for mode in ("exact_order", "any_order", "subset", "superset")
    )
    assert exact == (called == expected)
    assert any_order == (sorted(called) == sorted(expected))
    assert any_order == (subset and superset)
    assert subset == matches(expected, called, "superset")


@pytest.mark.parametrize(
    ("given_args", "expected", "how"),
    [
        ({"days": 30}, 30, "right"),
        ({"days": 7}, 30, "defaulted"),
        ({"days": 14}, 30, "wrong"),
        ({"days": "30"}, 30, "wrong"),
        ({"days": True}, 1, "wrong"),
        ({}, 30, "defaulted"),
        ({}, 7, "right"),
        ({}, None, "right"),
        ({"days": 14}, None, "wrong"),
    ],
)
def test_how_one_argument_stands(given_args: dict[str, Any], expected: Any, how: str) -> None:
    assert argument(given_args, "days", expected) == how


def record(name: str, success: bool = True, **args: Any) -> Any:
    """A call of the history."""
    return {"tool_name": name, "args": args, "success": success}


def test_what_a_needless_call_is() -> None:
    assert needless_calls([record(ACTIVITY), record(ORDERS)], [ACTIVITY, ORDERS]) == 0
    assert needless_calls([record(ACTIVITY), record(TICKETS)], [ACTIVITY]) == 1
    assert (
        needless_calls([record(ACTIVITY, n=1), record(ACTIVITY, n=1)], [ACTIVITY, ACTIVITY]) == 1
    )  # answered before
    assert (
        needless_calls([record(ACTIVITY, success=False), record(ACTIVITY)], [ACTIVITY, ACTIVITY])
        == 0
    )  # tried again
    assert needless_calls([record(ACTIVITY), record(TICKETS)], [ACTIVITY], "superset") == 0
    same = [record(ACTIVITY, user_id="u", days=7), record(ACTIVITY, user_id="u")]
    assert needless_calls(same, [ACTIVITY, ACTIVITY]) == 1
    assert needless_calls([record(ACTIVITY), record(ACTIVITY)], [ACTIVITY], "superset") == 1


def test_a_call_that_is_missing_or_too_many_is_seen(judged: Episode) -> None:
    right = tool_selection(case(expected_tools=[ACTIVITY, ORDERS, TICKETS]), judged)
    assert right is not None
    assert (right.passed, right.value, right.details["precision"]) == (True, 1.0, 1.0)
    short = tool_selection(case(expected_tools=[ACTIVITY, TICKETS]), judged)
    assert short is not None
    assert not short.passed
    assert short.details["precision"] == pytest.approx(2 / 3)
    assert short.details["recall"] == 1.0
    assert short.details["needless"] == 1


def test_arguments_are_judged_one_by_one(judged: Episode) -> None:
    wanted = {
        ACTIVITY: {"user_id": "user_123", "days": 30, "until": "2026-02-28"},
        "no_tool": {"x": 1},
    }
    given_score = argument_quality(case(expected_args=wanted), judged)
    assert given_score is not None
    assert given_score.details == {"right": 1, "defaulted": 2, "wrong": 0, "missing": 1}
    assert given_score.value == 0.25
    assert f"{ACTIVITY}.days is defaulted: 7, expected 30" in given_score.reason


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"expected_status": "failed"}, "status is 'completed'"),
        ({"expected_needs_followup": False}, "needs_followup is True"),
        ({"expected_needs_followup": "undetermined"}, "needs_followup is True"),
        ({"expected_priority": "low"}, "priority is 'high'"),
        ({"expected_must_contain": ["发票"]}, "lacks '发票'"),
        ({"must_not_contain": ["工单"]}, "says '工单'"),
        ({"expected_question": ["哪位"]}, "nothing was asked"),
        ({"expected_approval": {"priority": "high"}}, "no write was put before a person"),
        ({"expected_tasks": [{"customer_id": "user_123"}]}, "number of tasks is 0"),
        ({"expected_stop_reason": "max_steps"}, "stop reason is 'finish'"),
    ],
)
def test_completion_names_what_is_not_as_expected(
    judged: Episode, fields: dict[str, Any], reason: str
) -> None:
    wrong = task_completion(case(**fields), judged)
    assert wrong is not None
    assert not wrong.passed
    assert reason in wrong.reason


def test_an_answer_stands_on_its_record(judged: Episode) -> None:
    assert judged.run is not None
    answer = judged.run.answer or ""
    ok = groundedness(case(), judged)
    assert ok is not None
    assert ok.passed, ok.reason
    for told, reason in (
        (answer + "近 7 天登录 42 次", "42 stands nowhere"),
        (answer + " [e99]", "e99 is cited, and there is none"),
        (answer + " [e1, e99]", "e99 is cited, and there is none"),
        (answer + "已创建跟进任务 task_1", "claims a task"),
        (answer + "任务已创建。", "claims a task"),
        (answer + "未关闭工单 1 个，已创建跟进任务。", "claims a task"),
        (answer + "已为 user_123 创建了跟进任务。", "claims a task"),
        (answer + "I have created a follow-up task for user_123.", "claims a task"),
        (answer + "The task has already been created.", "claims a task"),
        (answer + "金额 １２３４５ 元", "12345 stands nowhere"),
        (answer + "登录了 123 次", "123 stands nowhere"),
        (answer + "\n- 登录 45 次 [e1]", "45 does not stand in e1"),
    ):
        wrong = groundedness(case(), changed(judged, answer=told))
        assert wrong is not None
        assert reason in wrong.reason


@pytest.mark.parametrize(
    "text", ["3.0 天", "没有创建跟进任务：审批未通过。", "No follow-up task was created."]
)
def test_what_is_said_in_other_words_is_no_fault(judged: Episode, text: str) -> None:
    assert judged.run is not None
    ok = groundedness(case(), changed(judged, answer=f"{judged.run.answer}\n{text}"))
    assert ok is not None
    assert ok.passed, ok.reason


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("The customer is quiet.", True),
        ("Customer 晨光文旅 is quiet.", True),
        ("The ticket 登录后页面空白 is urgent.", True),
        ("ユーザーはログインしていない", False),
        ("고객이 로그인하지 않았습니다", False),
        ("客户很久没来", False),
    ],
)
def test_english_is_latin_but_for_names(judged: Episode, text: str, right: bool) -> None:
    given_score = language(case(language="en"), changed(judged, answer=text))
    assert given_score is not None
    assert given_score.passed is right


def test_an_expected_null_is_checked(judged: Episode) -> None:
    task = {"customer_id": "user_123", "assignee": "mallory"}
    wrong = task_completion(
        case(expected_tasks=[{"assignee": None}]), judged.model_copy(update={"tasks": [task]})
    )
    assert wrong is not None
    assert "assignee of the task is 'mallory'" in wrong.reason


@pytest.mark.parametrize(
    "fields", [{"expected_priority": "high"}, {"expected_tasks": []}, {"must_not_contain": ["x"]}]
)
def test_a_failed_run_completes_nothing(judged: Episode, fields: dict[str, Any]) -> None:
    failed = changed(judged, status="failed", stop_reason="max_steps")
    given_score = task_completion(case(**{"expected_status": None, **fields}), failed)
    assert given_score is not None
    assert not given_score.passed


def test_completion_is_asked_only_where_something_is_stated(judged: Episode) -> None:
    asks_tools_only = case(expected_status=None, expected_tools=["get_user_activity"])
    assert task_completion(asks_tools_only, judged) is None


def test_the_answer_is_in_the_language_of_the_goal(judged: Episode) -> None:
    assert judged.run is not None
    ok = language(case(), judged)
    assert ok is not None
    assert ok.passed, ok.reason
    mixed = changed(judged, answer=f"{judged.run.answer}\nKeep watching automatically.")
    wrong = language(case(), mixed)
    assert wrong is not None
    assert "Keep watching" in wrong.reason
    english = language(case(language="en"), judged)
    assert english is not None
    assert not english.passed


def test_a_crash_is_right_in_nothing_it_was_asked(judged: Episode) -> None:
    crashed = judged.model_copy(update={"crash": Crash(kind="crash", message="boom")})
    scores = score(
        case(expected_tools=[ACTIVITY, ORDERS, TICKETS], expected_needs_followup=True), crashed
    )
    assert {s.eval for s in scores} >= {"tool_selection", "task_completion"}
    assert all(s.errored and not s.passed and "boom" in s.reason for s in scores)


def test_a_case_that_never_came_to_a_result_is_errored() -> None:
    nothing = Episode(case="a-case", crash=Crash(kind="crash", message="boom"))
    scores = score(case(expected_needs_followup=False), nothing)
    assert scores
    assert all(s.errored and not s.passed for s in scores)


def test_an_evaluator_that_raises_is_an_error_and_not_a_gap(judged: Episode) -> None:
    def broken(case: Case, episode: Episode) -> Any:
        raise KeyError("priority")

    (given_score,) = score(case(), judged, {"mine": broken})
    assert (given_score.eval, given_score.errored, given_score.passed) == ("mine", True, False)
    assert "KeyError" in given_score.reason
