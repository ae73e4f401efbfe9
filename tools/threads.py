"""Run blocking calls in threads that can be abandoned.

`asyncio.to_thread` and thread pools share a few threads and join them at exit: one hung call
delays the next tool and the end of the process. Here each call has a daemon thread of its own,
their number is bounded, and a caller that stops waiting gets control back at once.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

from followup_agent.tools.definition import ToolUnavailable

T = TypeVar("T")


class Threads:
    """At most `limit` calls under way; one more is refused at once, never queued behind a hung one."""

    def __init__(self, limit: int) -> None:
        """Bound the calls that have not returned, abandoned ones included."""
        self._limit = limit
        self._slots = threading.BoundedSemaphore(limit)

    async def call(
        self, function: Callable[[], T], *, on_cancel: Callable[[], None] | None = None
    ) -> T:
        """Return what `function()` returns, called in a thread with this task's context variables.

        When the waiting task is cancelled (a timeout), `on_cancel` is called so that the work can
        be stopped where that is possible; the thread is then left alone. ToolUnavailable when
        `limit` calls have not returned.
        """
        if not self._slots.acquire(blocking=False):
            raise ToolUnavailable(f"{self._limit} earlier calls have not returned")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            if answer.cancelled():
                return
            if isinstance(error, Exception) and not isinstance(error, StopIteration):
                answer.set_exception(error)
            elif error is not None:  # asyncio carries neither SystemExit nor StopIteration
                answer.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
            else:
                answer.set_result(result)  # type: ignore[arg-type]  # a T whenever error is None

        def work() -> None:
            result: T | None = None
            error: BaseException | None = None
            try:
                result = context.run(function)
            except BaseException as raised:  # handed to the waiting task, whatever it is
                error = raised
            finally:
                self._slots.release()
            try:
                loop.call_soon_threadsafe(settle, result, error)
            except RuntimeError:  # the loop was closed: nobody waits any more
                return

        context = contextvars.copy_context()
        threading.Thread(target=work, daemon=True, name="followup-tool").start()
        try:
            return await answer
        except asyncio.CancelledError:
            if on_cancel is not None:
                on_cancel()
            raise
