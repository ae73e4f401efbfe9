"""From scores to a report: rates with intervals, failures with reasons, and the gate."""

import hashlib
import statistics
import subprocess
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from importlib import resources
from math import comb
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from scipy.stats import binomtest

import followup_agent
from followup_agent.evals.cases import Case
from followup_agent.evals.scorers import SCORERS, Score, measures, score
from followup_agent.evals.subject import Episode, Subject
from followup_agent.service.errors import InvalidOption


class Rate(BaseModel):
    """A share of cases, with its 95 % interval."""

    score: float
    low: float
    high: float
    """Wilson's score interval (Wilson 1927), which holds for small numbers and for shares of 0 and 1."""
    n: int
    """Cases; a case that is run several times is one, and is right when it is right every time."""

    @classmethod
    def of(cls, right: int, n: int) -> "Rate":
        """So many of so many; of none, nothing is known: 0 to 1."""
        if n == 0:
            return cls(score=0.0, low=0.0, high=1.0, n=0)
        interval = binomtest(right, n).proportion_ci(0.95, method="wilson")
        return cls(score=right / n, low=float(interval.low), high=float(interval.high), n=n)


class Failure(BaseModel):
    """One thing that was not as expected."""

    case: str
    eval: str
    reason: str
    errored: bool
    tier: str
    attempt: int
    input: str
    trajectory: list[str]
    answer: str


class Result(BaseModel):
    """One episode in short: what a comparison needs."""

    evals: dict[str, bool]
    errored: bool
    verdict: str
    """Priority; '-' without a verdict."""
    infrastructure: bool = False
    seconds: float = 0.0


class Gate(BaseModel):
    """Whether the report is good enough."""

    ok: bool
    problems: list[str]


class Gates(BaseModel):
    """`gates.toml`: the least that each share may be, and the most that may break."""

    model_config = ConfigDict(extra="forbid")

    errored: int = Field(ge=0)
    unstable: int = Field(ge=0)
    laws_broken: int = Field(ge=0)
    planner_only: float = Field(ge=0, le=1)
    baseline: dict[str, Annotated[float, Field(ge=0, le=1)]]
    """Eval to the least share of baseline cases that pass it."""


class LawResult(BaseModel):
    """How often one law held."""

    held: int
    broken: int
    errored: int
    violations: list[str] = []


class Report(BaseModel):
    """The whole report, as `--json` and `--out` print it."""

    cases: int
    passed: int
    failed: int
    errored: int
    evals: dict[str, Rate]
    by_language: dict[str, dict[str, Rate]]
    by_tag: dict[str, Rate]
    """Share of the tag's cases that pass everything they are asked."""
    by_tier: dict[str, dict[str, Rate]]
    pass_at_1: float
    """Mean share of a case's attempts that are right."""
    pass_pow: dict[int, float]
    """k to the chance that k attempts at a case are all right (tau-bench, arXiv:2406.12045)."""
    unstable: list[str]
    """Cases that are right sometimes."""
    details: dict[str, dict[str, float]]
    """Eval to its own figures: means for shares, sums for counts."""
    measures: dict[str, dict[str, float]]
    """What it took: mean, median and most."""
    laws: dict[str, LawResult] = {}
    failures: list[Failure]
    subject: dict[str, str | None]
    gate: Gate
    results: dict[str, Annotated[list[Result], Field(min_length=1)]]

    def infrastructure(self) -> list[str]:
        """Cases that came to nothing because something was busy or away."""
        return [name for name, own in self.results.items() if any(r.infrastructure for r in own)]


def load_gates(path: Path | None = None) -> Gates:
    """The gates that come with the package, or another file's."""
    try:
        text = (
            path.read_text(encoding="utf-8")
            if path is not None
            else resources.files(__package__).joinpath("gates.toml").read_text(encoding="utf-8")
        )
        gates = Gates.model_validate(tomllib.loads(text))
    except (OSError, ValueError) as error:
        raise InvalidOption(f"{path or 'gates.toml'}: {' '.join(str(error).split())}") from error
    unknown = [name for name in gates.baseline if name not in SCORERS]
    if unknown:
        raise InvalidOption(
            f"{path}: there is no evaluator {unknown[0]!r}; they are {', '.join(SCORERS)}"
        )
    return gates


def make_report(
    cases: Sequence[Case],
    episodes: Sequence[Episode],
    subject: Mapping[str, str | None],
    *,
    scorers: Mapping[str, Any] | None = None,
    gates: Gates | None = None,
    laws: Mapping[str, LawResult] | None = None,
) -> Report:
    """Score the episodes. Every case is counted, whatever became of it."""
    by_case: dict[str, list[tuple[Episode, list[Score]]]] = {case.name: [] for case in cases}
    known = {case.name: case for case in cases}
    for episode in episodes:
        by_case[episode.case].append((episode, score(known[episode.case], episode, scorers)))
    results = {
        name: [_result(episode, scores) for episode, scores in own] for name, own in by_case.items()
    }
    right = {
        name: [not r.errored and all(r.evals.values()) for r in own]
        for name, own in results.items()
    }
    for name, attempts in right.items():
        if not attempts:
            raise ValueError(f"case {name} was never run")
    errored = [name for name, own in results.items() if any(r.errored for r in own)]
    passed = [name for name, attempts in right.items() if all(attempts) and name not in errored]
    scores = [score for own in by_case.values() for _, given in own for score in given]
    report = Report(
        cases=len(cases),
        passed=len(passed),
        failed=len(cases) - len(passed) - len(errored),
        errored=len(errored),
        evals=_by_eval(cases, results),
        by_language=_grouped(cases, results, lambda case: [case.language]),
        by_tag={
            tag: Rate.of(sum(case.name in passed for case in own), len(own))
            for tag, own in sorted(_groups(cases, lambda case: case.tags).items())
        },
        by_tier=_grouped(cases, results, lambda case: [case.tier]),
        pass_at_1=statistics.fmean(statistics.fmean(attempts) for attempts in right.values()),
        pass_pow=_pass_pow(right),
        unstable=[name for name, attempts in right.items() if len(set(attempts)) > 1],
        details=_details(scores),
        measures=_measures(episodes),
        laws=dict(laws or {}),
        failures=_failures(known, by_case),
        subject=dict(subject),
        gate=Gate(ok=True, problems=[]),
        results=results,
    )
    baseline = {case.name for case in cases if case.tier == "baseline"}
    problems = gate_problems(report, gates or load_gates(), baseline)
    return report.model_copy(update={"gate": Gate(ok=not problems, problems=problems)})


def _failures(
    cases: Mapping[str, Case], by_case: Mapping[str, list[tuple[Episode, list[Score]]]]
) -> list[Failure]:
    """Every score that did not pass, with what led to it."""
    return [
        Failure(
            case=name,
            eval=given.eval,
            reason=given.reason,
            errored=given.errored,
            tier=cases[name].tier,
            attempt=episode.attempt,
            input=cases[name].input,
            trajectory=episode.trajectory,
            answer=(episode.run.answer or "") if episode.run else "",
        )
        for name, own in by_case.items()
        for episode, scores in own
        for given in scores
        if not given.passed
    ]


def _result(episode: Episode, scores: Sequence[Score]) -> Result:
    verdict = episode.run.verdict if episode.run else None
    return Result(
        evals={score.eval: score.passed for score in scores},
        errored=episode.crash is not None or any(score.errored for score in scores),
        verdict=verdict["priority"] if verdict else "-",
        infrastructure=episode.crash is not None and episode.crash.kind == "infrastructure",
        seconds=round(episode.seconds, 4),
    )


def _groups(cases: Iterable[Case], keys: Any) -> dict[str, list[Case]]:
    groups: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        for key in keys(case):
            groups[key].append(case)
    return groups


def _grouped(
    cases: Sequence[Case], results: Mapping[str, list[Result]], keys: Any
) -> dict[str, dict[str, Rate]]:
    return {key: _by_eval(own, results) for key, own in sorted(_groups(cases, keys).items())}


def _by_eval(cases: Sequence[Case], results: Mapping[str, list[Result]]) -> dict[str, Rate]:
    """Eval to the share of cases, of those that are asked it, that pass it every time."""
    asked: dict[str, list[bool]] = {}
    for case in cases:
        for name in dict.fromkeys(name for r in results[case.name] for name in r.evals):
            # An attempt that was not asked it (it ended otherwise) says nothing; a broken one is wrong.
            given = [
                r.evals.get(name, False) for r in results[case.name] if name in r.evals or r.errored
            ]
            asked.setdefault(name, []).append(all(given))
    order = [*SCORERS, *asked]  # as they are defined, then a caller's own
    return {
        name: Rate.of(sum(asked[name]), len(asked[name]))
        for name in dict.fromkeys(order)
        if name in asked
    }


def _pass_pow(right: Mapping[str, list[bool]]) -> dict[int, float]:
    repeat = min(len(attempts) for attempts in right.values())
    return {
        k: statistics.fmean(comb(sum(a), k) / comb(len(a), k) for a in right.values())
        for k in range(1, repeat + 1)
    }


_COUNTS = frozenset({"needless", "right", "defaulted", "wrong", "missing"})


def _details(scores: Iterable[Score]) -> dict[str, dict[str, float]]:
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for given in scores:
        for name, value in given.details.items():
            values[given.eval][name].append(value)
    return {
        of: {n: sum(v) if n in _COUNTS else statistics.fmean(v) for n, v in own.items()}
        for of, own in values.items()
    }


def _measures(episodes: Sequence[Episode]) -> dict[str, dict[str, float]]:
    taken = [measures(episode) for episode in episodes]
    return {
        name: {
            "mean": statistics.fmean(values),
            "p50": statistics.median(values),
            "max": max(values),
        }
        for name in (taken[0] if taken else {})
        for values in [[one[name] for one in taken]]
    }


def gate_problems(report: Report, gates: Gates, baseline: Set[str]) -> list[str]:
    """Why the report is not good enough; empty when it is. Errors count in every tier, all else in
    the baseline cases alone."""
    problems = []
    if report.errored > gates.errored:
        problems.append(f"{report.errored} cases errored, at most {gates.errored} may")
    unstable = baseline & set(report.unstable)
    if len(unstable) > gates.unstable:
        problems.append(f"{len(unstable)} cases are unstable, at most {gates.unstable} may")
    for name, least in gates.baseline.items():
        rate = report.by_tier.get("baseline", {}).get(name)
        if rate is not None and rate.score < least:
            problems.append(f"{name} on baseline cases: {rate.score:.3f} is below {least:g}")
    broken = sum(law.broken + law.errored for law in report.laws.values())
    if broken > gates.laws_broken:
        problems.append(f"{broken} laws were broken, at most {gates.laws_broken} may")
    return problems


def describe(subject: Subject, cases: Sequence[Case]) -> dict[str, str | None]:
    """What was judged, and by what: enough to know whether two reports may be compared."""
    texts = [case.model_dump_json() for case in cases]
    return {
        "planner": subject.name,
        "model": None if subject.planner is None else subject.name,
        "policy": subject.policy.version,
        "policy_hash": _short_hash(subject.policy.model_dump_json()),
        "prompt_hash": getattr(subject.planner, "prompt_hash", None),
        "cases_hash": _short_hash("\n".join(sorted(texts))),
        "commit": _commit(),
    }


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _commit() -> str | None:
    """Of the checkout this package is run from; None when it was installed from a wheel."""
    root = Path(followup_agent.__file__).parent
    if not (root / ".git").exists():
        return None
    try:
        said = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],  # noqa: S607 - git is on the PATH
            cwd=root, capture_output=True, text=True, check=True, timeout=10,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return said.stdout.strip()


def read_report(path: Path) -> Report:
    """A report that `--out` has written; InvalidOption when the file is none."""
    try:
        return Report.model_validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        why = (
            error.strerror if isinstance(error, OSError) else "not a report of `followup eval run`"
        )
        raise InvalidOption(f"{path}: {why}") from error
