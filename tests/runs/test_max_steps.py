"""Runs that use up their steps."""

import pytest
from support import Endless, Harness, Scripted, tool

from followup_agent.customers.database import CustomerDatabase


def _look_again(state: object) -> dict[str, object]:
    return tool("r", "get_user_activity", user_id="user_123", days=state["current_step"] + 1)  # type: ignore[index]


async def test_a_run_out_of_steps_without_enough_is_failed(company: CustomerDatabase) -> None:
    """B01: never completed with a normal-looking verdict."""
    state = await Harness(company, Endless(_look_again), max_steps=6).ask("user_123 要跟进吗")
    assert (state["status"], state["stop_reason"]) == ("failed", "max_steps")
    assert state["current_step"] == 6
    assert len(state["tool_history"]) == 6
    assert state["verdict"]["needs_followup"] is None
    assert "不足以判断" in state["final_answer"]
    assert "已查到：" in state["final_answer"]
    assert "未能核实：订单与付费（未查询）、工单（未查询）" in state["final_answer"]
    assert "暂不需要重点跟进" not in state["final_answer"]


async def test_nothing_learned_is_never_a_no(company: CustomerDatabase) -> None:
    """B01, second run: every tool fails, two steps."""

    async def fail(args: object) -> object:
        raise ConnectionError

    from support import replaced

    tools = [
        replaced(name, fail)
        for name in ("get_user_activity", "get_user_orders", "get_open_tickets")
    ]
    state = await Harness(company, tools=tools, max_steps=2).ask("Does user_123 need follow-up?")
    assert state["status"] == "failed"
    assert state["stop_reason"] in ("max_steps", "repeated_failures")
    assert "does not need" not in state["final_answer"]


async def test_what_was_found_may_suffice_at_the_limit(company: CustomerDatabase) -> None:
    planner = Scripted(tool("r", user_id="user_123"))
    state = await Harness(company, planner, max_steps=1).ask("user_123 要跟进吗")
    assert (state["status"], state["stop_reason"]) == ("completed", "max_steps")
    assert state["verdict"]["needs_followup"] is True


@pytest.mark.parametrize("steps", [1, 2, 3])
async def test_the_rules_conclude_within_any_limit(company: CustomerDatabase, steps: int) -> None:
    state = await Harness(company, max_steps=steps).ask("user_456 要跟进吗")
    assert state["current_step"] == steps
    assert "暂不需要重点跟进" not in state["final_answer"] or state["status"] == "completed"
