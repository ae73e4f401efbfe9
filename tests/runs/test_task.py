"""Runs that want to write: nothing happens before a person has agreed to exactly that."""

import asyncio
import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from support import APPROVE, NOW, SEND, Endless, Harness, Scripted, finish, replaced, tasks, tool
from support import TASK_GOAL as GOAL

from followup_agent.customers.database import CustomerDatabase
from followup_agent.tasks.table import TaskTable
from followup_agent.tools import BUILT_IN


async def test_a_task_is_created_only_after_the_approval_and_as_shown(
    own_company: CustomerDatabase,
) -> None:
    harness = Harness(own_company)
    waiting = await harness.ask(GOAL)
    assert (waiting["status"], waiting["stop_reason"]) == ("needs_input", "approval")
    assert tasks(own_company) == []
    shown = waiting["__interrupt__"][0].value["action_requests"][0]
    done = await harness.resume(APPROVE)
    assert done["status"] == "completed"
    (row,) = tasks(own_company)
    assert row["customer_id"] == shown["args"]["user_id"] == "user_123"
    assert row["reason"] == shown["args"]["reason"]
    assert row["priority"] == shown["args"]["priority"] == "high"
    assert row["approved_by"] == "user"
    assert row["task_id"] in done["final_answer"]


async def test_the_pause_has_the_form_that_chat_clients_render(
    own_company: CustomerDatabase,
) -> None:
    """B88."""
    waiting = await Harness(own_company).ask(GOAL)
    payload = waiting["__interrupt__"][0].value
    (request,) = payload["action_requests"]
    assert set(request) == {"name", "args", "description"}
    assert "[e1]" in request["description"]
    assert payload["review_configs"] == [
        {"action_name": "send_followup_task", "allowed_decisions": ["approve", "edit", "reject"]}
    ]
    assert waiting["approval"]["args"] == request["args"]
    assert waiting["messages"][-1].type == "ai"


@pytest.mark.parametrize(
    "reply",
    [
        "不同意", "不用了", "先别发", "no, don't approve", "disapprove", "false", {"approved": "false"},
        {}, "", "ok but change the assignee", "同意吗？", "yes 不", "0", True, 1, ["approve"],
        {"decisions": []}, {"decisions": [{"type": "reject", "message": "no"}]},
        {"decisions": [{"type": "approve"}, {"type": "reject"}]},
        {"decisions": [{"type": "approve", "but": "later"}]},
    ],
)  # fmt: skip
async def test_anything_but_a_clear_approval_writes_nothing(
    company: CustomerDatabase, reply: Any
) -> None:
    """B04: a refusal is never read as an approval."""
    ran: list[Any] = []

    async def run(args: Any, context: Any) -> Any:
        ran.append(args)

    harness = Harness(company, tools=[replaced("send_followup_task", run)])
    await harness.ask(GOAL)
    state = await harness.resume(reply)
    assert ran == []
    assert state["approved"] is None
    # LangGraph takes an empty object for no answer at all: the run goes on waiting.
    assert state["status"] == "needs_input" if reply == {} else "没有创建" in state["final_answer"]


@pytest.mark.parametrize("word", ["同意", "批准", "approve", " Yes ", "ＡＰＰＲＯＶＥ", "批准。"])
async def test_the_closed_list_of_words_approves(own_company: CustomerDatabase, word: str) -> None:
    harness = Harness(own_company)
    await harness.ask(GOAL)
    await harness.resume(word)
    assert len(tasks(own_company)) == 1


async def test_a_rejection_and_its_reason_are_in_the_record_and_the_run_goes_on(
    own_company: CustomerDatabase,
) -> None:
    harness = Harness(own_company)
    await harness.ask(GOAL)
    state = await harness.resume({"decisions": [{"type": "reject", "message": "本周已联系过"}]})
    assert state["status"] == "completed"
    call = state["tool_history"][-1]
    assert (call["failure_kind"], call["attempts"]) == ("not_approved", 0)
    assert "本周已联系过" in call["result_summary"]
    assert tasks(own_company) == []


async def test_a_rejected_write_is_not_proposed_to_a_person_again(
    own_company: CustomerDatabase,
) -> None:
    again = Endless(lambda state: tool("r", "send_followup_task", **SEND))
    harness = Harness(own_company, again)
    await harness.ask(GOAL)
    state = await harness.resume({"decisions": [{"type": "reject"}]})
    assert (state["status"], state["stop_reason"]) == ("failed", "no_progress")
    assert tasks(own_company) == []


async def test_an_approval_that_comes_too_late_does_not_count(
    own_company: CustomerDatabase,
) -> None:
    now = [NOW]
    harness = Harness(own_company, clock=lambda: now[0])
    await harness.ask(GOAL)
    now[0] += timedelta(hours=25)
    state = await harness.resume(APPROVE)
    assert tasks(own_company) == []
    assert state["tool_history"][-1]["failure_kind"] == "not_approved"


async def test_a_write_for_another_customer_is_blocked_before_any_pause(
    own_company: CustomerDatabase,
) -> None:
    """B10."""
    planner = Scripted(
        tool("r", "send_followup_task", **{**SEND, "assignee": "vip_desk"}), finish("done")
    )
    harness = Harness(own_company, planner)
    state = await harness.ask("user_456 要跟进吗")
    assert "__interrupt__" not in state
    assert state["tool_history"][0]["failure_kind"] == "out_of_scope"
    assert "agent.tool.blocked" in harness.log.names()
    assert tasks(own_company) == []


async def test_a_write_with_bad_arguments_is_refused_before_any_pause(
    own_company: CustomerDatabase,
) -> None:
    planner = Scripted(
        tool("r", "send_followup_task", **{**SEND, "priority": "超高"}),
        tool("r", "send_followup_task", **SEND, extra=1),
    )
    state = await Harness(own_company, planner).ask(GOAL)
    assert {call["failure_kind"] for call in state["tool_history"]} == {"invalid_args"}
    assert "__interrupt__" not in state


async def test_a_write_without_an_answer_is_unknown_and_never_repeated(
    company: CustomerDatabase,
) -> None:
    """B02: neither 'created' nor 'not created'."""
    sends: list[str] = []

    async def slow(args: Any, context: Any) -> Any:
        sends.append(context.idempotency_key)
        await asyncio.sleep(30)

    harness = Harness(company, tools=[replaced("send_followup_task", slow, timeout_s=0.02)])
    await harness.ask(GOAL)
    state = await harness.resume(APPROVE)
    assert len(sends) == 1
    assert state["status"] == "failed"
    assert state["tool_history"][-1]["failure_kind"] == "outcome_unknown"
    assert "结果未知" in state["final_answer"]
    assert "已创建跟进任务" not in state["final_answer"]


async def test_a_task_is_proposed_only_when_needed_if_so_asked(
    own_company: CustomerDatabase,
) -> None:
    harness = Harness(own_company)
    healthy = await harness.ask("判断 user_456 要不要跟进，如果需要就创建跟进任务")
    assert healthy["status"] == "completed"
    quiet = await harness.ask("Judge user_123; if needed, create a follow-up task", "other")
    assert quiet["status"] == "needs_input"
    assert quiet["approval"]["args"]["priority"] == "high"


async def test_the_same_key_writes_once(own_company: CustomerDatabase) -> None:
    """Run again after a crash between the write and its checkpoint, the tool finds its row."""
    from followup_agent.tools.definition import ToolContext

    send = next(t for t in BUILT_IN if t.name == "send_followup_task")
    context = ToolContext(
        as_of=NOW, timezone=NOW.tzinfo, now=NOW, customers=own_company,  # type: ignore[arg-type]
        tasks=TaskTable(own_company), idempotency_key="k", approved_by="user", thread_id="t",
    )  # fmt: skip
    args = send.parse_args(SEND)
    first = await send.run(args, context)
    again = await send.run(args, context)
    elsewhere = await send.run(args, dataclasses.replace(context, thread_id="other"))
    found = await send.find(args, context)  # type: ignore[misc]
    assert first == again == found
    assert first["created"]
    assert not elsewhere["created"]
    assert first["task_id"] == elsewhere["task_id"]
    assert len(tasks(own_company)) == 1


async def test_a_write_that_nobody_approved_does_not_run_even_if_routed_there(
    own_company: CustomerDatabase,
) -> None:
    """The executor checks for itself."""
    harness = Harness(own_company, Scripted(tool("r", "send_followup_task", **SEND), finish()))
    registry = harness.context.tools.registry
    original = registry.is_write
    registry.is_write = lambda name: False  # type: ignore[method-assign]  # a planner node gone wrong
    state = await harness.ask(GOAL)
    registry.is_write = original  # type: ignore[method-assign]
    assert state["tool_history"][0]["failure_kind"] == "not_approved"
    assert tasks(own_company) == []


def test_a_write_may_not_be_declared_with_retries() -> None:
    from followup_agent.tools.definition import DefinitionError, check_definition

    send = next(t for t in BUILT_IN if t.name == "send_followup_task")
    with pytest.raises(DefinitionError, match="max_attempts=1"):
        check_definition(dataclasses.replace(send, max_attempts=2))


async def test_a_task_is_due_at_the_end_of_a_local_day(own_company: CustomerDatabase) -> None:
    """In Shanghai it is the morning of 2 March, in UTC still the evening of the 1st."""
    harness = Harness(own_company)
    await harness.ask(GOAL)
    done = await harness.resume(APPROVE)
    assert "截止 2026-03-03" in done["final_answer"]
    (row,) = tasks(own_company)
    assert row["due_at"].startswith("2026-03-03 15:59:59")
