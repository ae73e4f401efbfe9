"""A small task system over HTTP: a reference of what `FOLLOWUP_TASKS_URL` expects, and a server
for tests and demonstrations. It keeps tasks in memory.

    python -m followup_agent.testing.task_server --port 8100      FOLLOWUP_TASKS_URL=http://127.0.0.1:8100/tasks

    POST /tasks          with Idempotency-Key: 201 and the task; 200 when there was one of this key
    GET  /tasks/{key}    200 and the task, or 404
    GET  /tasks          200 and all tasks
"""

import argparse
import json
import sys
import time
from typing import Any
from urllib.parse import unquote

from followup_agent.testing.loopback import JsonHandler, LoopbackServer


class TaskServer(LoopbackServer):
    """The server. `received` counts POSTs that were carried out, `busy` those that were begun;
    `tasks` is what came of them, by key."""

    def __init__(self, port: int = 0, *, delay_s: float = 0.0) -> None:
        """Listen on 127.0.0.1; `delay_s` passes before a task is made."""
        super().__init__(port, _Handler)
        self.delay_s = delay_s
        self.tasks: dict[str, dict[str, Any]] = {}
        self.received = 0
        self.busy = 0

    @property
    def url(self) -> str:
        """Where tasks are POSTed."""
        return f"{self.address}/tasks"

    def create(self, key: str, task: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """One task for one key."""
        with self.lock:
            self.received += 1
            if key in self.tasks:
                return 200, self.tasks[key]
            made = {**task, "task_id": f"T{len(self.tasks) + 1:06d}", "idempotency_key": key}
            self.tasks[key] = made
            return 201, made


class _Handler(JsonHandler):
    server: TaskServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        key = self.headers.get("Idempotency-Key")
        if self.path != "/tasks":
            self.answer(404, {"error": "POST to /tasks"})
        elif not key:
            self.answer(400, {"error": "the header Idempotency-Key is missing"})
        else:
            try:
                task = json.loads(body)
            except ValueError:
                self.answer(400, {"error": "the body is not JSON"})
                return
            self.server.busy += 1
            time.sleep(self.server.delay_s)
            self.answer(*self.server.create(key, task))

    def do_GET(self) -> None:
        if self.path == "/tasks":
            self.answer(200, list(self.server.tasks.values()))
            return
        task = self.server.tasks.get(unquote(self.path.removeprefix("/tasks/")))
        self.answer(*((200, task) if task else (404, {"error": "no task of this key"})))


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="A small task system over HTTP, in memory.")
    parser.add_argument("--port", type=int, default=8100)
    parser.add_argument("--delay-s", type=float, default=0.0)
    options = parser.parse_args()
    server = TaskServer(options.port, delay_s=options.delay_s)
    sys.stdout.write(f"{server.url}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
