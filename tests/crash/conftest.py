"""What crash tests share: a server of processes, homes to copy, and the printed matrix."""

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from postgres_server import PostgresServer
from sqlalchemy import create_engine, text
from support import NOW, fill

from followup_agent import FollowupAgent
from followup_agent.testing.task_server import TaskServer

GOAL = "给 user_123 建一个跟进任务"


class Processes:
    """Starts processes that are killed where an order says, and waits for them."""

    def __init__(self) -> None:
        """Start the server that forks them."""
        folder = Path(__file__).parents[1]
        self._server = subprocess.Popen(
            [sys.executable, str(folder / "crash_driver.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8",
            env={**os.environ, "PYTHONPATH": str(folder), "LANGGRAPH_STRICT_MSGPACK": "true"},
        )  # fmt: skip
        self._lock = threading.Lock()
        self._numbers = itertools.count()

    def _send(self, order: dict[str, Any]) -> Any:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        with self._lock:
            self._server.stdin.write(json.dumps(order) + "\n")
            self._server.stdin.flush()
            return json.loads(self._server.stdout.readline())

    def start(self, world: "World", call: list[Any], **more: Any) -> tuple[int, Path]:
        """Fork a process; its pid, and where its result will be."""
        result = world.home / f"result-{next(self._numbers)}.json"
        order = {
            "home": str(world.home),
            "runs_url": world.runs_url,
            "tasks_url": world.tasks and world.tasks.url,
            "call": call,
            "result": str(result),
            **more,
        }
        return self._send({"start": order}), result

    def wait(self, started: tuple[int, Path]) -> dict[str, Any]:
        """What came of it; `{"killed": True}` when it was."""
        pid, result = started
        status = self._send({"wait": pid})
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGKILL
            return {"killed": True}
        assert os.WEXITSTATUS(status) == 0, f"the process failed with {status}: see stderr"
        document: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        return document

    def run(self, world: "World", call: list[Any], **more: Any) -> dict[str, Any]:
        """Start one and wait for it."""
        return self.wait(self.start(world, call, **more))

    def close(self) -> None:
        """End the server."""
        self._server.communicate(timeout=10)


class World:
    """One home, one runs database, one task system: what a cell works on."""

    def __init__(self, home: Path, runs_url: str, tasks: TaskServer | None) -> None:
        """The home is a folder of its own."""
        self.home, self.runs_url, self.tasks = home, runs_url, tasks

    @contextmanager
    def running(self) -> Iterator[None]:
        """With its task server serving, if it has one."""
        with self.tasks.running() if self.tasks is not None else nullcontext():
            yield

    def made(self) -> list[str]:
        """The ids of the tasks there are downstream."""
        if self.tasks is not None:
            return [task["task_id"] for task in self.tasks.tasks.values()]
        engine = create_engine(f"sqlite:///{self.home / 'customers.db'}")
        with engine.connect() as connection:
            ids = list(connection.execute(text("SELECT task_id FROM followup_tasks")).scalars())
        engine.dispose()
        return ids

    def effects(self) -> list[str]:
        """The states of the ledger's rows."""
        engine = create_engine(self.runs_url)
        with engine.connect() as connection:
            states = list(connection.execute(text("SELECT state FROM followup_effects")).scalars())
        engine.dispose()
        return states

    def log(self) -> list[dict[str, Any]]:
        """The events."""
        lines = (self.home / "logs" / "followup.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]


def plain(value: Any) -> Any:
    """The value with every task's id, and how long things took, taken out."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items() if key != "duration_ms"}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return (
        re.sub(r"task_[0-9a-f]{12}|T[0-9]{6}", "TASK", value) if isinstance(value, str) else value
    )


@pytest.fixture(scope="session")
def processes() -> Iterator[Processes]:
    """The server of processes."""
    server = Processes()
    yield server
    server.close()


class Worlds:
    """Makes worlds in which a write waits for its approval, by copying one."""

    def __init__(self, folder: Path, postgres: PostgresServer) -> None:
        """`waiting` has a thread `t` that waits; `fresh` has none."""
        self._folder = folder
        self._postgres = postgres
        self._numbers = itertools.count()
        self._template = {
            (store, downstream, state): self._prepare(store, downstream, state)
            for store in ("sqlite", "postgres")
            for downstream in ("table", "http")
            for state in ("waiting", "fresh")
        }

    def _prepare(self, store: str, downstream: str, state: str) -> tuple[Path, str]:
        home = self._folder / f"template-{store}-{downstream}-{state}"
        home.mkdir()
        fill(home / "customers.db").close()
        url = self._postgres.database() if store == "postgres" else f"sqlite:///{home / 'runs.db'}"
        tasks_url = "http://127.0.0.1:9/tasks" if downstream == "http" else None
        with FollowupAgent.open(
            home=home, runs_url=url, tasks_url=tasks_url, clock=lambda: NOW
        ) as agent:
            if state == "waiting":
                assert agent.ask(GOAL, thread_id="t").waiting_for == "approval"
        return home, url

    def new(self, store: str, downstream: str, state: str = "waiting", **server: Any) -> World:
        """A world of its own; close its task server with `close`."""
        template, url = self._template[store, downstream, state]
        home = self._folder / f"world-{next(self._numbers)}"
        shutil.copytree(template, home)
        url = self._postgres.copy(url) if store == "postgres" else f"sqlite:///{home / 'runs.db'}"
        return World(home, url, TaskServer(**server) if downstream == "http" else None)


@pytest.fixture(scope="session")
def worlds(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> Worlds:
    """The maker of worlds."""
    return Worlds(tmp_path_factory.mktemp("worlds"), postgres)
