"""The one way in: cases and a subject in, a report out, from wherever it is called."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

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


def evaluate(cases: Sequence[Case], subject: Subject | None = None, **options: Any) -> Report:
    """Run each case and report; blocks. The same options as `aevaluate`.

    Works from a script, from a test and from a notebook alike: it runs on an event loop of its own,
    in a thread of its own, in which `on_done` is called too.
    """
    with start_blocking_portal() as portal:
        return portal.call(partial(aevaluate, cases, subject, **options))


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
    """Run each case `repeat` times, at most `concurrency` at once, and report.

    `subject` None: the built-in rules. `laws`: check the metamorphic laws as well. `on_done` is
    called with 'cases' or 'laws' and each episode. `wait`: between attempts at a busy server.
    """
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
