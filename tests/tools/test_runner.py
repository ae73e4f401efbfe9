"""Outcomes: what tools do, and what the runner makes of it."""

import asyncio
import threading
import time
from contextvars import ContextVar
from datetime import UTC
from typing import Any

import pytest
from langgraph.errors import GraphInterrupt
from pydantic import Field
from support import NOW, eventually

from followup_agent.tools.definition import (
    CustomerNotFound,
    ToolArgs,
    ToolContext,
    ToolDefinition,
    ToolRefused,
    ToolResult,
    ToolUnavailable,
)
from followup_agent.tools.outcome import Empty, Failed, Found
from followup_agent.tools.registry import ToolRegistry
from followup_agent.tools.runner import MAX_RESULT_BYTES, Prepared, ToolRun, ToolRunner
from followup_agent.tools.threads import Threads

CONTEXT = ToolContext(as_of=NOW, timezone=UTC, now=NOW)


class Args(ToolArgs):
    """One customer."""

    user_id: str = Field(description="Whose.")


class Result(ToolResult):
    """One number, or a text."""

    x: int
    text: str = ""


async def run_once(run: Any, **changes: Any) -> tuple[ToolRun, list[tuple[str, BaseException]]]:
    """One call of a tool with this `run`."""
    errors: list[tuple[str, BaseException]] = []
    definition = ToolDefinition(
        **{
            "name": "get_user_score",
            "description": "Return the score of one customer.",
            "args": Args,
            "result": Result,
            "run": run,
            "effect": "read",
            "is_empty": lambda result: result.x == 0,
            **changes,
        }
    )
    runner = ToolRunner(ToolRegistry([definition]), lambda i, e: errors.append((i, e)))
    call = runner.prepare(definition.name, {"user_id": "u"})
    assert isinstance(call, Prepared)
    return await runner.run(call, CONTEXT), errors


async def test_found_and_empty_are_told_apart_by_the_tool() -> None:
    async def found(args: Args) -> Result:
        return Result(x=1)

    def empty(args: Args, context: ToolContext) -> dict[str, int]:
        assert context.as_of == NOW
        return {"x": 0}

    assert isinstance((await run_once(found))[0].outcome, Found)
    assert isinstance((await run_once(empty))[0].outcome, Empty)


def error_may_have_arrived(effect: str, error: Exception) -> bool:
    """A write whose connection broke; one that was refused surely did not arrive."""
    broke = isinstance(error, ConnectionError) and not isinstance(error, ConnectionRefusedError)
    return effect == "write" and broke


@pytest.mark.parametrize(
    ("error", "kind", "attempts"),
    [
        (CustomerNotFound("no"), "not_found", 1),
        (ToolRefused("forbidden"), "refused", 1),
        (ValueError("bad"), "internal", 1),
        (KeyError("x"), "internal", 1),
        (ToolUnavailable("503"), "unavailable", 2),
        (ConnectionResetError(), "unavailable", 2),
        (ConnectionRefusedError(), "unavailable", 2),
        (SystemExit(3), "internal", 1),
        (TimeoutError(), "timeout", 2),
    ],
)
async def test_only_what_may_pass_is_tried_again_and_only_once(
    error: Exception, kind: str, attempts: int
) -> None:
    """B59."""
    calls = []

    async def run(args: Args) -> Any:
        calls.append(1)
        raise error

    for effect, expected in (("read", attempts), ("write", 1)):
        calls.clear()
        ran, _ = await run_once(run, effect=effect, max_attempts=1 if effect == "write" else 2)
        assert isinstance(ran.outcome, Failed)
        assert ran.outcome.failure_kind == (
            "outcome_unknown"
            if (effect == "write" and kind in ("timeout", "internal"))
            or error_may_have_arrived(effect, error)
            else kind
        )
        assert len(calls) == ran.attempts == expected


async def test_a_second_try_may_succeed() -> None:
    calls = []

    async def run(args: Args) -> Result:
        calls.append(1)
        if len(calls) == 1:
            raise ToolUnavailable("busy")
        return Result(x=1)

    ran, _ = await run_once(run)
    assert isinstance(ran.outcome, Found)
    assert ran.attempts == 2


async def test_the_text_of_a_foreign_error_stays_in_the_log() -> None:
    async def run(args: Args) -> Any:
        raise RuntimeError("order lookup failed for phone 13800000000")

    ran, errors = await run_once(run)
    assert isinstance(ran.outcome, Failed)
    assert "13800000000" not in ran.outcome.message
    assert errors[0][0] in ran.outcome.message


async def test_a_pause_raised_by_a_tool_is_no_failure() -> None:
    """B46."""

    async def run(args: Args) -> Any:
        raise GraphInterrupt()

    with pytest.raises(GraphInterrupt):
        await run_once(run)


async def test_a_result_that_is_too_large_is_refused() -> None:
    """B60."""

    async def run(args: Args) -> Result:
        return Result(x=1, text="x" * MAX_RESULT_BYTES)

    ran, _ = await run_once(run)
    assert isinstance(ran.outcome, Failed)


async def test_a_sync_tool_runs_beside_the_loop_with_the_runs_context() -> None:
    """B67: context variables reach the tool's thread."""
    variable: ContextVar[str] = ContextVar("variable")
    variable.set("mine")
    seen: list[Any] = []

    def run(args: Args) -> Result:
        seen.extend((variable.get(), threading.current_thread() is threading.main_thread()))
        return Result(x=1)

    await run_once(run)
    assert seen == ["mine", False]


async def test_a_hung_sync_tool_holds_up_nobody() -> None:
    """B19."""
    release = threading.Event()

    def hang(args: Args) -> Any:
        release.wait(20)

    def quick(args: Args) -> Result:
        return Result(x=1)

    started = time.monotonic()
    hung, others = await asyncio.gather(
        run_once(hang, timeout_s=0.05),
        asyncio.gather(*(run_once(quick) for _ in range(20))),
    )
    assert time.monotonic() - started < 2
    assert isinstance(hung[0].outcome, Failed)
    assert all(isinstance(ran.outcome, Found) for ran, _ in others)
    release.set()


async def test_abandoned_calls_are_bounded_and_refused_at_once() -> None:
    release = threading.Event()
    threads = Threads(2)
    waiting = [asyncio.create_task(threads.call(lambda: release.wait(20))) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(ToolUnavailable, match="have not returned"):
        await threads.call(lambda: None)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    release.set()
    done: list[int] = []

    async def after() -> None:
        await eventually(lambda: threads._slots._value == 2)  # type: ignore[attr-defined]
        done.append(await threads.call(lambda: 1))

    await after()
    assert done == [1]


async def test_an_awaitable_from_a_sync_tool_is_awaited_in_time() -> None:
    def run(args: Args) -> Any:
        return asyncio.sleep(20)

    ran, _ = await run_once(run, timeout_s=0.05)
    assert isinstance(ran.outcome, Failed)
    assert ran.outcome.failure_kind == "timeout"


def test_arguments_are_compared_in_one_form() -> None:
    runner = ToolRunner(ToolRegistry(), lambda i, e: None)
    failed = runner.prepare("get_user_score", {})
    assert isinstance(failed, Failed)
    assert failed.failure_kind == "unknown_tool"
