"""Tasks in a task system over HTTP.

    POST {url}          a task as JSON, header Idempotency-Key   -> 200 or 201, the task as JSON
    GET  {url}/{key}                                             -> 200, the task; 404, there is none

`followup_agent.testing.task_server` is a small server of this form.
"""

from urllib.parse import quote

import httpx
from pydantic import ValidationError
from typing_extensions import override

from followup_agent.tasks.system import NewTask, Task, TaskSystem
from followup_agent.tools.definition import ToolRefused, ToolUnavailable

TIMEOUT_S = 4.0
"""For each part of a request. The tool's own timeout is the total."""
NEVER_ARRIVED = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
TURNED_AWAY = frozenset({429, 503})
"""The server took no request: busy, or in maintenance (RFC 9110, RFC 6585)."""


class TaskServer(TaskSystem):
    """A client of one task system. Safe to share between runs, on any number of event loops."""

    def __init__(self, url: str, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        """`url` is where tasks are POSTed. Connects at the first request."""
        self._url = url.rstrip("/")
        self._transport = transport

    @override
    async def create(self, key: str, task: NewTask) -> Task:
        return _task(await self._send("POST", self._url, key, task.model_dump(mode="json")))

    @override
    async def find(self, key: str) -> Task | None:
        answer = await self._send("GET", f"{self._url}/{quote(key, safe='')}", key, None)
        return None if answer.status_code == httpx.codes.NOT_FOUND else _task(answer)

    async def _send(self, method: str, url: str, key: str, body: object) -> httpx.Response:
        headers = {"Idempotency-Key": key} if method == "POST" else {}
        try:
            # A client of its own for each request: a pooled connection belongs to the event loop
            # that opened it, and tasks are few.
            async with httpx.AsyncClient(
                timeout=TIMEOUT_S, transport=self._transport, trust_env=False
            ) as client:
                answer = await client.request(method, url, json=body, headers=headers)
        except NEVER_ARRIVED as error:
            raise ToolUnavailable(f"the task system cannot be reached: {error}") from error
        except httpx.TransportError as error:  # it may have arrived
            raise ConnectionError(type(error).__name__) from error
        if answer.status_code in TURNED_AWAY:
            raise ToolUnavailable(f"the task system is busy ({answer.status_code})")
        if answer.is_client_error and not (method == "GET" and answer.status_code == 404):
            raise ToolRefused(f"the task system refused: {answer.status_code} {answer.text[:200]}")
        return answer


def _task(answer: httpx.Response) -> Task:
    """The task in the answer; ConnectionError for an answer that says nothing of it."""
    if not answer.is_success:
        raise ConnectionError(f"the task system answered {answer.status_code}")
    try:
        return Task.model_validate_json(answer.content)
    except ValidationError as error:
        raise ConnectionError("the task system's answer is no task") from error
