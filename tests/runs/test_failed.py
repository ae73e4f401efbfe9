"""Runs that fail: tools that break, time out or do not exist, planners that break."""

import asyncio
import dataclasses
import time
from typing import Any

import pytest
from support import Endless, Harness, Scripted, finish, replaced, tool

from followup_agent.customers.database import CustomerDatabase
from followup_agent.graph.step import InvalidUpdate
from followup_agent.tools import BUILT_IN
from followup_agent.tools.definition import ToolRefused, ToolUnavailable


def broken(error: Exception, *names: str) -> list[Any]:
    """Built-in tools that raise."""

    async def run(args: Any) -> Any:
        raise error

    return [
        replaced(name, run)
        for name in names or ("get_user_activity", "get_user_orders", "get_open_tickets")
    ]


async def test_two_failed_calls_in_a_row_end_the_run(company: CustomerDatabase) -> None:
    harness = Harness(company, tools=broken(ToolUnavailable("down")))
    state = await harness.ask("user_123 要跟进吗")
    assert (state["status"], state["stop_reason"]) == ("failed", "repeated_failures")
    assert [call["attempts"] for call in state["tool_history"]] == [2, 2]
    assert state["verdict"]["needs_followup"] is None
    assert "暂不需要重点跟进" not in state["final_answer"]
    assert "服务不可用" in state["final_answer"]
    assert state["last_error"] == {"kind": "unavailable", "message": "down"}


async def test_one_failed_source_is_named_and_unsettles_the_verdict(
    company: CustomerDatabase,
) -> None:
    """B06 (5): never 'no open tickets' when they could not be read."""
    harness = Harness(company, tools=broken(ToolUnavailable("down"), "get_open_tickets"))
    state = await harness.ask("Does user_456 need follow-up?")
    assert (state["status"], state["stop_reason"]) == ("failed", "finish")
    assert state["verdict"]["needs_followup"] is None
    assert state["verdict"]["coverage"]["get_open_tickets"] == "failed"
    assert "open_ticket_count" not in state["facts"]["user_456"]
    assert "tickets (unavailable)" in state["final_answer"]
    assert "does not need" not in state["final_answer"]


async def test_a_yes_that_is_certain_stands_without_the_missing_source(
    company: CustomerDatabase,
) -> None:
    harness = Harness(company, tools=broken(ToolUnavailable("down"), "get_user_orders"))
    state = await harness.ask("user_123 要跟进吗")
    assert state["status"] == "completed"
    assert state["verdict"]["needs_followup"] is True
    assert "未能核实：订单与付费（服务不可用）" in state["final_answer"]


@pytest.mark.parametrize(
    "answer", [None, {"error": "boom"}, [], "no tickets", {"open_ticket_count": "two"}]
)
async def test_an_answer_of_another_shape_is_a_failure_not_nothing_there(
    company: CustomerDatabase, answer: Any
) -> None:
    """B06 (3) and (4), B52: nothing invalid is written, and the thread can be used again."""

    async def run(args: Any) -> Any:
        return answer

    harness = Harness(company, tools=[replaced("get_open_tickets", run)])
    state = await harness.ask("user_456 要跟进吗")
    call = state["tool_history"][-1]
    assert (call["outcome"], call["failure_kind"]) == ("failed", "internal")
    assert "open_ticket_count" not in state["facts"]["user_456"]
    assert len(harness.log.errors) == 1
    kept = (await harness.graph.aget_state(harness.config())).values
    assert kept["status"] == "failed"
    again = await harness.ask("user_456 最近登录了吗")
    assert again["status"] == "completed"


async def test_a_success_forgives_the_failure_before_it(company: CustomerDatabase) -> None:
    """B87: history keeps both; the run goes on."""
    harness = Harness(company, tools=broken(ToolRefused("no"), "get_user_orders"))
    state = await harness.ask("user_123 要跟进吗")
    assert [call["success"] for call in state["tool_history"]] == [True, False, True]
    assert state["counters"]["failures_in_a_row"] == 0
    assert state["stop_reason"] == "finish"


@pytest.mark.parametrize(
    "name",
    [
        "query_db",
        "get_user_order",
        "Get_User_Orders",
        "functions.get_user_orders",
        "get_user_orders ",
    ],
)
async def test_an_unknown_tool_name_is_kept_told_once_and_then_ends_the_run(
    company: CustomerDatabase, name: str
) -> None:
    """B73: no near name is guessed."""
    planner = Scripted(
        {**tool("r", user_id="user_123"), "tool_name": name},
        {**tool("r", user_id="user_123"), "tool_name": name},
    )
    state = await Harness(company, planner).ask("user_123 要跟进吗")
    assert (state["status"], state["stop_reason"]) == ("failed", "repeated_failures")
    assert [call["tool_name"] for call in state["tool_history"]] == [name, name]
    assert {call["failure_kind"] for call in state["tool_history"]} == {"unknown_tool"}
    assert "get_user_orders" in planner.seen[1]["tool_history"][0]["result_summary"]


async def test_arguments_that_do_not_fit_never_reach_the_tool(company: CustomerDatabase) -> None:
    """B18."""
    ran: list[Any] = []

    async def run(args: Any) -> Any:
        ran.append(args)

    planner = Scripted(
        tool("r", "get_user_activity", user_id="user_123", days="last week"),
        tool("r", "get_user_activity", user_id="user_123", days=0),
    )
    harness = Harness(company, planner, [replaced("get_user_activity", run)])
    state = await harness.ask("user_123 要跟进吗")
    assert ran == []
    assert {call["failure_kind"] for call in state["tool_history"]} == {"invalid_args"}
    assert {call["attempts"] for call in state["tool_history"]} == {0}
    assert "days" in state["last_error"]["message"]


async def test_a_customer_the_user_did_not_name_is_out_of_scope(company: CustomerDatabase) -> None:
    """B10: code, not the prompt, keeps a run to its customer."""
    planner = Scripted(tool("r", user_id="user_456"), tool("r", user_id="user_789"))
    harness = Harness(company, planner)
    state = await harness.ask("user_123 要跟进吗")
    assert {call["failure_kind"] for call in state["tool_history"]} == {"out_of_scope"}
    assert harness.log.names().count("agent.tool.blocked") == 2


async def test_a_planner_that_breaks_is_a_failed_run(company: CustomerDatabase) -> None:
    planner = Scripted(RuntimeError("phone 13800000000"), RuntimeError("again"))
    harness = Harness(company, planner)
    state = await harness.ask("user_123 要跟进吗")
    assert (state["status"], state["stop_reason"]) == ("failed", "planner_failed")
    assert harness.log.names().count("agent.plan.failed") == 2
    assert "13800000000" not in str(state["last_error"])


@pytest.mark.parametrize(
    "reply",
    [
        None,
        {},
        {"type": "tool"},
        {"type": "guess"},
        "finish",
        {"type": "finish", "reason": "r"},
        {**finish(), "extra": 1},
    ],
)
async def test_an_unusable_reply_is_never_read_as_finish(
    company: CustomerDatabase, reply: Any
) -> None:
    planner = Scripted(reply, tool("r", user_id="user_123"), finish())
    state = await Harness(company, planner).ask("user_123 有工单吗")
    assert state["status"] == "completed"
    assert state["current_step"] == 3
    assert state["counters"]["invalid_decisions"] == 0


async def test_a_bug_in_a_node_is_an_ordinary_failed_run(
    company: CustomerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the bug: a short message with an id, the traceback in the log."""

    def broken(*args: Any) -> Any:
        raise RuntimeError("phone 13800000000")

    harness = Harness(company)
    monkeypatch.setattr("followup_agent.nodes.synthesizer.conclude", broken)
    state = await harness.ask("user_123 有工单吗")
    assert (state["status"], state["stop_reason"]) == ("failed", "internal")
    assert state["last_error"]["kind"] == "internal"
    assert "13800000000" not in state["last_error"]["message"]
    assert harness.log.errors[0][0] in state["last_error"]["message"]
    monkeypatch.undo()
    assert (await harness.ask("user_123 有工单吗"))["status"] == "completed"


async def test_a_call_is_in_the_record_though_its_file_cannot_read_the_result(
    company: CustomerDatabase,
) -> None:
    def facts(args: Any, result: Any) -> Any:
        raise KeyError("x")

    original = next(t for t in BUILT_IN if t.name == "get_open_tickets")
    state = await Harness(company, tools=[dataclasses.replace(original, facts=facts)]).ask(
        "user_123 有工单吗"
    )
    assert [call["failure_kind"] for call in state["tool_history"]] == ["internal"]
    assert state["tool_history"][0]["attempts"] == 1


@pytest.mark.parametrize(
    "error", [SystemExit(3), StopIteration(), asyncio.CancelledError(), KeyboardInterrupt()]
)
async def test_what_a_sync_tool_raises_stays_its_own(
    company: CustomerDatabase, error: BaseException
) -> None:
    """Neither the process nor the run ends, and nobody waits for the timeout."""

    def run(args: Any) -> Any:
        raise error

    state = await Harness(company, tools=[replaced("get_open_tickets", run)]).ask(
        "user_123 有工单吗"
    )
    assert [call["failure_kind"] for call in state["tool_history"]] == ["internal"]
    assert state["stop_reason"] == "finish"


async def test_a_planner_that_exits_is_a_failed_run(company: CustomerDatabase) -> None:
    def leave(state: Any) -> Any:
        raise SystemExit(3)

    state = await Harness(company, Endless(leave)).ask("user_123 要跟进吗")
    assert state["stop_reason"] == "planner_failed"


async def test_a_planner_cannot_widen_the_scope_or_clear_the_record(
    company: CustomerDatabase,
) -> None:
    """B10: it decides and touches nothing."""

    def meddle(state: Any) -> Any:
        state["parsed_goal"]["subjects"].append("user_456")
        state["tool_history"].clear()
        return tool("r", user_id="user_456")

    planner = Scripted(tool("r", user_id="user_123"), meddle, finish())
    state = await Harness(company, planner).ask("user_123 要跟进吗")
    assert [call["failure_kind"] for call in state["tool_history"]] == [None, "out_of_scope"]
    assert state["parsed_goal"]["subjects"] == ["user_123"]


async def test_an_undeclared_or_mistyped_update_names_node_and_key(
    company: CustomerDatabase,
) -> None:
    harness = Harness(company)

    async def run(args: Any, context: Any) -> Any:
        return {
            "segment": "x",
            "days_since_signup": 1,
            "open_ticket_count": 1,
            "urgent_ticket_count": 0,
            "oldest_open_ticket_days": 1,
            "urgent_ticket_ids": [],
        }

    bad = replaced(
        "get_open_tickets", run, evidence=lambda args, result, language: [_BadEvidence()]
    )
    harness = Harness(company, tools=[bad])
    state = await harness.ask("user_123 有工单吗")
    assert "'updater'" in state["last_error"]["message"]
    assert "evidence.0.confidence" in state["last_error"]["message"]
    assert isinstance(harness.log.errors[0][1], InvalidUpdate)


class _BadEvidence:
    summary = "x"
    confidence = "high"


async def test_a_hung_tool_gives_control_back_on_time(company: CustomerDatabase) -> None:
    """B19: sync and async, ten runs at once, and nobody else waits."""

    async def hang(args: Any) -> Any:
        await asyncio.sleep(30)

    def block(args: Any) -> Any:
        time.sleep(3)

    slow = [
        replaced("get_user_activity", hang, timeout_s=0.05),
        replaced("get_user_orders", block, timeout_s=0.05),
    ]
    harness = Harness(company, tools=slow)
    started = time.monotonic()
    states = await asyncio.gather(*(harness.ask("user_123 要跟进吗", f"t{n}") for n in range(10)))
    healthy = await Harness(company).ask("user_456 要跟进吗")
    assert time.monotonic() - started < 2.5
    assert {state["stop_reason"] for state in states} == {"repeated_failures"}
    assert {call["failure_kind"] for state in states for call in state["tool_history"]} == {
        "timeout"
    }
    assert healthy["status"] == "completed"


async def test_an_injected_endless_loop_ends_by_the_frameworks_limit_as_an_ordinary_result(
    company: CustomerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B28: even with our own step check taken out."""
    planner = Endless(
        lambda state: tool(
            "r", "get_user_activity", user_id="user_123", days=state["current_step"] % 365 + 1
        )
    )
    harness = Harness(company, planner, max_steps=100)
    harness.graph = harness.graph.with_config(recursion_limit=30)
    state = await harness.ask("user_123 要跟进吗")
    assert (state["status"], state["stop_reason"]) == ("failed", "recursion_limit")
    assert state["evidence"]
    assert "暂不需要重点跟进" not in state["final_answer"]


def test_the_compiled_graph_carries_a_low_limit_of_its_own(company: CustomerDatabase) -> None:
    """B28: the library's default is about ten thousand."""
    assert Harness(company).graph.config["recursion_limit"] <= 610
