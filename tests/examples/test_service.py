"""The example service under load, killed with `kill -9`: nothing lost, nothing doubled."""

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from postgres_server import PostgresServer
from reports import report
from sqlalchemy import create_engine, text
from support import fill

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "examples"))
from load import load  # noqa: E402 - an example is a program, in no package

pytestmark = pytest.mark.slow


class Service:
    """The service as a process, on a port of its own."""

    def __init__(self, home: Path, runs_url: str) -> None:
        """Start it."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._environment = {
            **os.environ, "FOLLOWUP_HOME": str(home), "FOLLOWUP_RUNS_URL": runs_url,
            "FOLLOWUP_PLANNER": "rules",
        }  # fmt: skip
        self.start()

    def start(self) -> None:
        """Start the process; it serves a moment later."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "--app-dir", str(ROOT / "examples"), "service:app",
             "--port", str(self.port), "--log-level", "error"],
            env=self._environment,
        )  # fmt: skip

    async def serves(self) -> None:
        """Wait until it does."""
        async with httpx.AsyncClient(trust_env=False) as http, asyncio.timeout(30):
            while True:
                try:
                    await http.get(f"{self.url}/health")
                except httpx.TransportError:
                    await asyncio.sleep(0.05)
                else:
                    return

    async def settled(self) -> None:
        """Wait until it has gone on with all that others have left."""
        await self.serves()
        async with httpx.AsyncClient(trust_env=False) as http, asyncio.timeout(20):
            while any(
                t["status"] == "running" for t in (await http.get(f"{self.url}/threads")).json()
            ):
                await asyncio.sleep(0.1)

    def kill(self) -> None:
        """kill -9."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> float:
        """SIGTERM; the seconds it took."""
        started = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)
        return time.monotonic() - started


@contextmanager
def serving(home: Path, runs_url: str, count: int = 1) -> Iterator[list[Service]]:
    """Services that are ended with the block."""
    services = [Service(home, runs_url) for _ in range(count)]
    try:
        yield services
    finally:
        for service in services:
            service.kill()


def customers_of(home: Path, count: int) -> list[str]:
    """Fill a home, as of now, by which the service goes; the ids of its customers."""
    fill(home / "customers.db", customers=count, as_of=datetime.now(UTC)).close()
    return [
        str(row)
        for row in query(f"sqlite:///{home / 'customers.db'}", "SELECT customer_id FROM customers")
    ]


def query(url: str, statement: str) -> list[Any]:
    """The first column of what a statement gives."""
    engine = create_engine(url)
    with engine.connect() as connection:
        found = list(connection.execute(text(statement)).scalars())
    engine.dispose()
    return found


def assert_one_each(home: Path, runs_url: str, customers: list[str]) -> None:
    """One task for each customer, a receipt for each, every thread at its end."""
    tasks = query(f"sqlite:///{home / 'customers.db'}", "SELECT customer_id FROM followup_tasks")
    assert Counter(tasks) == Counter(customers)
    assert query(runs_url, "SELECT state FROM followup_effects") == ["done"] * len(customers)
    assert set(query(runs_url, "SELECT status FROM followup_threads")) == {"completed"}


def url_of(store: str, home: Path, postgres: PostgresServer) -> str:
    """Where runs are kept."""
    return postgres.database() if store == "postgres" else f"sqlite:///{home / 'runs.db'}"


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_killed_under_load_it_loses_nothing_and_doubles_nothing(
    store: str, tmp_path: Path, postgres: PostgresServer
) -> None:
    seed = random.randrange(10**6)
    moments = random.Random(seed)
    customers = customers_of(tmp_path, 24)
    runs_url = url_of(store, tmp_path, postgres)
    with serving(tmp_path, runs_url) as (service,):
        await service.serves()
        loading = asyncio.create_task(load([service.url], customers))
        kills = 0
        while not loading.done() and kills < 3:
            await asyncio.sleep(moments.uniform(0.2, 1.2))
            if loading.done():
                break
            service.kill()
            kills += 1
            service.start()
            await service.serves()
        counts = await loading
        service.kill()  # once more: what it left on the list is put right by the next
        service.start()
        await service.settled()
    report(f"service killed on {store}", [f"seed {seed}: {kills} kills under load, {counts}"])
    assert kills >= 1
    assert counts["lost answers"] >= 1
    assert counts["completed"] == len(customers)
    assert_one_each(tmp_path, runs_url, customers)


async def test_asked_to_end_it_lets_each_step_end_and_the_next_process_goes_on(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    customers = customers_of(tmp_path, 20)
    runs_url = postgres.database()
    with serving(tmp_path, runs_url) as (service,):
        await service.serves()
        loading = asyncio.create_task(load([service.url], customers))
        await asyncio.sleep(0.7)
        assert not loading.done()
        took_s = await asyncio.to_thread(service.stop)
        service.start()
        counts = await loading
        await service.settled()
    report("service stopped", [f"ended in {took_s:.1f} s under load, {counts}"])
    assert took_s < 10
    assert counts["completed"] == len(customers)
    assert_one_each(tmp_path, runs_url, customers)


async def test_two_processes_serve_one_database(tmp_path: Path, postgres: PostgresServer) -> None:
    customers = customers_of(tmp_path, 20)
    runs_url = postgres.database()
    with serving(tmp_path, runs_url, count=2) as (one, two):
        await asyncio.gather(one.serves(), two.serves())
        counts = await load([one.url, two.url], customers)
        async with httpx.AsyncClient(trust_env=False) as http:
            assert (await http.get(f"{one.url}/threads/never")).status_code == 404
            late = await http.post(f"{two.url}/threads/load-{customers[0]}/approve", json={})
            assert (late.status_code, late.json()["error"]) == (409, "NotWaiting")
            bad = await http.post(f"{one.url}/threads", json={"thread_id": "x", "goal": " "})
            assert (bad.status_code, bad.json()["error"]) == (422, "InvalidGoal")
            assert len((await http.get(f"{two.url}/threads")).json()) == len(customers)
    report("service of two processes", [str(counts)])
    assert counts["completed"] == len(customers)
    assert_one_each(tmp_path, runs_url, customers)
