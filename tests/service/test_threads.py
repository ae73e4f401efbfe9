"""Threads over time: resumed, forked, exported, pruned, refused, drained."""

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support import NOW, Endless, Scripted, ask, fill, finish, read_log, tool

from followup_agent import (
    DecisionMade,
    FollowupAgent,
    IncompatibleThread,
    InvalidOption,
    NotWaiting,
    NotYours,
    Run,
    ShuttingDown,
    StorageError,
    ThreadBusy,
    ToolCalled,
    UnknownThread,
)
from followup_agent.state import GRAPH_VERSION

pytestmark = pytest.mark.slow  # each opens real databases, several times over

TASK = "给 user_123 建一个跟进任务"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home with the known customers."""
    fill(tmp_path / "customers.db").close()
    return tmp_path


def rows(home: Path, table: str = "followup_tasks", database: str = "customers.db") -> list[Any]:
    """The rows of a table; none when it is not there."""
    with sqlite3.connect(home / database) as connection:
        found = connection.execute(f"SELECT * FROM {table}").fetchall()
    connection.close()
    return found


async def leave_after(
    agent: FollowupAgent, kind: type, goal: str = TASK, thread: str = "t"
) -> None:
    """Ask, and leave in the middle."""
    async with aclosing(agent.astream(goal, thread_id=thread)) as events:
        async for event in events:
            if isinstance(event, kind):
                return


async def test_a_run_that_was_left_goes_on_where_it_was(home: Path) -> None:
    async with FollowupAgent.aopen(home=home, clock=lambda: NOW) as agent:
        whole = await agent.aask("user_123 要跟进吗", thread_id="whole")
        await leave_after(agent, ToolCalled, "user_123 要跟进吗")
        assert await agent.acut_off() == ["t"]
        done = await agent.aresume("t")
        assert await agent.acut_off() == []
    assert (done.status, done.answer, done.current_step) == ("completed", whole.answer, 4)
    steps = [
        event["step"]
        for event in read_log(home / "logs" / "followup.jsonl")
        if event["sessionId"] == "t" and event["eventName"] == "agent.decision.made"
    ]
    assert steps == [1, 2, 3, 4]


async def test_resume_is_for_runs_that_were_cut_off(home: Path) -> None:
    async with FollowupAgent.aopen(home=home, clock=lambda: NOW) as agent:
        await agent.aask("user_123 要跟进吗", thread_id="done")
        await agent.aask("要跟进吗", thread_id="asks")
        with pytest.raises(UnknownThread):
            await agent.aresume("never")
        with pytest.raises(NotWaiting, match="has ended"):
            await agent.aresume("done")
        with pytest.raises(NotWaiting, match="waits for an answer"):
            await agent.aresume("asks")


async def test_an_answer_or_a_first_approval_is_no_resume(home: Path) -> None:
    async with FollowupAgent.aopen(home=home, clock=lambda: NOW) as agent:
        await leave_after(agent, ToolCalled)
        for call in (agent.aanswer("t", "user_123"), agent.aapprove("t"), agent.areject("t")):
            with pytest.raises(NotWaiting, match="followup resume t"):
                await call
        assert (await agent.aresume("t")).waiting_for == "approval"


async def test_an_answer_may_name_its_question_and_a_decision_its_approval(home: Path) -> None:
    """B13, B21: what is answered is what the person has seen."""
    planner = Scripted(ask("A?"), ask("B?"), tool("r", user_id="user_123"), finish())
    async with FollowupAgent.aopen(home=home, clock=lambda: NOW, planner_object=planner) as agent:
        run = await agent.aask("user_123 有工单吗", thread_id="t")
        assert run.pending_questions[0]["id"] == "q1"
        run = await agent.aanswer("t", "x", question_id="q1")
        with pytest.raises(NotWaiting, match="no longer waits for 'q1' but for q2"):
            await agent.aanswer("t", "x", question_id="q1")
        assert (await agent.aanswer("t", "y", question_id="q2")).status == "completed"
    async with FollowupAgent.aopen(home=home, clock=lambda: NOW) as agent:
        await agent.aask(TASK, thread_id="w")
        with pytest.raises(NotWaiting, match="'a9'"):
            await agent.aapprove("w", approval_id="a9")
        with pytest.raises(NotWaiting, match="'a9'"):
            await agent.areject("w", approval_id="a9")
        assert rows(home, "sqlite_master") is not None
        assert (await agent.aapprove("w", approval_id="a1")).status == "completed"


def test_an_edit_names_only_what_changes(home: Path) -> None:
    with FollowupAgent.open(home=home, clock=lambda: NOW) as agent:
        waiting = agent.ask(TASK, thread_id="t")
        for wrong, said in [
            ({"user_id": "user_456"}, "may not change the customer"),
            ({"priority": "超高"}, "do not fit"),
            ({"extra": 1}, "do not fit"),
            ({"reason": None}, "do not fit"),
        ]:
            with pytest.raises(InvalidOption, match=said):
                agent.approve("t", edit=wrong)
            assert agent.get("t") == waiting
        with pytest.raises(InvalidOption):
            agent.approve("t", edit=[1])  # type: ignore[arg-type]
        done = agent.approve("t", edit={"note": "先电话", "priority": "low"})
    assert done.tool_history[-1]["args"] == {
        **waiting.approval["args"], "note": "先电话", "priority": "low",  # type: ignore[index]
    }  # fmt: skip
    assert len(rows(home)) == 1


def test_only_the_named_approver_may_approve_and_the_write_waits_on(home: Path) -> None:
    options: dict[str, Any] = {"home": home, "clock": lambda: NOW, "approver": "boss"}
    with FollowupAgent.open(**options, user="ann") as agent:
        agent.ask(TASK, thread_id="t")
        with pytest.raises(NotYours, match="boss"):
            agent.approve("t")
        assert agent.get("t").waiting_for == "approval"
    with FollowupAgent.open(**options, user="boss") as agent:
        assert agent.approve("t").status == "completed"
    assert rows(home)[0][9] == "boss"


def test_a_double_approval_is_refused_and_is_no_second_success(home: Path) -> None:
    """B03, one after the other."""
    with FollowupAgent.open(home=home, clock=lambda: NOW) as agent:
        agent.ask(TASK, thread_id="t")
        agent.approve("t")
        for again in (agent.approve, agent.reject):
            with pytest.raises(NotWaiting):
                again("t")
    assert len(rows(home)) == 1


def test_a_fork_has_the_past_and_no_approval_of_it(home: Path) -> None:
    with FollowupAgent.open(home=home, clock=lambda: NOW) as agent:
        original = agent.ask(TASK, thread_id="t")
        fork = agent.fork("t", 3)
        assert fork.status == "running"
        assert fork.thread_id != "t"
        assert fork.run_id != original.run_id
        assert [c["call_id"] for c in fork.tool_history] == ["c1", "c2", "c3"]
        assert fork.facts == original.facts
        assert fork.approval is None
        waits = agent.resume(fork.thread_id)
        assert waits.waiting_for == "approval"
        assert agent.get("t") == original
        assert rows(home, "followup_effects", "runs.db") == []
        assert agent.approve("t").status == "completed"
        done = agent.approve(fork.thread_id)
    assert len(rows(home)) == 1
    assert "此前已创建" in str(done.answer)


def test_a_fork_after_a_write_claims_no_part_in_it(home: Path) -> None:
    planner = Endless(
        lambda state: {
            0: tool("r", user_id="user_123"),
            1: tool("r", "send_followup_task", user_id="user_123", reason="x", priority="low", due_in_days=1),
            2: tool("r", "get_user_orders", user_id="user_123", days=7),
        }.get(state["current_step"], finish())
    )  # fmt: skip
    with FollowupAgent.open(home=home, clock=lambda: NOW, planner_object=planner) as agent:
        agent.ask("user_123 有工单吗", thread_id="t")
        done = agent.approve("t")
        assert any(c["tool_name"] == "send_followup_task" for c in done.tool_history)
        fork = agent.fork("t", 3)
        assert [c["tool_name"] for c in fork.tool_history] == [
            "get_open_tickets",
            "get_user_orders",
        ]
        assert not any(e["source"] == "send_followup_task" for e in fork.evidence)
        assert "followup_task_id" not in fork.facts["user_123"]
        end = agent.resume(fork.thread_id)
    assert "已创建" not in str(end.answer)


def test_a_fork_may_be_edited_and_a_wrong_edit_or_step_is_named(home: Path) -> None:
    with FollowupAgent.open(home=home, clock=lambda: NOW) as agent:
        run = agent.ask("user_123 要跟进吗", thread_id="t")
        facts = json.loads(json.dumps(run.facts))
        facts["user_123"]["urgent_ticket_count"]["value"] = 0
        fork = agent.fork("t", 3, edit={"facts": facts, "max_steps": 20})
        assert fork.max_steps == 20
        assert agent.resume(fork.thread_id).verdict["score"] < run.verdict["score"]  # type: ignore[index]
        assert agent.resume(agent.fork("t", 0).thread_id).answer == run.answer
        for edit in ({"approved": None}, {"max_steps": "x"}, {"facts": {"user_123": 1}}):
            with pytest.raises(InvalidOption, match="does not fit"):
                agent.fork("t", 3, edit=edit)
        with pytest.raises(InvalidOption, match="there are: 0, 1, 2, 3"):
            agent.fork("t", 9)
        with pytest.raises(UnknownThread):
            agent.fork("never", 0)
        assert len(agent.threads()) == 3


def test_checkpoints_are_listed_in_order(home: Path) -> None:
    with FollowupAgent.open(home=home, clock=lambda: NOW) as agent:
        agent.ask(TASK, thread_id="t")
        points = agent.checkpoints("t")
    assert [point.superstep for point in points] == list(range(-1, len(points) - 1))
    assert points[-1].waits
    assert points[-1].next == ["await_approval"]


def test_old_threads_are_forgotten_but_never_one_that_waits(home: Path) -> None:
    """B44."""
    now = [NOW]
    with FollowupAgent.open(home=home, clock=lambda: now[0]) as agent:
        agent.ask("user_123 要跟进吗", thread_id="old")
        agent.ask("要跟进吗", thread_id="asks")
        agent.ask(TASK, thread_id="waits")
        agent.ask(TASK, thread_id="wrote")
        agent.approve("wrote")
        agent._call(lambda: leave_after(agent, DecisionMade, thread="cut"))
        now[0] += timedelta(days=40)
        agent.ask("user_456 要跟进吗", thread_id="new")
        assert sorted(agent.prune(timedelta(days=30))) == ["old", "wrote"]
        assert {e.thread_id for e in agent.threads()} == {"asks", "waits", "cut", "new"}
        with pytest.raises(UnknownThread):
            agent.get("old")
        assert agent.answer("asks", "user_456").status == "completed"
        assert agent.resume("cut").waiting_for == "approval"
    assert len(rows(home, "followup_effects", "runs.db")) == 1
    with sqlite3.connect(home / "runs.db") as connection:
        left = {r[0] for r in connection.execute("SELECT DISTINCT thread_id FROM checkpoints")}
    connection.close()
    assert left == {"asks", "waits", "cut", "new"}


def test_a_thread_is_exported_whole(home: Path) -> None:
    with FollowupAgent.open(home=home, clock=lambda: NOW) as agent:
        agent.ask(TASK, thread_id="t")
        agent.approve("t")
        document = json.loads(json.dumps(agent.export("t")))
    assert document["status"] == "completed"
    assert len(document["timeline"]) == 5
    (effect,) = document["effects"]
    assert effect["state"] == "done"
    assert effect["result"]["task_id"] in document["answer"]


def test_a_thread_of_another_version_is_refused_and_left_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FollowupAgent.open(home=home, clock=lambda: NOW) as agent:
        agent.ask("要跟进吗", thread_id="t")
    import followup_agent.graph.step as step

    monkeypatch.setattr(step, "GRAPH_VERSION", "99")
    with FollowupAgent.open(home=home, clock=lambda: NOW) as agent:
        for call in (
            lambda: agent.answer("t", "user_123"),
            lambda: agent.ask("user_123 要跟进吗", thread_id="t"),
            lambda: agent.resume("t"),
            lambda: agent.cancel("t"),
            lambda: agent.get("t"),
            lambda: agent.fork("t", 0),
        ):
            with pytest.raises(IncompatibleThread, match=f"version {GRAPH_VERSION} of the graph"):
                call()
    monkeypatch.undo()
    with FollowupAgent.open(home=home, clock=lambda: NOW) as agent:
        assert agent.answer("t", "user_123").status == "completed"


async def test_a_draining_agent_ends_the_step_and_takes_nothing_new(home: Path) -> None:
    planner = Endless(lambda state: tool("r", user_id="user_123", tool_name="get_open_tickets"))
    async with FollowupAgent.aopen(home=home, clock=lambda: NOW) as agent:
        whole = await agent.aask("user_123 要跟进吗", thread_id="whole")
    assert planner.seen == []
    async with FollowupAgent.aopen(home=home, clock=lambda: NOW) as agent:
        async with aclosing(agent.astream("user_123 要跟进吗", thread_id="t")) as events:
            seen = []
            async for event in events:
                seen.append(event)
                if isinstance(event, ToolCalled):
                    agent.drain()
        stopped = seen[-1].run  # type: ignore[union-attr]
        assert stopped.status == "running"
        with pytest.raises(ShuttingDown):
            await agent.aask("user_456 要跟进吗")
        await agent.adrain()
    async with FollowupAgent.aopen(home=home, clock=lambda: NOW) as agent:
        done = await agent.aresume("t")
    assert done.answer == whole.answer


async def test_closing_waits_for_the_current_steps_of_all_runs(home: Path) -> None:
    async with FollowupAgent.aopen(home=home, clock=lambda: NOW) as agent:
        runs = [
            asyncio.create_task(agent.aask(f"user_{n} 要跟进吗", thread_id=n))
            for n in ("123", "456")
        ]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    ended = await asyncio.gather(*runs, return_exceptions=True)
    async with FollowupAgent.aopen(home=home, clock=lambda: NOW) as agent:
        for run in ended:
            if isinstance(run, ShuttingDown):  # it had not begun
                continue
            assert isinstance(run, Run)
            if run.status == "running":
                run = await agent.aresume(run.thread_id)
            assert run.status == "completed"


async def test_a_cancelled_caller_leaves_the_thread_free(home: Path) -> None:
    async with FollowupAgent.aopen(home=home, clock=lambda: NOW) as agent:
        for delay in range(0, 12, 3):
            thread = f"t{delay}"
            call = asyncio.create_task(agent.aask("user_123 要跟进吗", thread_id=thread))
            for _ in range(delay * 3):
                await asyncio.sleep(0)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            with_thread = await agent.aask("user_123 要跟进吗", thread_id=thread)
            assert with_thread.status == "completed"


async def test_the_loser_of_two_at_once_is_told_busy_across_agents(home: Path) -> None:
    """B03: two agents on one file, as two processes are."""
    async with (
        FollowupAgent.aopen(home=home, clock=lambda: NOW) as one,
        FollowupAgent.aopen(home=home, clock=lambda: NOW) as two,
    ):
        await one.aask(TASK, thread_id="t")
        ended = await asyncio.gather(one.aapprove("t"), two.aapprove("t"), return_exceptions=True)
    winners = [run for run in ended if not isinstance(run, BaseException)]
    losers = [error for error in ended if isinstance(error, BaseException)]
    assert len(winners) == len(losers) == 1
    assert isinstance(losers[0], ThreadBusy | NotWaiting)
    assert len(rows(home)) == 1


async def test_a_writer_that_was_overtaken_writes_nothing_more(home: Path) -> None:
    """The checkpoint itself is refused, in the database."""
    from followup_agent import LeaseLost

    async with FollowupAgent.aopen(home=home, clock=lambda: NOW) as agent:
        with pytest.raises(LeaseLost, match="taken over"):  # noqa: PT012
            async with aclosing(agent.astream("user_123 要跟进吗", thread_id="t")) as events:
                async for event in events:
                    if isinstance(event, ToolCalled):
                        with sqlite3.connect(home / "runs.db") as other:
                            other.execute("UPDATE followup_leases SET fence = fence + 1")
                            before = other.execute("SELECT count(*) FROM checkpoints").fetchone()
                        other.close()
    after = rows(home, "checkpoints", "runs.db")
    assert len(after) <= before[0] + 1  # the step that was being stored at that moment
    async with FollowupAgent.aopen(home=home, clock=lambda: NOW) as agent:
        with sqlite3.connect(home / "runs.db") as other:
            other.execute("DELETE FROM followup_leases")
        other.close()
        assert (await agent.aresume("t")).status == "completed"


def test_a_damaged_checkpoint_is_said_so_and_harms_no_other_thread(home: Path) -> None:
    with FollowupAgent.open(home=home, clock=lambda: NOW) as agent:
        agent.ask("要跟进吗", thread_id="bad")
        agent.ask("要跟进吗", thread_id="good")
    with sqlite3.connect(home / "runs.db") as connection:
        connection.execute("UPDATE checkpoints SET checkpoint = x'c1ff00' WHERE thread_id = 'bad'")
    connection.close()
    with FollowupAgent.open(home=home, clock=lambda: NOW) as agent:
        for call in (
            lambda: agent.get("bad"),
            lambda: agent.answer("bad", "user_123"),
            lambda: agent.ask("user_123 要跟进吗", thread_id="bad"),
            lambda: agent.cancel("bad"),
        ):
            with pytest.raises(StorageError, match="cannot be read"):
                call()
        assert agent.answer("good", "user_123").status == "completed"
        assert len(agent.threads()) == 2


def test_a_runs_database_locked_for_too_long_is_said_and_the_run_goes_on_later(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import followup_agent.graph.checkpoints as checkpoints
    import followup_agent.runs.database as database

    for module in (checkpoints, database):
        monkeypatch.setattr(module, "WAIT_FOR_LOCK_S", 0.2)
    with FollowupAgent.open(home=home, clock=lambda: NOW) as agent:
        agent.ask(TASK, thread_id="t")
        other = sqlite3.connect(home / "runs.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match=r"locked.*followup resume"):
            agent.approve("t")
        other.execute("ROLLBACK")
        other.close()
        assert agent.approve("t").status == "completed"
    assert len(rows(home)) == 1


def test_a_ledger_that_fails_in_the_middle_lets_the_run_go_on_later(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The intent could not be written, so nothing was sent; the node is run again, not its error."""
    from sqlalchemy.exc import OperationalError

    from followup_agent.runs.ledger import SqlLedger

    begin = SqlLedger._begin
    fails = [True]

    def moody(self: SqlLedger, intent: Any) -> Any:
        if fails[0]:
            raise OperationalError("INSERT", {}, Exception("disk is full"))
        return begin(self, intent)

    monkeypatch.setattr(SqlLedger, "_begin", moody)
    with FollowupAgent.open(home=home, clock=lambda: NOW) as agent:
        agent.ask(TASK, thread_id="t")
        with pytest.raises(StorageError, match="disk is full"):
            agent.approve("t")
        fails[0] = False
        done = agent.approve("t")
    assert done.status == "completed"
    assert len(rows(home)) == 1


async def test_the_list_is_put_right_after_a_process_died_before_it_could(home: Path) -> None:
    """Killed between the last checkpoint and the list: it says running, and resume says what is."""
    async with FollowupAgent.aopen(home=home, clock=lambda: NOW) as agent:
        await agent.aask("user_123 要跟进吗", thread_id="done")
        await agent.aask("要跟进吗", thread_id="asks")
        with sqlite3.connect(home / "runs.db") as other:
            other.execute("UPDATE followup_threads SET status = 'running', waiting_for = NULL")
        other.close()
        assert sorted(await agent.acut_off()) == ["asks", "done"]
        for thread in ("done", "asks"):
            with pytest.raises(NotWaiting):
                await agent.aresume(thread)
        assert await agent.acut_off() == []
        listed = {entry.thread_id: entry for entry in await agent.athreads()}
    assert listed["done"].status == "completed"
    assert listed["asks"].waiting_for == "answer"


@pytest.mark.parametrize("nothing", [None, {}, "", [], "   ", "\n", 0, False])
def test_no_answer_leaves_the_question_open_under_the_same_id(home: Path, nothing: Any) -> None:
    """B42: nothing of it reaches the library."""
    from followup_agent import NoAnswer

    with FollowupAgent.open(home=home, clock=lambda: NOW) as agent:
        asked = agent.ask("要跟进吗", thread_id="t")
        before = len(agent.checkpoints("t"))
        with pytest.raises(NoAnswer, match="no answer given"):
            agent.answer("t", nothing)
        assert agent.get("t") == asked
        assert len(agent.checkpoints("t")) == before


def test_one_agent_serves_many_threads_of_a_program(home: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with FollowupAgent.open(home=home, clock=lambda: NOW) as agent, ThreadPoolExecutor(8) as pool:
        ids = ["user_123", "user_456", "user_789"] * 4
        runs = list(pool.map(lambda i: agent.ask(f"{i} 要跟进吗"), ids))
    assert [list(run.facts) for run in runs] == [[i] for i in ids]
    assert {run.status for run in runs} == {"completed"}


async def test_what_is_stored_is_on_the_disk_before_it_counts(home: Path) -> None:
    """WAL with synchronous=FULL (2), on both connections: what survives a power cut is stated."""
    async with FollowupAgent.aopen(home=home, clock=lambda: NOW) as agent:
        with agent._runs.reading() as connection:
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        saver = agent._writer.graph.checkpointer
        async with saver.conn.execute("PRAGMA synchronous") as cursor:  # type: ignore[union-attr]
            assert (await cursor.fetchone())[0] == 2


def test_a_stream_that_nobody_reads_on_holds_up_no_closing(home: Path) -> None:
    with FollowupAgent.open(home=home, clock=lambda: NOW) as agent:
        events = agent.stream("user_123 要跟进吗", thread_id="t")
        next(events)
    with FollowupAgent.open(home=home, clock=lambda: NOW) as agent:
        assert agent.resume("t").status == "completed"
    events.close()  # late: the agent is gone, and the thread long free


async def test_a_stream_left_open_holds_up_no_closing_either(home: Path) -> None:
    async with FollowupAgent.aopen(home=home, clock=lambda: NOW) as agent:
        events = agent.astream("user_123 要跟进吗", thread_id="t")
        await anext(events)
    await events.aclose()
    async with FollowupAgent.aopen(home=home, clock=lambda: NOW) as agent:
        assert (await agent.aresume("t")).status == "completed"


async def test_more_runs_at_once_than_connections_wait_for_each_other(home: Path) -> None:
    """B31, B94: none fails because of our own burst."""
    async with FollowupAgent.aopen(home=home, clock=lambda: NOW) as agent:
        runs = await asyncio.gather(
            *(agent.aask("user_123 要跟进吗", max_steps=1) for _ in range(120)),
            return_exceptions=True,
        )
    assert {type(run).__name__ for run in runs} == {"Run"}


def test_a_refused_call_changes_nothing_on_the_list(home: Path) -> None:
    """B13: no side effect, not even the time."""
    now = [NOW]
    with FollowupAgent.open(home=home, clock=lambda: now[0]) as agent:
        agent.ask("user_123 要跟进吗", thread_id="done")
        agent.ask("要跟进吗", thread_id="asks")
        before = agent.threads()
        now[0] += timedelta(days=1)
        for call in (
            lambda: agent.approve("done"),
            lambda: agent.cancel("done"),
            lambda: agent.resume("done"),
            lambda: agent.approve("asks"),
            lambda: agent.resume("asks"),
        ):
            with pytest.raises(NotWaiting):
                call()
        assert agent.threads() == before


def test_a_thread_that_is_used_again_while_old_ones_are_forgotten_stays(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between looking for old threads and forgetting one, somebody asks on it."""
    from followup_agent.runs.index import ThreadIndex

    now = [NOW]
    with FollowupAgent.open(home=home, clock=lambda: now[0]) as agent:
        agent.ask("user_123 要跟进吗", thread_id="t")
        now[0] += timedelta(days=40)
        look = ThreadIndex.finished_before
        old = look(agent._writer.index, NOW + timedelta(days=1))
        agent.ask(TASK, thread_id="t")
        first = [True]

        def looked_before(self: ThreadIndex, *arguments: Any) -> Any:
            if first.pop() if first else False:
                return old
            return look(self, *arguments)

        monkeypatch.setattr(ThreadIndex, "finished_before", looked_before)
        assert agent.prune(timedelta(days=30)) == []
        assert agent.approve("t").status == "completed"


def test_a_fork_as_of_another_time_is_checked_and_read_as_of_then(home: Path) -> None:
    with FollowupAgent.open(home=home, clock=lambda: NOW) as agent:
        agent.ask(TASK, thread_id="t")
        for wrong in ("yesterday", "2026-13-01", ""):
            with pytest.raises(InvalidOption, match="as_of"):
                agent.fork("t", 0, edit={"as_of": wrong})
        fork = agent.fork("t", 0, edit={"as_of": "2026-02-20"})
        assert fork.as_of.startswith("2026-02-20")
        waits = agent.resume(fork.thread_id)
        assert waits.waiting_for == "approval"
        assert agent.approve(fork.thread_id).status == "completed"


async def test_a_step_that_is_run_again_in_the_same_process_is_told_once(home: Path) -> None:
    """The caller leaves at every moment there is, and comes back."""
    async with FollowupAgent.aopen(home=home, clock=lambda: NOW) as agent:
        for pause in range(0, 120, 7):
            thread = f"t{pause}"
            call = asyncio.create_task(agent.aask("user_123 要跟进吗", thread_id=thread))
            for _ in range(pause):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            try:
                await agent.aresume(thread)
            except (NotWaiting, UnknownThread):
                continue
    told = [
        (e["runId"], e["step"], e["eventName"], (e.get("decision") or {}).get("toolName"))
        for e in read_log(home / "logs" / "followup.jsonl")
    ]
    assert len(told) == len(set(told))


async def test_a_run_that_was_cut_off_and_cancelled_says_in_the_log_that_it_ended(
    home: Path,
) -> None:
    async with FollowupAgent.aopen(home=home, clock=lambda: NOW) as agent:
        await leave_after(agent, ToolCalled)
        await agent.acancel("t")
    last = read_log(home / "logs" / "followup.jsonl")[-1]
    assert last["eventName"] == "agent.run.finished"
    assert last["sessionId"] == "t"
    assert last["state"] == {"status": "failed", "stopReason": "cancelled"}
