"""`followup data`: fill the business database, check it, propose a mapping."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from followup_agent.cli.output import console, notice, print_json
from followup_agent.customers.database import CustomerDatabase
from followup_agent.customers.load import Change, replace_all
from followup_agent.goals.times import parse_as_of
from followup_agent.service.errors import InvalidOption, UsageError
from followup_agent.service.home import make_home
from followup_agent.service.settings import Settings, known_zone, load_settings

if TYPE_CHECKING:
    from followup_agent.customers.files import Record, Table
    from followup_agent.customers.importing import Export, Imported
    from followup_agent.customers.mapping import Watch

SHOWN = 20
"""Bad rows printed; `--rejects` keeps them all."""
OPTION_OF = {"activity_events": "activity"}


def sample(
    *,
    customers: int,
    seed: int,
    as_of: str | None,
    replace: bool,
    as_json: bool,
    home: Path | None,
) -> int:
    """A made-up company, relative to `as_of`."""
    from followup_agent.customers.sample import make_company

    settings = load_settings(home=home)
    rows = make_company(customers, seed, moment_of(as_of, settings))
    database = _database(settings)
    try:
        replace_all(database, rows, is_sample=True, replace=replace)
    finally:
        database.close()
    if as_json:
        print_json({"database": database.name, "rows": rows.counts()})
        return 0
    counts = ", ".join(f"{count:,} {name}" for name, count in rows.counts().items())
    console().print(f"{database.name}: {counts}")
    console().print("Try: followup ask '帮我判断 user_123 最近是否需要重点跟进'")
    return 0


def moment_of(as_of: str | None, settings: Settings) -> datetime:
    """The time that is meant; now, when none is."""
    try:
        return parse_as_of(as_of, settings.zone) if as_of else datetime.now(UTC)
    except ValueError as error:
        raise InvalidOption(str(error)) from error


def _database(settings: Settings) -> CustomerDatabase:
    if settings.customers_url is None:
        make_home(settings.home)
    return CustomerDatabase(settings.customers_database_url)


# --- import ---


def load(
    files: Mapping[str, Path | None],
    *,
    mapping: Path | None,
    folder: Path | None,
    timezone: str | None,
    time_format: str | None,
    decimal: str | None,
    encoding: str | None,
    delimiter: str | None,
    rejects: Path | None,
    strict: bool,
    replace: bool,
    as_json: bool,
    home: Path | None,
) -> int:
    """The user's own data."""
    from followup_agent.customers.importing import import_export

    given = {relation: path for relation, path in files.items() if path is not None}
    settings = load_settings(home=home)
    export = _export(
        given, mapping, folder, timezone, time_format, decimal, encoding, delimiter, settings
    )
    database = _database(settings)
    try:
        with _progress() as watch:
            done = import_export(
                database, export, rejects=rejects, strict=strict, replace_held=replace, watch=watch
            )
    finally:
        database.close()
    _tell_rejected(done, rejects)
    if as_json:
        print_json(
            {
                "database": database.name,
                "timezone": str(export.reading.zone),
                "rows": done.rows,
                "changes": {name: change._asdict() for name, change in done.changes.items()},
                "rejected": done.rejected,
                "problems": [
                    {
                        "relation": problem.relation,
                        "file": problem.file,
                        problem.counts: problem.line,
                        "column": problem.column or None,
                        "message": problem.message,
                    }
                    for problem in done.problems
                ],
            }
        )
        return 0
    out = console()
    out.print(database.name)
    for relation, change in done.changes.items():
        out.print(f"  {relation:<16} {done.rows[relation]:>9,} rows: {_changed(change)}")
    notice(_zones(export.reading.zone, settings))
    out.print("Next: followup data check")
    return 0


def _zones(zone: tzinfo, settings: Settings) -> str:
    """In which zone times were read and days begin: what a wrong one does is seen nowhere else."""
    if str(zone) == settings.timezone:
        return f"times without a zone were read in {zone}, where days begin too (FOLLOWUP_TIMEZONE)"
    return (
        f"times without a zone were read in {zone}, and days begin in {settings.timezone}: if your "
        f"days are those of {zone}, set FOLLOWUP_TIMEZONE={zone}"
    )


def _changed(change: Change) -> str:
    said = [f"{count:,} {name}" for name, count in change._asdict().items() if count]
    return ", ".join(said) or "nothing changed"


def _export(
    files: Mapping[str, Path],
    mapping: Path | None,
    folder: Path | None,
    timezone: str | None,
    time_format: str | None,
    decimal: str | None,
    encoding: str | None,
    delimiter: str | None,
    settings: Settings,
) -> "Export":
    """What is to be imported; UsageError for options that do not go together."""
    from followup_agent.customers.files import known_encoding
    from followup_agent.customers.importing import Export
    from followup_agent.customers.mapping import read_mapping
    from followup_agent.customers.rows import Reading

    said = {
        "--timezone": timezone,
        "--time-format": time_format,
        "--decimal": decimal,
        "--encoding": encoding,
        "--delimiter": delimiter,
    }
    if mapping is not None:
        if files:
            raise UsageError("--map names the files itself: leave the other files out.")
        beside = [option for option, value in said.items() if value is not None]
        if beside:
            raise UsageError(f"{beside[0]} is said in the mapping file itself.")
        declared = read_mapping(mapping)
        return Export(
            mapping=(declared, mapping), folder=folder, reading=declared.reading(settings.zone)
        )
    if folder is not None:
        raise UsageError("--from goes with --map.")
    if not files:
        raise UsageError(
            "name the files: --customers F --activity F --orders F --tickets F, or --map F."
        )
    if decimal not in (None, ".", ","):
        raise UsageError(f"--decimal is {decimal!r}: it is . or ,")
    if delimiter is not None and len(delimiter) != 1:
        raise UsageError(f"--delimiter is {delimiter!r}: it is one character")
    try:
        zone = ZoneInfo(known_zone(timezone or settings.timezone))
        encoding = known_encoding(encoding) if encoding else None
    except ValueError as error:
        raise UsageError(str(error)) from error
    forms = (time_format,) if time_format else ()
    reading = Reading(zone=zone, time_forms=forms, decimals=decimal)  # type: ignore[arg-type] # checked above
    return Export(files=files, reading=reading, encoding=encoding, delimiter=delimiter)


def _tell_rejected(done: "Imported", rejects: Path | None) -> None:
    if not done.rejected:
        return
    for problem in done.problems[:SHOWN]:
        notice(f"left out: {problem}")
    if done.rejected > SHOWN:
        notice(f"… and {done.rejected - SHOWN:,} more")
    kept = f"all are in {rejects}" if rejects else "--rejects FILE keeps them"
    notice(f"{done.rejected:,} bad rows were left out: {kept}; --strict refuses them all")


@contextmanager
def _progress() -> "Iterator[Watch]":
    """A bar for every file and relation, on a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    err = console(to_stderr=True)
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:

        def watch(name: str, table: "Table") -> "Table":
            task = progress.add_task(name, total=table.expected)

            def rows() -> "Iterator[Record]":
                count = 0
                for count, record in enumerate(table.rows, start=1):
                    if count % 1000 == 0:
                        progress.update(task, completed=count)
                    yield record
                progress.update(task, completed=count, total=count)

            return replace(table, rows=rows())

        yield watch


# --- check ---


def check(*, as_of: str | None, as_json: bool, home: Path | None) -> int:
    """What is wrong with the business data; 1 when anything is."""
    from followup_agent.customers.check import check_data
    from followup_agent.judgement.policy import load_policy
    from followup_agent.service.data import customer_database

    settings = load_settings(home=home)
    database = customer_database(settings, load_policy(settings.policy))
    moment = moment_of(as_of, settings)
    try:
        report = check_data(database, moment, settings.zone)
    finally:
        database.close()
    if as_json:
        print_json(report.as_json())
    else:
        out = console()
        shown = moment.astimezone(settings.zone).isoformat(timespec="minutes")
        out.print(f"{database.name}, as of {shown} (days in {settings.timezone})")
        for source in report.sources:
            newest = (
                source.newest.astimezone(settings.zone).isoformat(timespec="minutes")
                if source.newest
                else "-"
            )
            share = (
                "" if source.without is None else f"  {source.without:.0%} of customers without any"
            )
            out.print(f"  {source.relation:<16} {source.rows:>9,} rows  newest {newest}{share}")
        for problem in report.problems:
            rows = f" ({problem.rows:,} rows)" if problem.rows else ""
            where = f"{problem.relation}.{problem.column}" if problem.column else problem.relation
            out.print(f"✗ {where}: {problem.message}{rows}")
        out.print("✓ no problem found" if report.ok else f"{len(report.problems)} problems")
    return 0 if report.ok else 1


# --- map ---


def propose(files: list[Path], *, out: Path | None, as_json: bool, home: Path | None) -> int:
    """A mapping for these files, for a person to edit."""
    from followup_agent.customers.propose import propose_mapping

    folder = (out or Path("mapping.toml")).parent
    proposal = propose_mapping(files, folder, load_settings(home=home).timezone)
    if out is not None:
        try:
            with out.open("x", encoding="utf-8") as file:
                file.write(proposal.text)
        except FileExistsError as error:
            raise UsageError(f"{out} is there already: name another file.") from error
        except OSError as error:
            raise UsageError(f"cannot write {out}: {error.strerror}") from error
    if as_json:
        print_json(
            {"mapping": proposal.text, "relations": proposal.relations, "open": proposal.open}
        )
    elif out is None:
        console().print(proposal.text, end="")
    else:
        console().print(f"{out}: read it, edit it, then: followup data import --map {out}")
    for remark in proposal.open:
        notice(f"to be looked at: {remark}")
    return 0
