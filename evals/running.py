"""Run many cases at once, each to a score: what is busy is waited for, and never scored as wrong."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from tenacity import AsyncRetrying, RetryCallState, retry_if_result, stop_after_attempt
from tenacity.wait import wait_base, wait_random_exponential

from followup_agent.evals.cases import Case
from followup_agent.evals.subject import Bench, Episode, Subject

CONCURRENCY = 4
"""Cases under way at once: one process, whose time goes into waiting for a model, if there is one."""
PATIENCE = 8
"""Attempts at a case whose model or server is busy or away."""
BACK_OFF = wait_random_exponential(multiplier=0.5, max=30)
"""Seconds between them, more each time, and each case its own (AWS: exponential back-off, jitter)."""


async def run_cases(
    cases: Sequence[Case],
    subject: Subject,
    *,
    repeat: int = 1,
    concurrency: int = CONCURRENCY,
    keep_states: bool = False,
    on_done: Callable[[Episode], None] = lambda episode: None,
    wait: wait_base = BACK_OFF,
) -> list[Episode]:
    """Each case `repeat` times, at most `concurrency` at once, in the order of the cases.

    A slot is kept while its case waits for a busy server, so that less is asked of it.
    """
    slots = asyncio.Semaphore(concurrency)
    with Bench.temporary() as bench:

        async def one(case: Case, attempt: int) -> Episode:
            async with slots:
                run = partial(bench.run, case, subject, attempt=attempt, keep_states=keep_states)
                episode = await _patiently(run, wait)
            on_done(episode)
            return episode

        try:
            return await asyncio.gather(
                *(one(case, attempt) for case in cases for attempt in range(1, repeat + 1))
            )
        finally:
            await subject.aclose()


async def _patiently(run: Callable[[], Awaitable[Episode]], wait: wait_base) -> Episode:
    """The episode; an infrastructure error only after `PATIENCE` attempts."""

    def last(state: RetryCallState) -> Episode:
        outcome = state.outcome
        assert outcome is not None  # noqa: S101 - tenacity calls this after an attempt
        episode: Episode = outcome.result()
        return episode

    attempts = AsyncRetrying(
        retry=retry_if_result(was_busy),
        stop=stop_after_attempt(PATIENCE),
        wait=wait,
        retry_error_callback=last,
    )
    return await attempts(run)


def was_busy(episode: Episode) -> bool:
    """Whether the episode says something of the load only."""
    return episode.crash is not None and episode.crash.kind == "infrastructure"
