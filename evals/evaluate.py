"""The one way in: cases and a subject in, a report out, from wherever it is called."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from anyio.from_thread import start_blocking_portal
from tenacity.wait import wait_base

from followup_agent.evals.cases import Case
from followup_agent.evals.laws import check_laws
from followup_agent.evals.report import Gates, Report, describe, make_report
from followup_agent.evals.running import BACK_OFF, CONCURRENCY, run_cases
from followup_agent.evals.scorers import Scorer
from followup_agent.evals.subject import Episode, Subject


def _nothing(stage: str, episode: Episode) -> None:
    """The default of `on_done`."""


def evaluate(
    cases: Sequence[Case],
    subject: Subject | None = None,
    *,
    repeat: int = 1,
    concurrency: int = CONCURRENCY,
    laws: bool = False,
    gates: Gates | None = None,
    scorers: Mapping[str, Scorer] | None = None,
    on_done: Callable[[str, Episode], None] = _nothing,
    wait: wait_base = BACK_OFF,
) -> Report:
    """Run each case `repeat` times and report; blocks.

    Works from a script, from a test and from a notebook alike: it runs on an event loop of its own,
    in a thread of its own. `on_done` is called in that thread with 'cases' or 'laws' and each
    episode. Within an event loop of yours, `aevaluate` does not block it.
    """
    call = partial(
        aevaluate, cases, subject, repeat=repeat, concurrency=concurrency, laws=laws, gates=gates,
        scorers=scorers, on_done=on_done, wait=wait,
    )  # fmt: skip
    with start_blocking_portal() as portal:
        return portal.call(call)


async def aevaluate(
    cases: Sequence[Case],
    subject: Subject | None = None,
    *,
    repeat: int = 1,
    concurrency: int = CONCURRENCY,
    laws: bool = False,
    gates: Gates | None = None,
    scorers: Mapping[str, Scorer] | None = None,
    on_done: Callable[[str, Episode], None] = _nothing,
    wait: wait_base = BACK_OFF,
) -> Report:
    """Async form of `evaluate`."""
    subject = subject or Subject()
    episodes = await run_cases(
        cases,
        subject,
        repeat=repeat,
        concurrency=concurrency,
        on_done=partial(on_done, "cases"),
        wait=wait,
    )
    checked = (
        await check_laws(
            cases, episodes, subject, concurrency=concurrency, on_done=partial(on_done, "laws")
        )
        if laws
        else None
    )
    return make_report(
        cases, episodes, describe(subject, cases), scorers=scorers, gates=gates, laws=checked
    )
