"""An approval is a contract: over exactly what was shown, on facts that still hold, used once."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support import APPROVE, NOW, SEND, Harness, Scripted, finish, replaced, tasks, tool
from support import TASK_GOAL as GOAL

from followup_agent.customers.database import CustomerDatabase


def edit(name: str = "send_followup_task", **changes: Any) -> dict[str, Any]:
    """A chat client's edit of `SEND`."""
    action = {"name": name, "args": {**SEND, **changes}}
    return {"decisions": [{"type": "edit", "edited_action": action}]}


def change(database: CustomerDatabase, statement: str) -> None:
    """Somebody else changes the business data."""
    with database.engine.begin() as connection:
        connection.exec_driver_sql(statement)


async def test_an_edit_is_validated_and_runs_as_the_reviewer_last_saw_it(
    own_company: CustomerDatabase,
) -> None:
    """B65 (1)."""
    harness = Harness(own_company)
    await harness.ask(GOAL)
    done = await harness.resume(edit(note="先打电话", priority="medium"))
    assert done["status"] == "completed"
    (row,) = tasks(own_company)
    assert row["reason"] == "urgent ticket\n\n先打电话"
    assert row["priority"] == "medium"
    assert done["tool_history"][-1]["args"]["note"] == "先打电话"


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (edit(user_id="user_456"), "may not change the customer"),
        (edit(name="get_open_tickets"), "may not change the tool"),
        (edit(priority="超高"), "do not fit"),
        (edit(extra=1), "do not fit"),
        (edit(user_id="user_123; drop"), "do not fit"),
        ({"decisions": [{"type": "edit"}]}, "needs the arguments"),
        ({"decisions": [{"type": "edit", "edited_action": {"name": "send_followup_task", "args": "x"}}]}, "needs the arguments"),
    ],
)  # fmt: skip
async def test_an_edit_that_goes_too_far_is_asked_again_and_says_why(
    own_company: CustomerDatabase, reply: Any, said: str
) -> None:
    """B65 (2) to (5): nothing runs, the write still waits as it was shown."""
    harness = Harness(own_company)
    first = await harness.ask(GOAL)
    again = await harness.resume(reply)
    assert tasks(own_company) == []
    assert again["status"] == "needs_input"
    assert again["approval"]["args"] == first["approval"]["args"]
    assert again["approval"]["digest"] == first["approval"]["digest"]
    assert said in again["approval"]["remarks"][0]
    payload = again["__interrupt__"][0].value
    assert said in payload["action_requests"][0]["description"]
    done = await harness.resume(APPROVE)
    assert done["status"] == "completed"
    assert len(tasks(own_company)) == 1


CLOSED = "UPDATE tickets SET closed_at = '2026-03-01 22:00:00.000' WHERE customer_id = 'user_123'"


async def test_a_fact_that_changed_makes_the_approval_void_and_shows_the_difference(
    own_company: CustomerDatabase,
) -> None:
    harness = Harness(own_company)
    first = await harness.ask(GOAL)
    change(own_company, CLOSED)
    again = await harness.resume(APPROVE)
    assert tasks(own_company) == []
    assert again["status"] == "needs_input"
    assert "urgent_ticket_count: 1 → 0" in again["approval"]["remarks"]
    assert again["approval"]["id"] != first["approval"]["id"]
    assert again["approval"]["digest"] != first["approval"]["digest"]
    assert again["facts"]["user_123"]["urgent_ticket_count"]["value"] == 0
    assert "urgent_ticket_count: 1 → 0" in str(again["__interrupt__"][0].value)
    assert "agent.tool.blocked" in harness.log.names()
    done = await harness.resume(APPROVE)
    assert done["status"] == "completed"
    assert len(tasks(own_company)) == 1
    assert "紧急 1 个" not in done["final_answer"]


async def test_what_was_read_again_is_in_the_record(own_company: CustomerDatabase) -> None:
    harness = Harness(own_company)
    await harness.ask(GOAL)
    change(own_company, CLOSED)
    again = await harness.resume(APPROVE)
    ids = [call["call_id"] for call in again["tool_history"]]
    assert ids == [f"c{n}" for n in range(1, len(ids) + 1)]
    assert len({item["id"] for item in again["evidence"]}) == len(again["evidence"])
    for facts in again["facts"].values():
        for fact in facts.values():
            assert fact["call_id"] in ids


async def test_a_ticket_that_was_closed_after_the_question_counts(
    own_company: CustomerDatabase,
) -> None:
    """What is read again is read as of now, not as of when the run began."""
    now = [NOW]
    harness = Harness(own_company, clock=lambda: now[0])
    await harness.ask(GOAL)
    change(
        own_company, CLOSED.replace("2026-03-01 22", "2026-03-01 23").replace(":00:00.", ":45:00.")
    )
    now[0] += timedelta(minutes=20)
    again = await harness.resume(APPROVE)
    assert "urgent_ticket_count: 1 → 0" in again["approval"]["remarks"]


async def test_days_that_merely_passed_void_nothing(own_company: CustomerDatabase) -> None:
    """`days_since_last_active` grows by itself; when it was is what counts."""
    now = [NOW]
    harness = Harness(own_company, clock=lambda: now[0])
    await harness.ask(GOAL)
    now[0] += timedelta(hours=20)
    done = await harness.resume(APPROVE)
    assert done["status"] == "completed"
    assert len(tasks(own_company)) == 1


async def test_a_run_about_the_past_is_confirmed_as_of_then(own_company: CustomerDatabase) -> None:
    from dataclasses import asdict

    from followup_agent.graph.context import RunOptions

    now = [datetime(2026, 3, 20, tzinfo=UTC)]
    harness = Harness(own_company, clock=lambda: now[0])
    change(own_company, CLOSED.replace("2026-03-01 22", "2026-03-10 22"))
    options = RunOptions(as_of=NOW.isoformat())
    graph_input = {"user_goal": GOAL}
    await harness.graph.ainvoke(graph_input, harness.config(), context=options)  # type: ignore[call-overload]
    done = await harness.resume(APPROVE)
    assert asdict(options)["as_of"]
    assert done["status"] == "completed"


async def test_facts_that_cannot_be_read_again_do_not_let_the_write_through(
    own_company: CustomerDatabase,
) -> None:
    broken = [False]

    async def tickets(args: Any, context: Any) -> Any:
        if broken[0]:
            raise ConnectionRefusedError
        from followup_agent.tools.get_open_tickets import run

        return await run(args, context)

    harness = Harness(own_company, tools=[replaced("get_open_tickets", tickets)])
    await harness.ask(GOAL)
    broken[0] = True
    again = await harness.resume(APPROVE)
    assert again["approval"]["remarks"] == [
        "get_open_tickets: could not be read again (unavailable)"
    ]
    assert tasks(own_company) == []
    broken[0] = False
    assert (await harness.resume(APPROVE))["status"] == "completed"


async def test_only_the_named_approver_may_approve(own_company: CustomerDatabase) -> None:
    harness = Harness(own_company, approver="boss")
    first = await harness.ask(GOAL)
    assert first["approval"]["approver"] == "boss"
    state = await harness.resume(APPROVE)
    assert tasks(own_company) == []
    assert "boss" in state["tool_history"][-1]["result_summary"]


async def test_a_second_approval_is_not_the_first_ones(own_company: CustomerDatabase) -> None:
    """Single use: another write in the same run is asked for by itself."""
    planner = Scripted(
        tool("r", "send_followup_task", **SEND),
        tool("r", "send_followup_task", **{**SEND, "priority": "low"}),
        finish(),
    )
    harness = Harness(own_company, planner)
    first = await harness.ask(GOAL)
    second = await harness.resume(APPROVE)
    assert second["status"] == "needs_input"
    assert second["approval"]["id"] != first["approval"]["id"]
    assert second["approved"] is None


async def test_two_runs_that_come_to_the_same_action_make_one_task(
    own_company: CustomerDatabase,
) -> None:
    """The key is the action's identity, not a call's: other words for it are the same action."""
    harness = Harness(own_company)
    await harness.ask(GOAL, "one")
    await harness.ask("Create a follow-up task for user_123", "two")
    first = await harness.resume(APPROVE, "one")
    second = await harness.resume(APPROVE, "two")
    assert len(tasks(own_company)) == 1
    assert "已创建跟进任务" in first["final_answer"]
    assert "created before" in second["final_answer"]


async def test_the_next_day_is_another_action(own_company: CustomerDatabase) -> None:
    now = [NOW]
    harness = Harness(own_company, clock=lambda: now[0])
    await harness.ask(GOAL, "one")
    await harness.resume(APPROVE, "one")
    now[0] += timedelta(days=1)
    await harness.ask(GOAL, "two")
    await harness.resume(APPROVE, "two")
    assert len(tasks(own_company)) == 2


async def test_a_tool_that_can_be_asked_settles_a_lost_answer(
    own_company: CustomerDatabase,
) -> None:
    """The answer of the write was lost, the effect was not: downstream says so."""
    from followup_agent.tools.send_followup_task import run

    async def slow(args: Any, context: Any) -> Any:
        await run(args, context)
        await asyncio.sleep(30)

    harness = Harness(own_company, tools=[replaced("send_followup_task", slow, timeout_s=0.3)])
    await harness.ask(GOAL)
    done = await harness.resume(APPROVE)
    assert done["status"] == "completed"
    assert "已创建跟进任务" in done["final_answer"]
    assert len(tasks(own_company)) == 1


async def test_a_tool_that_cannot_be_asked_is_never_run_again_blindly(
    own_company: CustomerDatabase,
) -> None:
    """B02: neither by a second run, which is stopped for a person."""
    sends: list[str] = []

    async def slow(args: Any, context: Any) -> Any:
        sends.append(context.idempotency_key)
        await asyncio.sleep(30)

    lost = replaced("send_followup_task", slow, timeout_s=0.02, find=None)
    harness = Harness(own_company, tools=[lost])
    for thread in ("one", "two"):
        await harness.ask(GOAL, thread)
        state = await harness.resume(APPROVE, thread)
        assert state["status"] == "failed"
        assert state["last_error"]["kind"] == "outcome_unknown"
        assert "结果未知" in state["final_answer"]
    assert len(sends) == 1


async def test_a_refusal_leaves_the_action_free_to_be_tried_again(
    own_company: CustomerDatabase,
) -> None:
    from followup_agent.tools.definition import ToolRefused
    from followup_agent.tools.send_followup_task import run

    refuses = [True]

    async def moody(args: Any, context: Any) -> Any:
        if refuses[0]:
            raise ToolRefused("closed today")
        return await run(args, context)

    harness = Harness(own_company, tools=[replaced("send_followup_task", moody, find=None)])
    await harness.ask(GOAL, "one")
    first = await harness.resume(APPROVE, "one")
    assert first["tool_history"][-1]["failure_kind"] == "refused"
    refuses[0] = False
    await harness.ask(GOAL, "two")
    assert (await harness.resume(APPROVE, "two"))["status"] == "completed"
    assert len(tasks(own_company)) == 1


async def test_a_foreign_write_is_once_per_arguments(own_company: CustomerDatabase) -> None:
    """Two notes are two actions; the same note twice is one."""
    from pydantic import BaseModel, ConfigDict, Field

    from followup_agent.tools.definition import ToolDefinition

    class Args(BaseModel):
        model_config = ConfigDict(extra="forbid")
        user_id: str = Field(description="Customer.")
        text: str = Field(description="The note.")

    class Result(BaseModel):
        note_id: int

    notes: list[str] = []

    def add(args: Args) -> Result:
        notes.append(args.text)
        return Result(note_id=len(notes))

    note = ToolDefinition(
        name="add_note", description="Add a note to a customer.", args=Args, result=Result,
        run=add, effect="write", max_attempts=1,
    )  # fmt: skip

    def planner(text: str) -> Scripted:
        return Scripted(tool("r", "add_note", user_id="user_123", text=text), finish())

    ledger = None
    for thread, text in (("one", "a"), ("two", "b"), ("three", "a")):
        harness = Harness(own_company, planner(text), tools=[note], ledger=ledger)
        ledger = harness.context.ledger
        await harness.ask("user_123 要跟进吗", thread)
        state = await harness.resume(APPROVE, thread)
        assert state["tool_history"][-1]["success"]
    assert notes == ["a", "b"]
    assert state["tool_history"][-1]["attempts"] == 0


async def test_both_pauses_carry_the_schema_of_their_answer(own_company: CustomerDatabase) -> None:
    harness = Harness(own_company)
    await harness.ask("要跟进吗", "q")
    await harness.ask(GOAL, "a")
    for thread, kind in (("q", "string"), ("a", "object")):
        state = await harness.graph.aget_state(harness.config(thread))  # type: ignore[arg-type]
        (pause,) = state.interrupts
        assert pause.response_schema["type"] == kind  # type: ignore[index]


async def test_a_task_that_another_run_made_and_somebody_removed_is_not_made_again(
    own_company: CustomerDatabase,
) -> None:
    harness = Harness(own_company)
    await harness.ask(GOAL, "one")
    await harness.ask(GOAL, "two")
    await harness.resume(APPROVE, "one")
    change(own_company, "DELETE FROM followup_tasks")
    state = await harness.resume(APPROVE, "two")
    assert tasks(own_company) == []
    call = state["tool_history"][-1]
    assert (call["failure_kind"], call["success"]) == ("refused", False)
    assert "by thread one" in call["result_summary"]
    assert "已创建跟进任务" not in state["final_answer"]


async def test_a_fact_that_is_no_longer_there_is_a_difference_too(
    own_company: CustomerDatabase,
) -> None:
    """A tool of one's own may leave out what it does not know."""
    from pydantic import Field

    from followup_agent.tools.definition import ToolArgs, ToolDefinition, ToolResult
    from followup_agent.tools.outcome import FactDraft

    class Args(ToolArgs):
        user_id: str = Field(description="Customer.")

    class Result(ToolResult):
        score: int | None

    known = [71]
    health = ToolDefinition(
        name="get_health_score", description="The health score of a customer.", args=Args,
        result=Result, run=lambda args: Result(score=known[0] if known else None), effect="read",
        facts=lambda args, r: {} if r.score is None else {"health_score": FactDraft(r.score, "points")},
    )  # fmt: skip
    planner = Scripted(
        tool("r", "get_health_score", user_id="user_123"),
        tool("r", "send_followup_task", **SEND),
        finish(),
    )
    harness = Harness(own_company, planner, tools=[health])
    await harness.ask(GOAL)
    known.clear()
    again = await harness.resume(APPROVE)
    assert again["status"] == "needs_input"
    assert again["approval"]["remarks"] == ["health_score: 71 → ?"]


async def test_an_edit_that_is_asked_again_is_told_as_a_pause(
    own_company: CustomerDatabase,
) -> None:
    harness = Harness(own_company)
    await harness.ask(GOAL)
    await harness.resume(edit(user_id="user_456"))
    names = [name for name in harness.log.names() if name in ("agent.interrupted", "agent.resumed")]
    assert names == ["agent.interrupted", "agent.resumed", "agent.interrupted"]
