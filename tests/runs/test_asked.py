"""Runs that stop for a question, and go on with the answer."""

import re

import pytest
from support import Endless, Harness, Scripted, ask, finish, tool

from followup_agent.customers.database import CustomerDatabase


async def test_without_an_id_the_run_asks_and_goes_on_with_the_answer(
    company: CustomerDatabase,
) -> None:
    harness = Harness(company)
    asked = await harness.ask("帮我看看要不要跟进")
    assert (asked["status"], asked["stop_reason"]) == ("needs_input", "ask_user")
    assert asked["pending_questions"][0]["id"] == "q1"
    assert asked["tool_history"] == []
    done = await harness.resume("user_456")
    assert (done["status"], done["pending_questions"]) == ("completed", [])
    assert done["verdict"]["subject"] == "user_456"


async def test_nothing_before_the_question_runs_again_on_resume(company: CustomerDatabase) -> None:
    """B15: one planner call and one log line a decision, over the whole conversation."""
    planner = Scripted(ask(), ask(), tool("r", user_id="user_123"), finish())
    harness = Harness(company, planner)
    await harness.ask("要不要跟进")
    await harness.resume("abc")
    state = await harness.resume("user_123")
    assert planner.left == []
    assert len(planner.seen) == 4
    assert harness.log.names().count("agent.decision.made") == 4
    assert harness.log.names().count("agent.interrupted") == 2
    assert harness.log.names().count("agent.resumed") == 2
    assert [e["step"] for e in harness.log.events if e["eventName"] == "agent.decision.made"] == [
        1,
        2,
        3,
        4,
    ]
    assert state["current_step"] == 4


@pytest.mark.parametrize(
    "goal",
    [
        "用户user_123abc要跟进吗",
        "xuser_123 要跟进吗",
        "把user_123和user_456都看一下，要不要跟进",
        "要跟进吗",
    ],
)
async def test_a_missing_cut_or_ambiguous_id_is_asked_for_never_guessed(
    company: CustomerDatabase, goal: str
) -> None:
    """B09: no id is shortened and none is silently picked."""
    state = await Harness(company).ask(goal)
    assert state["status"] == "needs_input"
    assert state["tool_history"] == []


async def test_an_unknown_customer_is_a_question_not_a_healthy_one(
    company: CustomerDatabase,
) -> None:
    """B06 (2)."""
    harness = Harness(company)
    asked = await harness.ask("Does user_404 need follow-up?")
    assert asked["status"] == "needs_input"
    assert "user_404" in asked["pending_questions"][0]["question"]
    assert asked["tool_history"][0]["failure_kind"] == "not_found"
    done = await harness.resume("user_456")
    assert done["status"] == "completed"
    assert done["verdict"]["subject"] == "user_456"


async def test_it_asks_again_once_and_then_stops(company: CustomerDatabase) -> None:
    harness = Harness(company)
    await harness.ask("帮我看看要不要跟进")
    again = await harness.resume("不知道")
    assert again["status"] == "needs_input"
    stopped = await harness.resume("真的不知道")
    assert (stopped["status"], stopped["stop_reason"]) == ("failed", "no_progress")
    assert "暂不需要" not in stopped["final_answer"]


async def test_questions_are_counted_over_all_resumes(company: CustomerDatabase) -> None:
    """B43: a planner that only asks is stopped."""
    harness = Harness(company, Endless(lambda state: ask(f"Question {state['current_step']}?")))
    state = await harness.ask("user_123 要跟进吗")
    for number in range(50):
        if state["status"] != "needs_input":
            break
        state = await harness.resume(f"answer {number}")
    assert (state["status"], state["stop_reason"]) == ("failed", "no_progress")
    assert len(harness.planner.seen) == 4


async def test_steps_are_counted_over_resumes(company: CustomerDatabase) -> None:
    harness = Harness(company, Endless(lambda state: ask()), max_steps=2)
    await harness.ask("user_123 要跟进吗")
    await harness.resume("1")
    state = await harness.resume("2")
    assert (state["status"], state["stop_reason"]) == ("failed", "max_steps")


async def test_a_question_and_its_answer_follow_the_language_of_the_goal(
    company: CustomerDatabase,
) -> None:
    """B70: an English run stays English whatever language the answer is in."""
    harness = Harness(company)
    asked = await harness.ask("Is the customer at risk?")
    assert not re.search(r"[\u4e00-\u9fff]", asked["pending_questions"][0]["question"])
    done = await harness.resume("看 user_123 吧")
    assert done["language"] == "en"
    assert not re.search(r"[\u4e00-\u9fff]", done["final_answer"])
    mixed = await harness.ask("user_123 要不要 follow up?", "other")
    assert mixed["final_answer"].startswith("判断：")


async def test_what_the_first_answer_adds_is_kept(company: CustomerDatabase) -> None:
    harness = Harness(company)
    await harness.ask("hello")
    asked = await harness.resume("is it at risk over the last 30 days?")
    assert asked["status"] == "needs_input"
    done = await harness.resume("user_123")
    assert done["tool_history"][0]["args"] == {"user_id": "user_123", "days": 30}


async def test_a_period_out_of_range_is_asked_about(company: CustomerDatabase) -> None:
    harness = Harness(company)
    asked = await harness.ask("user_123 近1000天要跟进吗")
    assert asked["status"] == "needs_input"
    done = await harness.resume("近30天")
    assert done["tool_history"][0]["args"] == {"user_id": "user_123", "days": 30}


async def test_cancel_ends_the_run_as_cancelled(company: CustomerDatabase) -> None:
    harness = Harness(company)
    await harness.ask("帮我看看要不要跟进")
    state = await harness.resume({"type": "cancel"})
    assert (state["status"], state["stop_reason"]) == ("failed", "cancelled")
    assert state["pending_questions"] == []
