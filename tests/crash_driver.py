"""Processes that are killed at a given point: a server that forks one for each order.

`python crash_driver.py` imports everything once, then reads orders as JSON lines from stdin:
`{"start": {...}}` forks a process that carries it out and answers with its pid; `{"wait": pid}`
answers with its exit status. The process writes what came of it to the file `result` of its order.

The points are put around the product's own functions here; the product knows nothing of them.
"""

import asyncio
import functools
import gc
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from sqlalchemy import Engine, event
from support import NOW

from followup_agent.graph import graph
from followup_agent.runs.leases import Leases
from followup_agent.runs.ledger import SqlLedger
from followup_agent.service.agent import FollowupAgent
from followup_agent.service.errors import FollowupError
from followup_agent.service.logs import JsonLog
from followup_agent.service.run import Run
from followup_agent.tasks.http import TaskServer
from followup_agent.tasks.table import TaskTable
from followup_agent.tools.send_followup_task import TOOL

TIMEOUT_S, SLOW_S = 0.1, 0.3
"""Of the tool that times out: what it is given, and what its effect takes."""


class Points:
    """Fires once, when the process comes to the given point for the given time."""

    def __init__(self, point: str | None, act: Callable[[], None]) -> None:
        """`point` is a name, or a name and a number: 'before put 3'."""
        self.point, self._act = point, act
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()

    def at(self, name: str) -> None:
        """The process is here."""
        with self._lock:
            self._counts[name] = self._counts.get(name, 0) + 1
            here = self.point in (name, f"{name} {self._counts[name]}")
            if here:
                self.point = None
        if here:
            self._act()


def around(points: Points, owner: Any, name: str, before: str = "", after: str = "") -> None:
    """Put points around a function of the product."""
    original = getattr(owner, name)

    if asyncio.iscoroutinefunction(original):

        @functools.wraps(original)
        async def wrapped(*args: Any, **kwargs: Any) -> Any:
            points.at(before)
            result = await original(*args, **kwargs)
            points.at(after)
            return result
    else:

        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            points.at(before)
            result = original(*args, **kwargs)
            points.at(after)
            return result

    setattr(owner, name, wrapped)


def arm(points: Points, *, slow: bool) -> None:
    """Put every point in its place."""
    around(points, SqlLedger, "_begin", "before the intent", "after the intent")
    around(points, SqlLedger, "receipt", "", "after the receipt")
    around(points, TaskTable, "create", "", "after the effect")
    around(points, TaskServer, "create", "", "after the effect")
    around(points, Leases, "acquire", "", "with the lease just taken")
    around(points, Leases, "releasing", "before the lease is given back", "")
    for saver in (AsyncSqliteSaver, AsyncPostgresSaver):
        around(points, saver, "aput", "before checkpoint", "after checkpoint")
        around(points, saver, "aput_writes", "before writes", "after writes")

    emit = JsonLog.event

    def noticed(self: JsonLog, event_name: str, /, **fields: Any) -> Any:
        if event_name == "agent.resumed":
            points.at("in the answer")
        return emit(self, event_name, **fields)

    JsonLog.event = noticed  # type: ignore[method-assign,assignment]

    @event.listens_for(Engine, "after_cursor_execute")
    def _inside_the_table(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("INSERT INTO followup_tasks"):
            if slow:
                time.sleep(SLOW_S)
            points.at("inside the effect")

    send = TaskServer._send

    async def observed(self: TaskServer, method: str, *rest: Any) -> Any:
        if method != "POST" or points.point != "inside the effect":
            return await send(self, method, *rest)
        sending = asyncio.ensure_future(send(self, method, *rest))
        await asyncio.sleep(0.03)  # the request is out, its answer not read
        points.at("inside the effect")
        return await sending

    TaskServer._send = observed  # type: ignore[method-assign,assignment]
    if slow:
        object.__setattr__(TOOL, "timeout_s", TIMEOUT_S)


async def carry_out(order: dict[str, Any], points: Points, calls: list[Any]) -> Run:
    """One call of the agent, in a task that the points may cancel."""
    loop = asyncio.get_running_loop()
    async with FollowupAgent.aopen(
        home=Path(order["home"]),
        runs_url=order["runs_url"],
        tasks_url=order.get("tasks_url"),
        clock=lambda: NOW,
        lease_s=order.get("lease_s", 30.0),
    ) as agent:
        name, arguments = order["call"]
        if order.get("at") is not None:
            await asyncio.sleep(max(0.0, order["at"] - time.time()))
        call = asyncio.ensure_future(getattr(agent, name)(*arguments, **order.get("named", {})))
        calls.append((loop, call))
        try:
            return await call
        finally:
            if order.get("slow"):
                await asyncio.sleep(SLOW_S * 1.5)  # its thread is still running


def child(order: dict[str, Any]) -> None:
    """Carry out one order and write down what came of it."""
    calls: list[Any] = []

    def kill() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def cancel() -> None:
        loop, call = calls[0]
        loop.call_soon_threadsafe(call.cancel)

    points = Points(order.get("point"), cancel if order.get("cancel") else kill)
    arm(points, slow=bool(order.get("slow")))
    try:
        run = asyncio.run(carry_out(order, points, calls))
        result: dict[str, Any] = {"run": json.loads(run.model_dump_json())}
    except FollowupError as error:
        result = {"error": type(error).__name__, "message": str(error)}
    except asyncio.CancelledError:
        result = {"error": "CancelledError"}
    Path(order["result"]).write_text(json.dumps(result, ensure_ascii=False), encoding="utf-8")


def serve() -> None:
    """Fork a process for each order."""
    assert graph is not None  # built: what a process makes once is there
    gc.freeze()  # shared with the forked processes, page by page
    for line in sys.stdin:
        order = json.loads(line)
        if "start" in order:
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    child(order["start"])
                    status = 0
                finally:
                    sys.stderr.flush()
                    os._exit(status)
            answer: Any = pid
        else:
            answer = os.waitpid(order["wait"], 0)[1]
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
