"""A task system over HTTP, with the real client over a real socket."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from support import APPROVE, NOW, TASK_GOAL, Harness, eventually, fill

from followup_agent.customers.database import CustomerDatabase
from followup_agent.service.errors import ConfigurationError
from followup_agent.service.settings import load_settings
from followup_agent.tasks.http import TaskServer as Client
from followup_agent.tasks.system import NewTask
from followup_agent.testing.task_server import TaskServer
from followup_agent.tools.definition import ToolRefused, ToolUnavailable

pytestmark = pytest.mark.slow  # real sockets

TASK = NewTask(
    customer_id="user_123", reason="未关闭工单", priority="high", due_at=NOW, assignee=None,
    evidence=["e1"], thread_id="t", approved_by="user", created_at=NOW,
)  # fmt: skip


@pytest.fixture
def server() -> Iterator[TaskServer]:
    """The reference server."""
    with TaskServer().running() as running:
        yield running


@pytest.fixture
def client(server: TaskServer) -> Client:
    """A client of it."""
    return Client(server.url)


async def test_one_key_makes_one_task_and_finds_it(server: TaskServer, client: Client) -> None:
    assert await client.find("k/1?") is None
    first = await client.create("k/1?", TASK)
    again = await client.create("k/1?", TASK)
    assert first == again == await client.find("k/1?")
    assert server.received == 2
    (task,) = server.tasks.values()
    assert task["reason"] == "未关闭工单"


async def test_many_at_once_make_one_task(server: TaskServer, client: Client) -> None:
    made = await asyncio.gather(*(client.create("k", TASK) for _ in range(20)))
    assert len({task.task_id for task in made}) == len(server.tasks) == 1


async def test_a_server_that_cannot_be_reached_was_surely_not_told() -> None:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    client = Client(f"http://127.0.0.1:{port}/tasks")
    with pytest.raises(ToolUnavailable, match="cannot be reached"):
        await client.create("k", TASK)


class Moody(BaseHTTPRequestHandler):
    """Answers what it is told to."""

    status, body = 200, b"{}"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.status == 0:
            self.close_connection = True  # says nothing
            return
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@pytest.mark.parametrize(
    ("status", "body", "raised"),
    [
        (0, b"", ConnectionError),
        (200, b"{}", ConnectionError),
        (200, b"not json", ConnectionError),
        (500, b"", ConnectionError),
        (502, b"", ConnectionError),
        (503, b"", ToolUnavailable),
        (429, b"", ToolUnavailable),
        (400, b"no", ToolRefused),
        (401, b"", ToolRefused),
        (409, b"", ToolRefused),
    ],
)
async def test_each_answer_has_its_own_meaning(
    status: int, body: bytes, raised: type[Exception]
) -> None:
    """B59: only what was surely turned away may be tried again."""
    handler = type("Handler", (Moody,), {"status": status, "body": body})
    server = HTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    client = Client(f"http://127.0.0.1:{server.server_address[1]}/tasks")
    try:
        with pytest.raises(raised):
            await client.create("k", TASK)
    finally:
        server.shutdown()
        server.server_close()


async def test_a_run_makes_its_task_there(
    own_company: CustomerDatabase, server: TaskServer, client: Client
) -> None:
    harness = Harness(own_company)
    object.__setattr__(harness.context, "tasks", client)
    await harness.ask(TASK_GOAL)
    done = await harness.resume(APPROVE)
    assert done["status"] == "completed"
    ((key, task),) = server.tasks.items()
    assert task["task_id"] in done["final_answer"]
    assert (task["thread_id"], task["approved_by"]) == ("t", "user")
    assert len(key) == 64


async def test_an_answer_that_comes_too_late_is_asked_for(
    own_company: CustomerDatabase, server: TaskServer, client: Client
) -> None:
    """B02: the task was made while nobody listened any more; asked afterwards, it is there."""
    from support import replaced

    from followup_agent.tools.send_followup_task import run

    server.delay_s = 0.15
    impatient = replaced("send_followup_task", run, timeout_s=0.1)
    harness = Harness(own_company, tools=[impatient])
    object.__setattr__(harness.context, "tasks", client)
    await harness.ask(TASK_GOAL)
    state = await harness.resume(APPROVE)
    assert state["last_error"]["kind"] == "outcome_unknown"
    assert "结果未知" in state["final_answer"]
    await eventually(lambda: bool(server.tasks))
    await harness.ask(TASK_GOAL, "again")
    done = await harness.resume(APPROVE, "again")
    assert done["status"] == "completed"
    assert server.received == 1
    assert len(server.tasks) == 1


async def test_a_request_without_a_key_or_json_is_refused(server: TaskServer) -> None:
    import httpx

    async with httpx.AsyncClient() as plain:
        assert (await plain.post(server.url, json={})).status_code == 400
        headers = {"Idempotency-Key": "k"}
        assert (await plain.post(server.url, content=b"{", headers=headers)).status_code == 400
        assert (await plain.get(server.url)).json() == []
        assert (await plain.get(f"{server.url}/k")).status_code == 404


@pytest.mark.parametrize("url", ["tasks", "ftp://h/tasks", "http://"])
def test_a_tasks_url_that_is_no_http_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="FOLLOWUP_TASKS_URL"):
        load_settings(tasks_url=url)


def test_one_graph_makes_tasks_from_any_event_loop(
    tmp_path: Path, server: TaskServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B51: as LangGraph's server and plain scripts use it, with what the environment says."""
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.types import Command

    from followup_agent.graph import build_graph
    from followup_agent.service.wiring import context_from_environment

    fill(tmp_path / "customers.db").close()
    monkeypatch.setenv("FOLLOWUP_HOME", str(tmp_path))
    monkeypatch.setenv("FOLLOWUP_TASKS_URL", server.url)
    graph = build_graph(context_from_environment, checkpointer=InMemorySaver())
    for number, customer in enumerate(("user_123", "user_456", "user_789")):
        config: Any = {"configurable": {"thread_id": f"t{number}"}}
        goal: Any = {"user_goal": f"给 {customer} 建一个跟进任务"}
        asyncio.run(graph.ainvoke(goal, config))
        done = asyncio.run(graph.ainvoke(Command(resume=APPROVE), config))
        assert done["status"] == "completed", done["last_error"]
    assert len(server.tasks) == 3
