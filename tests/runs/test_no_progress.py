"""Runs that go round in circles."""

from typing import Any

import pytest
from support import Harness, Scripted, counted, finish, tool

from followup_agent.customers.database import CustomerDatabase
from followup_agent.tools import BUILT_IN

TOOLS = {definition.name: definition for definition in BUILT_IN}


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("get_open_tickets", [{"user_id": "user_123"}] * 3),
        (
            "get_user_activity",
            [
                {"user_id": "user_123", "days": 7},
                {"days": "7", "user_id": "user_123"},
                {"days": 7.0, "user_id": "user_123", "until": None},
            ],
        ),
    ],
)
async def test_the_same_call_runs_once_is_answered_once_and_then_ends_the_run(
    company: CustomerDatabase, name: str, calls: list[dict[str, Any]]
) -> None:
    """B40: arguments are compared after normalisation."""
    ran: list[dict[str, Any]] = []
    planner = Scripted(*(tool("r", name, **args) for args in calls))
    state = await Harness(company, planner, [counted(TOOLS[name], ran)]).ask("user_123 要跟进吗")
    assert (state["status"], state["stop_reason"]) == ("failed", "no_progress")
    assert len(ran) == 1
    assert [call["attempts"] for call in state["tool_history"]] == [1, 0, 0]
    assert "c1" in state["tool_history"][1]["result_summary"]


async def test_a_repeated_call_leaves_no_second_evidence(company: CustomerDatabase) -> None:
    planner = Scripted(tool("r", user_id="user_123"), tool("r", user_id="user_123"), finish())
    state = await Harness(company, planner).ask("user_123 有工单吗")
    assert state["status"] == "completed"
    assert len({item["summary"] for item in state["evidence"]}) == len(state["evidence"])


async def test_a_finish_before_anything_was_learned_answers_nothing(
    company: CustomerDatabase,
) -> None:
    state = await Harness(company, Scripted(finish("user_123 is fine"))).ask("Is user_123 at risk?")
    assert (state["status"], state["stop_reason"]) == ("failed", "no_progress")
    assert "fine" not in state["final_answer"]
