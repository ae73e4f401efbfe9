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
import re
import sqlite3
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from followup_agent.customers.load import Row, Rows
from followup_agent.service.errors import CustomerDataError

RELATIONS = ("customers", "activity_events", "orders", "tickets")
MAX_CELL = 10_000_000


def _time(value: Any) -> Any:
    if isinstance(value, datetime) or value is None:
        return value
    moment = datetime.fromisoformat(str(value).strip())
    return (moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment).astimezone(UTC)


Time = Annotated[datetime, BeforeValidator(_time)]
Id = Annotated[str, Field(min_length=1, max_length=200)]


class _Row(BaseModel):
    model_config = ConfigDict(extra="ignore", str_strip_whitespace=True, coerce_numbers_to_str=True)


class _Customer(_Row):
    customer_id: Id
    name: str = ""
    segment: str = "general"
    signed_up_at: Time


class _Event(_Row):
    customer_id: Id
    occurred_at: Time
    kind: Annotated[str, Field(min_length=1)] = "login"


class _Order(_Row):
    order_id: Id
    customer_id: Id
    placed_at: Time
    paid_at: Time | None = None
    amount: Annotated[float, Field(allow_inf_nan=False)]
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")]
    status: Literal["placed", "paid", "cancelled", "refunded"]


class _Ticket(_Row):
    ticket_id: Id
    customer_id: Id
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
    return _checked(
        {relation: _numbered(files[relation]) for relation in RELATIONS},
        {relation: str(files[relation]) for relation in RELATIONS},
    )


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
        raise CustomerDataError(f"mapping {mapping}, {where}: {problem['msg']}") from error
    base = folder or mapping.parent
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.create_function("parse_time", 2, _parse_time, deterministic=True)
        for name, file in declared.files.items():
            _load_text_table(connection, name, base / file)
        relations = {
            relation: _query(connection, mapping, relation, getattr(declared.relations, relation))
            for relation in RELATIONS
        }
        zone = ZoneInfo(declared.timezone)
        return _checked(
            {relation: _with_zone(rows, zone) for relation, rows in relations.items()},
            {relation: f"{mapping}, relations.{relation}" for relation in RELATIONS},
        )


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
    timezone: str = "UTC"


NumberedRow = tuple[int, Mapping[str, Any]]
"""Line of the file, or number of the row a query gave; and the row."""


def _numbered(path: Path) -> Iterator[NumberedRow]:
    """The rows of one CSV file with their line numbers; empty cells are None."""
    csv.field_size_limit(MAX_CELL)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, restkey="", strict=True)
            if reader.fieldnames is None:
                raise CustomerDataError(f"{path} is empty: the first line must name the columns")
            for row in reader:
                if "" in row or None in row.values():
                    raise CustomerDataError(
                        f"{path}, line {reader.line_num}: {len(reader.fieldnames)} columns are "
                        "named in the first line, this one has more or fewer"
                    )
                yield reader.line_num, {name: cell or None for name, cell in row.items()}
    except OSError as error:
        raise CustomerDataError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CustomerDataError(f"{path} is not UTF-8 text: save it as UTF-8 CSV") from error
    except csv.Error as error:
        raise CustomerDataError(f"{path} is not a CSV file: {error}") from error


def _load_text_table(connection: sqlite3.Connection, name: str, path: Path) -> None:
    rows = _numbered(path)
    first = next(rows, None)
    if first is None:
        columns = path.read_text(encoding="utf-8-sig").splitlines()[0].split(",")
    else:
        columns = list(first[1])
    names = ", ".join(f'"{column.strip()}"' for column in columns)
    connection.execute(f'CREATE TABLE "{name}" ({names})')
    if first is not None:
        marks = ", ".join("?" * len(columns))
        content = (tuple(row.values()) for _, row in (first, *rows))
        connection.executemany(f'INSERT INTO "{name}" VALUES ({marks})', content)  # noqa: S608 - the name has the form of one, and SQLite quotes it


def _query(
    connection: sqlite3.Connection, mapping: Path, relation: str, sql: str
) -> Iterable[NumberedRow]:
    try:
        cursor = connection.execute(sql)
        columns = [column[0] for column in cursor.description or ()]
        return [
            (number, dict(zip(columns, row, strict=True)))
            for number, row in enumerate(cursor, start=1)
        ]
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


_NAIVE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?")


def _with_zone(rows: Iterable[NumberedRow], zone: ZoneInfo) -> Iterator[NumberedRow]:
    """Times without zone, read in the mapping's zone."""
    for number, row in rows:
        yield (
            number,
            {
                name: datetime.fromisoformat(value).replace(tzinfo=zone)
                if name.endswith("_at") and isinstance(value, str) and _NAIVE.fullmatch(value)
                else value
                for name, value in row.items()
            },
        )


def _checked(relations: Mapping[str, Iterable[NumberedRow]], sources: Mapping[str, str]) -> Rows:
    """All rows, typed; CustomerDataError for the first bad one."""
    checked: dict[str, list[Row]] = {}
    for relation in RELATIONS:
        model, key = _MODELS[relation], _KEYS.get(relation)
        seen: dict[str, int] = {}
        checked[relation] = []
        for number, raw in relations[relation]:
            where = f"{sources[relation]}, line {number}"
            if "relations." in sources[relation]:
                where = f"{sources[relation]}, row {number}"
            missing = [name for name in model.model_fields if name not in raw]
            if missing:
                raise CustomerDataError(
                    f"{sources[relation]}: no column {', '.join(map(repr, missing))}; "
                    f"{relation} needs {', '.join(model.model_fields)}"
                )
            given = {name: value for name, value in raw.items() if value is not None}
            try:
                row = model.model_validate(given).model_dump()
            except ValidationError as error:
                problem = error.errors(include_url=False)[0]
                column = str(problem["loc"][0])
                cell = raw.get(column)
                said = "is empty" if cell is None else f"is {str(cell)[:60]!r}"
                message = problem["msg"].removeprefix("Value error, ")
                raise CustomerDataError(f"{where}: {column} {said}: {message}") from error
            if key is not None and (before := seen.setdefault(row[key], number)) != number:
                raise CustomerDataError(f"{where}: {key} {row[key]!r} is there already ({before})")
            checked[relation].append(row)
    return Rows(**checked)
