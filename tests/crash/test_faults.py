"""What goes wrong around a run: a hung process, a full disk, a restarted server, many at once."""

import asyncio
import os
import signal
import subprocess
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from crash.conftest import GOAL, Processes, Worlds
from crash.test_matrix import settle, told_twice
from postgres_server import PostgresServer
from reports import report
from sqlalchemy import create_engine, text
from support import NOW, fill

from followup_agent import FollowupAgent, StorageError
from followup_agent.runs.database import POSTGRES_OPTIONS, RunsDatabase
from followup_agent.runs.leases import Leases

pytestmark = [pytest.mark.slow, pytest.mark.crash]


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_hung_process_is_overtaken_and_its_late_writes_are_refused(
    store: str, processes: Processes, worlds: Worlds
) -> None:
    """SIGSTOP in the middle of the effect; another approves; SIGCONT: it comes too late."""
    world = worlds.new(store, "http", delay_s=0.4)
    with world.running():
        assert world.tasks is not None
        hung = processes.start(world, ["aapprove", ["t"]], lease_s=2.0)
        late = time.monotonic() + 30
        while not world.tasks.busy:
            assert time.monotonic() < late, processes.wait(hung)
            time.sleep(0.01)
        os.kill(hung[0], signal.SIGSTOP)
        world.tasks.delay_s = 0.0
        busy = processes.run(world, ["aresume", ["t"]])
        time.sleep(2.1)  # its lease runs out
        done = settle(processes, world)
        os.kill(hung[0], signal.SIGCONT)
        late = processes.wait(hung)
        assert busy.get("error") == "ThreadBusy"
        assert done["status"] == "completed"
        assert late.get("error") in ("LeaseLost", "NotWaiting"), late
        assert len(world.made()) == 1
        assert world.effects() == ["done"]
        assert told_twice(world) == []
        again = processes.run(world, ["aget", ["t"]])["run"]
        assert again == done


def test_a_process_that_hangs_in_the_middle_of_a_transaction_blocks_nobody_for_ever(
    postgres: PostgresServer,
) -> None:
    """The server ends its session; until then the others wait, and no longer than the limit."""
    url = postgres.database()
    with closing(RunsDatabase(url)) as database, closing(Leases(database)) as other:
        stuck = create_engine(url, connect_args={"options": POSTGRES_OPTIONS}).connect()
        values = "('t', 'gone', 1, 0)"
        stuck.execute(text(f"INSERT INTO followup_leases VALUES {values}"))
        started = time.monotonic()
        other.acquire("t")
        assert time.monotonic() - started < 9
        stuck.invalidate()
        stuck.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A file system of a few hundred kilobytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=False, capture_output=True
    )  # fmt: skip
    if made.returncode != 0:
        pytest.skip("this machine lets nobody mount a tmpfs")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_said_and_the_run_goes_on_once_there_is_room(
    small_disk: Path, tmp_path: Path
) -> None:
    fill(tmp_path / "customers.db").close()
    customers = f"sqlite:///{tmp_path / 'customers.db'}"
    options: dict[str, Any] = {"home": small_disk, "customers_url": customers, "clock": lambda: NOW}
    with FollowupAgent.open(**options) as agent:
        agent.ask(GOAL, thread_id="t")
        ballast = small_disk / "ballast"
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(b"\0" * 4096):
                pass
        with pytest.raises(StorageError, match=r"full.*followup resume t"):
            agent.approve("t")
        ballast.unlink()
    with FollowupAgent.open(**options) as agent:
        run = agent.get("t")
        done = agent.approve("t") if run.status != "completed" else run
    assert done.status == "completed"
    engine = create_engine(customers)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM followup_tasks")).scalar() == 1
    engine.dispose()


def test_a_database_server_that_restarts_in_the_middle_costs_no_run(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """Each run ends, or says that it was cut off and goes on later; one task each."""
    fill(tmp_path / "customers.db", customers=12).close()
    goals = {f"t{n}": f"给 user_{n} 建一个跟进任务" for n in _ids(tmp_path)}

    async def ask_all() -> tuple[list[Any], list[Any]]:
        options: dict[str, Any] = {
            "home": tmp_path,
            "runs_url": postgres.database(),
            "clock": lambda: NOW,
        }
        async with FollowupAgent.aopen(**options) as agent:
            await asyncio.gather(*(agent.aask(goal, thread_id=t) for t, goal in goals.items()))
            approving = [asyncio.create_task(agent.aapprove(t)) for t in goals]
            await asyncio.sleep(0.2)  # all are on their way, none but the first at its end
            on_their_way = [approval for approval in approving if not approval.done()]
            await asyncio.to_thread(postgres.stop, "immediate")
            await asyncio.to_thread(postgres.start)
            first = await asyncio.gather(*approving, return_exceptions=True)
            second = []
            for thread in goals:
                run = await agent.aget(thread)
                if run.status == "needs_input":
                    run = await agent.aapprove(thread)
                elif run.status == "running":
                    run = await agent.aresume(thread)
                second.append(run)
        assert on_their_way
        return first, second

    first, second = asyncio.run(ask_all())
    for came in first:
        assert isinstance(came, StorageError) or came.status == "completed", came
    cut_off = sum(isinstance(came, StorageError) for came in first)
    report(
        "restarted server", [f"{len(first)} runs on their way, {cut_off} cut off, all completed"]
    )
    assert [run.status for run in second] == ["completed"] * len(goals)
    assert _tasks_per_customer(tmp_path) == [1] * len(goals)


def test_connections_that_the_server_has_closed_are_opened_anew(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """B94: idle too long, or ended by an administrator."""
    fill(tmp_path / "customers.db").close()
    url = postgres.database()
    with FollowupAgent.open(home=tmp_path, runs_url=url, clock=lambda: NOW) as agent:
        agent.ask(GOAL, thread_id="t")
        engine = create_engine(url.replace(url.rsplit("/", 1)[1], "postgres"))
        with engine.connect() as connection:
            ended = connection.execute(
                text("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = :name"),
                {"name": url.rsplit("/", 1)[1]},
            ).scalar()  # fmt: skip
        engine.dispose()
        assert ended
        assert agent.approve("t").status == "completed"


def test_fifty_threads_at_once_on_postgres_exhaust_no_pool(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    fill(tmp_path / "customers.db", customers=50).close()
    ids = _ids(tmp_path)
    url = postgres.database()

    async def all_of_them() -> tuple[list[str], list[str], int]:
        async with FollowupAgent.aopen(home=tmp_path, runs_url=url, clock=lambda: NOW) as agent:
            asked = await asyncio.gather(
                *(agent.aask(f"给 user_{n} 建一个跟进任务", thread_id=f"t{n}") for n in ids)
            )
            done = await asyncio.gather(*(agent.aapprove(f"t{n}") for n in ids))
            engine = create_engine(url)
            with engine.connect() as connection:
                used = connection.execute(
                    text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
                ).scalar_one()
            engine.dispose()
        return [run.status for run in asked], [run.status for run in done], used

    asked, done, used = asyncio.run(all_of_them())
    report("fifty threads", [f"50 threads at once, {used} connections used"])
    assert asked == ["needs_input"] * 50
    assert done == ["completed"] * 50
    assert used <= 13
    assert _tasks_per_customer(tmp_path) == [1] * 50


def _ids(home: Path) -> list[str]:
    engine = create_engine(f"sqlite:///{home / 'customers.db'}")
    with engine.connect() as connection:
        ids = list(connection.execute(text("SELECT customer_id FROM customers")).scalars())
    engine.dispose()
    return [i.removeprefix("user_") for i in ids]


def _tasks_per_customer(home: Path) -> list[int]:
    engine = create_engine(f"sqlite:///{home / 'customers.db'}")
    with engine.connect() as connection:
        counts = connection.execute(
            text("SELECT count(*) FROM followup_tasks GROUP BY customer_id")
        ).scalars()
        found = list(counts)
    engine.dispose()
    return found
