"""Run one tool call: validate, time out, retry once, name the outcome.

The one place that turns what a tool does, or raises, into found, empty or failed.
"""

import asyncio
import dataclasses
import inspect
import time
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from langgraph.errors import GraphBubbleUp
from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import from_json

from followup_agent.tools.definition import ToolContext, ToolDefinition, ToolError, explain
from followup_agent.tools.outcome import Empty, Failed, Found, Outcome
from followup_agent.tools.registry import ToolRegistry
from followup_agent.tools.threads import Threads

MAX_RESULT_BYTES = 64_000
"""The largest result a step may carry; a tool that wants to return more must summarise."""

Report = Callable[[str, BaseException], None]
"""Called with an error id and the error when a tool raised something that is not its own word."""


class Prepared(NamedTuple):
    """A call that may be made: a registered tool and arguments that fit."""

    tool: ToolDefinition
    args: BaseModel
    canonical: dict[str, JsonValue]
    """The one JSON form of the arguments: compared, shown, approved and stored."""


class ToolRun(NamedTuple):
    """How one call went."""

    outcome: Outcome
    attempts: int
    duration_ms: int


class ToolRunner:
    """Runs tools for any number of runs at once."""

    def __init__(
        self,
        registry: ToolRegistry,
        report: Report,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        max_threads_per_tool: int = 32,
    ) -> None:
        """Give each sync tool at most `max_threads_per_tool` calls that have not returned."""
        self.registry = registry
        self._report = report
        self._monotonic = monotonic
        self._max_threads = max_threads_per_tool
        self._threads: dict[str, Threads] = {}

    def prepare(self, tool_name: str, raw_args: Mapping[str, Any]) -> Prepared | Failed:
        """Look the tool up and validate its arguments; a tool never sees what does not fit."""
        tool = self.registry.get(tool_name)
        if tool is None:
            names = ", ".join(self.registry.names())
            return Failed("unknown_tool", f"no tool {tool_name!r}; the tools are: {names}")
        try:
            args = tool.parse_args(raw_args)
        except ValidationError as error:
            return Failed("invalid_args", explain(error))
        return Prepared(tool, args, tool.canonical_args(args))

    async def run(
        self, call: Prepared, context: ToolContext, *, within_s: float | None = None
    ) -> ToolRun:
        """Return the outcome; never raises for what a tool did.

        A read ends after `within_s` at the latest, what is left of the run's time; a write that has
        begun gets all of its own time. Retryable failures of a read get one more try (seed document, section 9.3). A write that
        gave no answer in time is `outcome_unknown`: it may have happened.
        """
        started = self._monotonic()
        attempts = 0
        while True:
            attempts += 1
            tool = _within(call.tool, within_s, self._monotonic() - started)
            outcome, retryable = await self._attempt(tool, call.tool.run, call.args, context)
            if not retryable or attempts >= call.tool.max_attempts:
                break
            if within_s is not None and self._monotonic() - started >= within_s:
                break
        elapsed_ms = round((self._monotonic() - started) * 1000)
        return ToolRun(outcome, attempts, elapsed_ms)

    async def find(self, call: Prepared, context: ToolContext) -> Outcome:
        """Ask downstream for the effect of a write: Found, Empty when it is not there, or Failed."""
        tool = call.tool
        if tool.find is None:
            return Failed("outcome_unknown", "its downstream cannot be asked")
        asking = dataclasses.replace(tool, effect="read")
        outcome, retryable = await self._attempt(asking, tool.find, call.args, context)
        if retryable:
            outcome, _ = await self._attempt(asking, tool.find, call.args, context)
        return outcome

    async def _attempt(
        self, tool: ToolDefinition, run: Callable[..., Any], args: BaseModel, context: ToolContext
    ) -> tuple[Outcome, bool]:
        """One try: its outcome, and whether another may be made."""
        try:
            async with asyncio.timeout(tool.timeout_s):
                raw = await self._call(tool, run, args, context)
            if raw is None and run is tool.find:
                return Empty({}), False
            result = tool.result.model_validate(raw)
            text = result.model_dump_json()
            if len(text.encode()) > MAX_RESULT_BYTES:
                why = f"{tool.name} returned more than {MAX_RESULT_BYTES} bytes: let it summarise"
                return Failed("internal", why), False
            tool.result.model_validate_json(text)  # as the updater will read it
            plain = from_json(text)
            return (Empty(plain) if tool.is_empty(result) else Found(plain)), False
        except GraphBubbleUp:
            raise  # a pause or a stop of the graph is no failure of the tool
        except TimeoutError:
            if tool.effect != "read":
                return _unknown(f"no answer within {tool.timeout_s:g} s"), False
            return Failed("timeout", f"no answer within {tool.timeout_s:g} s"), True
        except ToolError as error:
            return Failed(error.why, str(error) or error.why), error.retryable
        except ConnectionError as error:
            name = type(error).__name__
            if tool.effect != "read" and not isinstance(error, ConnectionRefusedError):
                return _unknown(name), False
            return Failed("unavailable", name), tool.effect == "read"
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # this run is being stopped; the tool only passes it on
            return self._internal(tool, error), False
        except (Exception, SystemExit) as error:
            return self._internal(tool, error), False

    def _internal(self, tool: ToolDefinition, error: BaseException) -> Failed:
        """Foreign code raises what it likes, and its text may hold anything: that is logged only."""
        error_id = uuid.uuid4().hex[:8]
        self._report(error_id, error)
        if tool.effect != "read":
            return _unknown(f"{tool.name} failed (error {error_id}, see the log)")
        return Failed("internal", f"{tool.name} failed (error {error_id}, see the log)")

    async def _call(
        self, tool: ToolDefinition, run: Callable[..., Any], args: BaseModel, context: ToolContext
    ) -> object:
        arguments = (args, context) if run is tool.find or tool.takes_context else (args,)
        if inspect.iscoroutinefunction(run):
            return await run(*arguments)
        threads = self._threads.setdefault(tool.name, Threads(self._max_threads))
        answer = await threads.call(partial(run, *arguments))
        return await answer if inspect.isawaitable(answer) else answer


def _within(tool: ToolDefinition, within_s: float | None, elapsed_s: float) -> ToolDefinition:
    """The tool with no more time than is left."""
    if within_s is None or tool.effect != "read":
        return tool
    left_s = max(0.001, within_s - elapsed_s)
    return tool if left_s >= tool.timeout_s else dataclasses.replace(tool, timeout_s=left_s)


def _unknown(why: str) -> Failed:
    """A write that gave no answer."""
    return Failed("outcome_unknown", f"{why}: it may or may not have happened")
