"""Compare two reports case by case: what got better, what got worse, and whether that is chance."""

from pydantic import BaseModel
from scipy.stats import binomtest

from followup_agent.evals.report import Report, Result


class Change(BaseModel):
    """How one eval differs between two reports, over the cases that both have."""

    better: list[str]
    """Cases that fail in the first and pass in the second."""
    worse: list[str]
    both_pass: int
    both_fail: int
    p: float
    """Chance of a split at least as uneven if neither report were better: McNemar's exact test, two
    sides (McNemar 1947), over the cases that differ."""


class Comparison(BaseModel):
    """Two reports beside each other."""

    cases: int
    """In both."""
    only_in_first: list[str]
    only_in_second: list[str]
    evals: dict[str, Change]
    """By eval; 'all' is a case that passes everything it is asked."""
    flipped: dict[str, tuple[str, str]]
    """Case to its verdict in the first and in the second, where they differ."""
    differs: dict[str, tuple[str | None, str | None]]
    """What was judged, where that differs: planner, policy, cases, commit."""


def compare(first: Report, second: Report) -> Comparison:
    """The second against the first."""
    shared = [name for name in first.results if name in second.results]
    asked = {name: _asked(first.results[name]) & _asked(second.results[name]) for name in shared}
    evals = [name for name in first.evals if any(name in own for own in asked.values())]
    return Comparison(
        cases=len(shared),
        only_in_first=[name for name in first.results if name not in second.results],
        only_in_second=[name for name in second.results if name not in first.results],
        evals={
            name: _change(
                first, second, [c for c in shared if name == "all" or name in asked[c]], name
            )
            for name in ["all", *evals]
        },
        flipped={
            name: (before, after)
            for name in shared
            for before, after in [(_verdict(first.results[name]), _verdict(second.results[name]))]
            if before != after
        },
        differs={
            key: (first.subject.get(key), second.subject.get(key))
            for key in {**first.subject, **second.subject}
            if first.subject.get(key) != second.subject.get(key)
        },
    )


def _change(first: Report, second: Report, cases: list[str], name: str) -> Change:
    pairs = {c: (_passes(first.results[c], name), _passes(second.results[c], name)) for c in cases}
    better = [case for case, pair in pairs.items() if pair == (False, True)]
    worse = [case for case, pair in pairs.items() if pair == (True, False)]
    differing = len(better) + len(worse)
    return Change(
        better=better,
        worse=worse,
        both_pass=sum(pair == (True, True) for pair in pairs.values()),
        both_fail=sum(pair == (False, False) for pair in pairs.values()),
        p=float(binomtest(len(better), differing).pvalue) if differing else 1.0,
    )


def _asked(results: list[Result]) -> set[str]:
    """The evals that some attempt was asked: one that ended otherwise may not have been."""
    return {name for result in results for name in result.evals}


def _passes(results: list[Result], name: str) -> bool:
    """In every attempt that was asked; a broken one passes nothing."""
    if name == "all":
        return all(not r.errored and all(r.evals.values()) for r in results)
    return all(r.evals.get(name, False) for r in results if name in r.evals or r.errored)


def _verdict(results: list[Result]) -> str:
    return "/".join(dict.fromkeys(r.verdict for r in results))
