"""Read the four relations from CSV files: with our column names, or through a mapping file.

A mapping file is TOML that names the files and gives one SQL query a relation. The files become
tables of text in a SQLite database in memory, so renames, joins, constants, value tables and time
formats are plain SQL and no language of our own:

    [files]
    accounts = "accounts.csv"

    [relations]
    customers = '''
    SELECT account_id AS customer_id, account_name AS name, plan_tier AS segment,
           parse_time(signup_date, '%Y-%m-%d') AS signed_up_at
    FROM accounts'''

An empty cell is NULL. `parse_time(text, format)` reads a time in the given format (Python's
`strptime`); without it, times are ISO 8601. A time without zone is in the `timezone` of the file's
head, UTC by default.
"""

import csv
import sqlite3
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
)

from followup_agent.customers.load import Row, Rows
from followup_agent.customers.lookup import USER_ID_PATTERN
from followup_agent.service.errors import CustomerDataError
from followup_agent.service.settings import known_zone

RELATIONS = ("customers", "activity_events", "orders", "tickets")
MAX_CELL = 10_000_000


def _time(value: Any, info: ValidationInfo) -> Any:
    """ISO 8601; without a zone, in the mapping's."""
    if isinstance(value, datetime) or value is None:
        return value
    moment = datetime.fromisoformat(str(value).strip())
    zone: tzinfo = (info.context or {}).get("zone", UTC)
    return (moment.replace(tzinfo=zone) if moment.tzinfo is None else moment).astimezone(UTC)


Time = Annotated[datetime, BeforeValidator(_time)]
Id = Annotated[str, Field(min_length=1, max_length=200)]
CustomerId = Annotated[str, Field(pattern=USER_ID_PATTERN)]


class _Row(BaseModel):
    model_config = ConfigDict(extra="ignore", str_strip_whitespace=True, coerce_numbers_to_str=True)


class _Customer(_Row):
    customer_id: CustomerId
    name: str = ""
    segment: str = "general"
    signed_up_at: Time


class _Event(_Row):
    customer_id: CustomerId
    occurred_at: Time
    kind: Annotated[str, Field(min_length=1)] = "login"


class _Order(_Row):
    order_id: Id
    customer_id: CustomerId
    placed_at: Time
    paid_at: Time | None = None
    amount: Annotated[float, Field(allow_inf_nan=False)]
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")]
    status: Literal["placed", "paid", "cancelled", "refunded"]


class _Ticket(_Row):
    ticket_id: Id
    customer_id: CustomerId
    opened_at: Time
    closed_at: Time | None = None
    priority: Literal["low", "normal", "high", "urgent"]
    kind: str = "question"
    subject: str = ""
    body: str = ""


_MODELS: Mapping[str, type[_Row]] = {
    "customers": _Customer,
    "activity_events": _Event,
    "orders": _Order,
    "tickets": _Ticket,
}
_KEYS = {"customers": "customer_id", "orders": "order_id", "tickets": "ticket_id"}


def read_files(files: Mapping[str, Path]) -> Rows:
    """The rows of CSV files with our column names, by relation; all four are needed."""
    sources = {relation: Source(str(files[relation]), "line") for relation in RELATIONS}
    return _checked({name: _read_csv(files[name]) for name in RELATIONS}, sources, UTC)


def read_mapping(mapping: Path, folder: Path | None = None) -> Rows:
    """The rows that a mapping file makes of its CSV files; those are in `folder`, else beside it.

    CustomerDataError names the mapping's key, or the relation and the first bad row.
    """
    try:
        declared = _Mapping.model_validate(tomllib.loads(mapping.read_text(encoding="utf-8")))
    except OSError as error:
        raise CustomerDataError(f"cannot read mapping {mapping}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CustomerDataError(f"mapping {mapping} is not TOML text: {error}") from error
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(map(str, problem["loc"]))
        message = problem["msg"].removeprefix("Value error, ")
        raise CustomerDataError(f"mapping {mapping}, {where}: {message}") from error
    base = folder or mapping.parent
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.create_function("parse_time", 2, _parse_time, deterministic=True)
        for name, file in declared.files.items():
            try:
                _load_text_table(connection, name, _read_csv(base / file))
            except sqlite3.Error as error:
                raise CustomerDataError(f"{base / file} cannot be loaded: {error}") from error
        relations = {
            relation: _query(connection, mapping, relation, getattr(declared.relations, relation))
            for relation in RELATIONS
        }
        sources = {name: Source(f"{mapping}, relations.{name}", "row") for name in RELATIONS}
        return _checked(relations, sources, ZoneInfo(declared.timezone))


class _Relations(BaseModel):
    model_config = ConfigDict(extra="forbid")

    customers: str
    activity_events: str
    orders: str
    tickets: str


class _Mapping(BaseModel):
    model_config = ConfigDict(extra="forbid")

    files: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], str]
    relations: _Relations
    timezone: Annotated[str, AfterValidator(known_zone)] = "UTC"


@dataclass(frozen=True)
class Source:
    """Where rows come from, to name a bad one."""

    name: str
    counts: str
    """'line' of a file, or 'row' of a query's result."""


@dataclass(frozen=True)
class Table:
    """Columns, and rows with their numbers; empty cells are None."""

    columns: list[str]
    rows: Iterable[tuple[int, Sequence[Any]]]


def _read_csv(path: Path) -> Table:
    """One CSV file; CustomerDataError when it is none, or when its first line cannot name columns."""
    rows = _csv_rows(path)
    first = next(rows, None)
    if first is None:
        raise CustomerDataError(f"{path} is empty: the first line must name the columns")
    columns = [cell.strip() for cell in first[1]]
    twice = sorted({name for name in columns if columns.count(name) > 1 or not name})
    if twice:
        raise CustomerDataError(
            f"{path}, line 1: column {twice[0]!r} is named twice, or not at all"
        )

    def cells() -> Iterator[tuple[int, Sequence[Any]]]:
        for number, row in rows:
            if len(row) != len(columns):
                raise CustomerDataError(
                    f"{path}, line {number}: the first line names {len(columns)} columns, "
                    f"this one has {len(row)}"
                )
            yield number, [cell or None for cell in row]

    return Table(columns, cells())


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(MAX_CELL)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            for row in reader:
                if row:
                    yield reader.line_num, row
    except OSError as error:
        raise CustomerDataError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CustomerDataError(f"{path} is not UTF-8 text: save it as UTF-8 CSV") from error
    except csv.Error as error:
        raise CustomerDataError(f"{path} is not a CSV file: {error}") from error


def _load_text_table(connection: sqlite3.Connection, name: str, table: Table) -> None:
    names = ", ".join('"' + column.replace('"', '""') + '"' for column in table.columns)
    connection.execute(f'CREATE TABLE "{name}" ({names})')
    marks = ", ".join("?" * len(table.columns))
    insert = f'INSERT INTO "{name}" VALUES ({marks})'  # noqa: S608 - names are quoted
    connection.executemany(insert, (row for _, row in table.rows))


def _query(connection: sqlite3.Connection, mapping: Path, relation: str, sql: str) -> Table:
    try:
        cursor = connection.execute(sql)
        if cursor.description is None:
            raise CustomerDataError(f"mapping {mapping}, relations.{relation}: this is no SELECT")
        columns = [column[0] for column in cursor.description]
        return Table(columns, list(enumerate(cursor, start=1)))
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise CustomerDataError(f"mapping {mapping}, relations.{relation}: {error}") from error


def _parse_time(text: str | None, time_format: str) -> str | None:
    """The SQL function: NULL stays NULL; what does not fit comes out as it is, to be refused."""
    if text is None or not text.strip():
        return None
    try:
        return datetime.strptime(text.strip(), time_format).isoformat()  # noqa: DTZ007 - zoned later
    except ValueError:
        return text


def _checked(tables: Mapping[str, Table], sources: Mapping[str, Source], zone: tzinfo) -> Rows:
    """All rows, typed; CustomerDataError for the first bad one."""
    typed: dict[str, list[Row]] = {}
    known: set[str] = set()
    for name in RELATIONS:
        typed[name] = _typed(name, tables[name], sources[name], zone, known)
        known = known or {row["customer_id"] for row in typed["customers"]}
    return Rows(**typed)


def _typed(
    relation: str, table: Table, source: Source, zone: tzinfo, customers: set[str]
) -> list[Row]:
    """The rows of one relation; those of the others must be of one of the customers."""
    model, key = _MODELS[relation], _KEYS.get(relation)
    missing = [name for name in model.model_fields if name not in table.columns]
    if missing:
        raise CustomerDataError(
            f"{source.name}: no column {', '.join(map(repr, missing))}; "
            f"{relation} needs {', '.join(model.model_fields)}"
        )
    seen: dict[str, int] = {}
    typed: list[Row] = []
    for number, cells in table.rows:
        where = f"{source.name}, {source.counts} {number}"
        raw = dict(zip(table.columns, cells, strict=True))
        given = {name: value for name, value in raw.items() if value is not None}
        try:
            row = model.model_validate(given, context={"zone": zone}).model_dump()
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            column = str(problem["loc"][0])
            said = "is empty" if raw.get(column) is None else f"is {str(raw[column])[:60]!r}"
            message = problem["msg"].removeprefix("Value error, ")
            raise CustomerDataError(f"{where}: {column} {said}: {message}") from error
        if relation != "customers" and row["customer_id"] not in customers:
            raise CustomerDataError(
                f"{where}: customer_id {row['customer_id']!r} is not among the customers"
            )
        if key is not None and (before := seen.setdefault(row[key], number)) != number:
            raise CustomerDataError(
                f"{where}: {key} {row[key]!r} is there already ({source.counts} {before})"
            )
        typed.append(row)
    return typed
