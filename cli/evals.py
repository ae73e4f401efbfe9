"""`followup eval`: run the cases, compare reports, keep a LangSmith dataset in step."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from followup_agent.cli.output import console, notice, print_json
from followup_agent.cli.start import FAILED, OK, imports_done
from followup_agent.evals.cases import Case, load_cases, select
from followup_agent.evals.compare import Comparison, compare
from followup_agent.evals.evaluate import evaluate
from followup_agent.evals.page import html
from followup_agent.evals.report import (
    Gates,
    Rate,
    Report,
    describe,
    load_gates,
    make_report,
    read_report,
)
from followup_agent.evals.running import run_cases
from followup_agent.evals.states import planner_only, read_states, record, write_states
from followup_agent.evals.subject import Subject
from followup_agent.goals.ids import IdPattern
from followup_agent.judgement.policy import load_policy
from followup_agent.service.errors import InvalidOption, UsageError
from followup_agent.service.settings import load_settings
from followup_agent.service.wiring import choose_planner, make_planner
from followup_agent.tools import BUILT_IN
from followup_agent.tools.registry import ToolRegistry

imports_done()


def run(
    *,
    planner: str | None,
    model: str | None,
    tags: Sequence[str],
    names: Sequence[str],
    folder: Path | None,
    gates: Path | None,
    repeat: int,
    concurrency: int,
    laws: bool,
    alone: bool,
    only_errored: Path | None,
    langsmith: str | None,
    upload: bool,
    out: Path | None,
    page: Path | None,
    as_json: bool,
) -> int:
    """Run the cases, print the report; FAILED below the gates."""
    subject = _subject(planner, model)
    limits = load_gates(gates)
    for path in (out, page):
        writable(path)
    if alone:
        ignored = {"--out": out, "--html": page, "--laws": laws, "--langsmith": langsmith,
                   "--only-errored": only_errored, "--cases": folder, "--repeat": repeat != 1}  # fmt: skip
        for name in (name for name, value in ignored.items() if value):
            raise UsageError(f"--planner-only goes by the package's recorded states: no {name}")
        return _planner_only(subject, tags, names, limits, as_json=as_json)
    cases = select(load_cases(folder), tags=tags, names=names)
    if only_errored is not None:
        cases = _stopped(only_errored, cases)
    if langsmith is not None:
        if laws:
            raise UsageError("the laws are checked offline: run --laws without --langsmith")
        from followup_agent.cli.langsmith import experiment

        episodes = experiment(
            langsmith, cases, subject, repeat=repeat, concurrency=concurrency, upload=upload
        )
        report = make_report(cases, episodes, describe(subject, cases), gates=limits)
    else:
        report = _judge(cases, subject, repeat, concurrency, limits, laws=laws)
    if out is not None:
        _write(out, report.model_dump_json(indent=1) + "\n")
    if page is not None:
        _write(page, html(report))
    if as_json:
        print_json(report.model_dump(mode="json", exclude={"results"}))
    else:
        show(report)
    return OK if report.gate.ok else FAILED


def _stopped(report: Path, cases: Sequence[Case]) -> list[Case]:
    """Those of the cases that a busy server had stopped in this report; UsageError for none."""
    busy = set(read_report(report).infrastructure())
    if not busy:
        raise UsageError(f"{report}: no case of this report was stopped by a busy server")
    chosen = [case for case in cases if case.name in busy]
    if not chosen:
        raise UsageError(
            f"{report}: none of the cases that a busy server stopped "
            f"({', '.join(sorted(busy))}) is among those chosen here"
        )
    return chosen


def _judge(
    cases: Sequence[Case],
    subject: Subject,
    repeat: int,
    concurrency: int,
    gates: Gates,
    *,
    laws: bool,
) -> Report:
    """Run them, with bars on a terminal."""
    with _progress() as progress:
        bars = {"cases": progress.add_task("cases", total=len(cases) * repeat)}
        if laws:
            bars["laws"] = progress.add_task("laws", total=None)
        return evaluate(
            cases,
            subject,
            repeat=repeat,
            concurrency=concurrency,
            laws=laws,
            gates=gates,
            on_done=lambda stage, episode: progress.advance(bars[stage]),
        )


def _progress() -> Progress:
    """On stderr, and only on a terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console(to_stderr=True),
        disable=not console(to_stderr=True).is_terminal,
        transient=True,
    )


def _subject(planner: str | None, model: str | None) -> Subject:
    """What is to be judged. A model is judged only when it is asked for, and never replaced."""
    if model is None and planner in (None, "rules"):
        return Subject()
    settings = load_settings(planner=planner or "llm", model=model)
    notice(choose_planner(settings))
    registry = ToolRegistry(BUILT_IN)
    made = make_planner(settings, policy=load_policy(), registry=registry, ids=IdPattern())
    return Subject(planner=made)


def writable(path: Path | None) -> None:
    """InvalidOption before the work, not after it."""
    if path is None:
        return
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise InvalidOption(f"{path} cannot be written: its folder is missing, or it is one itself")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidOption(f"{path} cannot be written: {error.strerror}") from error


def _planner_only(
    subject: Subject,
    tags: Sequence[str],
    names: Sequence[str],
    gates: Gates,
    *,
    as_json: bool,
) -> int:
    wanted = {case.name for case in select(load_cases(), tags=tags, names=names)}
    states = [one for one in read_states() if one.case in wanted]
    if not states:
        raise UsageError("of these cases no state is recorded: only of cases that the rules pass")
    report = asyncio.run(planner_only(states, subject, gates))
    if as_json:
        print_json(report.model_dump(mode="json"))
        return OK if report.ok else FAILED
    text = console()
    table = _table("decision")
    for kind, rate in {"all": report.right, **report.by_decision}.items():
        _row(table, kind, rate)
    text.print(table)
    for failure in report.failures:
        text.print(f"✗ {failure['case']}, step {failure['step']}: {failure['reason']}")
    text.print(
        f"{report.states} states in {report.seconds:.2f} s ({report.per_second:.0f} a second)"
    )
    return OK if report.ok else FAILED


def listing(*, tags: Sequence[str], folder: Path | None, as_json: bool) -> int:
    """The cases, one line each."""
    cases = select(load_cases(folder), tags=tags)
    if as_json:
        print_json([case.model_dump(mode="json", exclude_unset=True) for case in cases])
        return OK
    text = console()
    width = max(len(case.name) for case in cases)
    for case in cases:
        text.print(f"{case.name:<{width}}  {case.tier:<8}  {', '.join(case.tags)}  {case.input}")
    text.print(f"{len(cases)} cases")
    return OK


def record_states(*, out: Path, folder: Path | None, as_json: bool) -> int:
    """Record what the rules see and decide, for `--planner-only`."""
    writable(out)
    cases = load_cases(folder)
    episodes = asyncio.run(run_cases(cases, Subject(), keep_states=True))
    states = record(cases, episodes)
    if not states:
        raise UsageError(f"no case passes, so there is nothing to record; {out} is left as it is")
    try:
        write_states(states, out)
    except OSError as error:
        raise InvalidOption(f"{out} cannot be written: {error.strerror}") from error
    document = {"states": len(states), "cases": len({one.case for one in states})}
    if as_json:
        print_json(document)
    else:
        console().print(f"{document['states']} states of {document['cases']} cases: {out}")
    return OK


def comparing(first: Path, second: Path, *, as_json: bool) -> int:
    """Two reports beside each other."""
    comparison = compare(read_report(first), read_report(second))
    if not comparison.cases:
        raise UsageError(f"{first} and {second} have no case in common: nothing can be compared")
    if as_json:
        print_json(comparison.model_dump(mode="json"))
    else:
        _show_comparison(comparison)
    return OK


def _show_comparison(comparison: Comparison) -> None:
    text = console()
    for key, (before, after) in comparison.differs.items():
        text.print(f"{key}: {before} → {after}")
    table = Table(box=None, pad_edge=False)
    table.add_column("eval")
    for name in ("both pass", "better", "worse", "both fail", "p"):
        table.add_column(name, justify="right")
    for name, change in comparison.evals.items():
        counts = (change.both_pass, len(change.better), len(change.worse), change.both_fail)
        table.add_row(name, *map(str, counts), f"{change.p:.3f}")
    text.print(table)
    for name, change in comparison.evals.items():
        for case in change.better:
            text.print(f"+ {case}: {name} is right now")
        for case in change.worse:
            text.print(f"- {case}: {name} is wrong now")
    for case, (before, after) in comparison.flipped.items():
        text.print(f"~ {case}: verdict {before} → {after}")
    for word, names in (
        ("first", comparison.only_in_first),
        ("second", comparison.only_in_second),
    ):
        if names:
            text.print(f"only in the {word}: {', '.join(names)}")
    text.print(f"{comparison.cases} cases in both; p: McNemar's exact test on those that differ")


def _table(title: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(title)
    for name in ("share", "95 %", "cases"):
        table.add_column(name, justify="right")
    return table


def _row(table: Table, name: str, rate: Rate) -> None:
    share, interval = f"{rate.score:.1%}", f"{rate.low:.1%} – {rate.high:.1%}"
    table.add_row(name, share, interval, str(rate.n))


def show(report: Report) -> None:
    """The report as text."""
    text = console()
    table = _table("eval")
    for name, rate in report.evals.items():
        _row(table, name, rate)
    for language, own in report.by_language.items():
        table.add_section()
        for name, rate in own.items():
            _row(table, f"{language} {name}", rate)
    table.add_section()
    for tag, rate in report.by_tag.items():
        _row(table, f"#{tag}", rate)
    text.print(table)
    for name, figures in report.details.items():
        text.print(f"{name}: {_figures(figures)}")
    for name, figures in report.measures.items():
        if figures["max"]:  # nothing is spent on models by the rules
            text.print(f"{name}: {_figures(figures)}")
    for name, law in report.laws.items():
        text.print(f"law {name}: held {law.held}, broken {law.broken}, errored {law.errored}")
        for violation in law.violations:
            text.print(f"  ✗ {violation}")
    for failure in report.failures:
        mark = "!" if failure.errored else "✗"
        text.print(f"{mark} {failure.case} ({failure.tier}) {failure.eval}: {failure.reason}")
        for line in failure.trajectory:
            text.print(f"    {line}")
    pass_pow = "".join(f", pass^{k} {v:.3f}" for k, v in report.pass_pow.items() if k > 1)
    text.print(
        f"{report.cases} cases: {report.passed} passed, {report.failed} failed, "
        f"{report.errored} errored; pass@1 {report.pass_at_1:.3f}{pass_pow}"
    )
    if report.unstable:
        text.print(f"right sometimes: {', '.join(report.unstable)}")
    busy = report.infrastructure()
    if busy:
        text.print(f"stopped by a busy server, not by the planner: {', '.join(busy)}")
        text.print("run those again: followup eval run --only-errored FILE (written by --out)")
    text.print(f"judged: {', '.join(f'{k} {v}' for k, v in report.subject.items() if v)}")
    for problem in report.gate.problems:
        text.print(f"below the gate: {problem}")


def _figures(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{key} {value:.3g}" for key, value in figures.items())
