"""`followup data sample` and `followup data import`."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from followup_agent.cli.output import console, print_json
from followup_agent.customers.database import CustomerDatabase
from followup_agent.customers.load import Rows, replace_all
from followup_agent.goals.times import parse_as_of
from followup_agent.service.errors import InvalidOption, UsageError
from followup_agent.service.home import make_home
from followup_agent.service.settings import Settings, load_settings


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
    try:
        moment = parse_as_of(as_of, settings.zone) if as_of else datetime.now(UTC)
    except ValueError as error:
        raise InvalidOption(str(error)) from error
    rows = make_company(customers, seed, moment)
    return _fill(settings, rows, is_sample=True, replace=replace, as_json=as_json)


def load(
    files: Mapping[str, Path | None],
    *,
    mapping: Path | None,
    folder: Path | None,
    replace: bool,
    as_json: bool,
    home: Path | None,
) -> int:
    """The user's own data."""
    from followup_agent.customers.csv_import import read_files, read_mapping

    given = {relation: path for relation, path in files.items() if path is not None}
    if mapping is not None and given:
        raise UsageError("--map names the files itself: leave the other files out.")
    if mapping is None and len(given) < len(files):
        options = {"activity_events": "activity"}
        missing = [f"--{options.get(name, name)}" for name in files if name not in given]
        raise UsageError(f"{', '.join(missing)} is missing (or use --map FILE).")
    settings = load_settings(home=home)
    rows = read_files(given) if mapping is None else read_mapping(mapping, folder)
    return _fill(settings, rows, is_sample=False, replace=replace, as_json=as_json)


def _fill(settings: Settings, rows: Rows, *, is_sample: bool, replace: bool, as_json: bool) -> int:
    if settings.customers_url is None:
        make_home(settings.home)
    database = CustomerDatabase(settings.customers_database_url)
    try:
        replace_all(database, rows, is_sample=is_sample, replace=replace)
    finally:
        database.close()
    if as_json:
        print_json({"database": database.name, "rows": rows.counts()})
        return 0
    counts = ", ".join(f"{count:,} {name}" for name, count in rows.counts().items())
    console().print(f"{database.name}: {counts}")
    if is_sample:
        console().print("Try: followup ask '帮我判断 user_123 最近是否需要重点跟进'")
    return 0
