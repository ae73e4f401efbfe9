"""A mapping file: an export of another form as our relations, by one SQL query for each.

A mapping is TOML. It names the files and gives a query for every relation there is; a relation that
is left out has no source. The files become tables of text in a temporary SQLite database, so
renames, joins, constants and value tables are plain SQL and no language of our own:

    timezone = "Asia/Shanghai"

    [files]
    accounts = "accounts.csv"
    visits = { path = "visits.txt", encoding = "gb18030", delimiter = ";" }

    [relations]
    customers = '''
    SELECT account_id AS customer_id, account_name AS name, plan_tier AS segment,
           parse_time(signup_date, '%d/%m/%Y') AS signed_up_at, _at
    FROM accounts'''

An empty cell is NULL, and so is an empty text that a query gives. `parse_time(text, form)` reads a time of a form that `customers/cells.py` does
not know by itself (Python's `strptime`), `parse_amount(text, ',')` an amount with this decimal mark.
A time without a zone is in `timezone`, by default the zone
in which days are counted (`FOLLOWUP_TIMEZONE`). Every table has a column `_at`, the file and
line of each row: a query that selects it lets a bad row be named by them.
"""

import sqlite3
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from followup_agent.customers.cells import Decimals, parse_amount
from followup_agent.customers.files import Record, Table, known_encoding, open_table
from followup_agent.customers.rows import AT, RELATIONS, Problem, Reading, Rejects, Source
from followup_agent.service.errors import CustomerDataError
from followup_agent.service.settings import known_zone

_READING = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}
"""A mapping may come from somebody else: its queries attach no file and change nothing."""


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class MappedFile(_Closed):
    """One file of a mapping, and how it is read where that cannot be told from it."""

    path: str
    encoding: Annotated[str, AfterValidator(known_encoding)] | None = None
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] | None = None


class _Relations(_Closed):
    customers: str
    activity_events: str | None = None
    orders: str | None = None
    tickets: str | None = None


Watch = Callable[[str, Table], Table]
"""Sees the rows of a named table go by."""
Name = Annotated[str, Field(pattern=r"^[^\W\d]\w*$")]


class MappingFile(_Closed):
    """What a mapping file says."""

    files: dict[Name, MappedFile | str]
    relations: _Relations
    timezone: Annotated[str, AfterValidator(known_zone)] | None = None
    decimal: Decimals | None = None

    def reading(self, zone: tzinfo = UTC) -> Reading:
        """How cells are read; `zone` is that of times without one, where the mapping names none."""
        own = ZoneInfo(self.timezone) if self.timezone else zone
        return Reading(zone=own, decimals=self.decimal)


def read_mapping(path: Path) -> MappingFile:
    """The mapping in this file; CustomerDataError names what is wrong in it."""
    try:
        return MappingFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise CustomerDataError(f"cannot read mapping {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CustomerDataError(f"mapping {path} is not TOML text: {error}") from error
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(map(str, problem["loc"]))
        message = problem["msg"].removeprefix("Value error, ")
        raise CustomerDataError(f"mapping {path}, {where}: {message}") from error


@contextmanager
def mapped_tables(
    mapping: MappingFile, path: Path, folder: Path, rejects: Rejects, watch: Watch
) -> Iterator[dict[str, tuple[Table, Source]]]:
    """The relations that the mapping makes of the files in `folder`.

    `watch(name, table)` sees the rows of a file go by. CustomerDataError for a file or a query.
    """
    # "" is a temporary database on disk, of which SQLite keeps a few pages in memory.
    with closing(sqlite3.connect("", isolation_level=None)) as connection:
        connection.create_function("parse_time", 2, _sql_time, deterministic=True)
        for arguments in (1, 2):
            connection.create_function("parse_amount", arguments, _sql_amount, deterministic=True)
        for name, declared in mapping.files.items():
            file = MappedFile(path=declared) if isinstance(declared, str) else declared
            where = folder / file.path
            table = open_table(where, encoding=file.encoding, delimiter=file.delimiter)
            try:
                _load(connection, name, where, watch(where.name, table), rejects)
            except sqlite3.Error as error:
                raise CustomerDataError(f"{where} cannot be loaded: {error}") from error
        queries: Mapping[str, str | None] = mapping.relations.model_dump()
        yield {
            relation: (
                _query(connection, path, relation, sql),
                Source(f"{path}, relations.{relation}", "row"),
            )
            for relation in RELATIONS
            if (sql := queries[relation]) is not None
        }


def _load(
    connection: sqlite3.Connection, name: str, path: Path, table: Table, rejects: Rejects
) -> None:
    """One file as a table of text."""

    def rows() -> Iterator[list[Any]]:
        for record in table.rows:
            if record.fault:
                problem = Problem("files", str(path), record.line, "", record.fault)
                rejects.add(problem, {"cells": list(record.cells)})
            else:
                yield [*map(_text, record.cells), f"{path}:{record.line}"]

    columns = [*table.columns, AT]
    names = ", ".join('"' + column.replace('"', '""') + '"' for column in columns)
    marks = ", ".join("?" * len(columns))
    connection.execute(f'CREATE TABLE "{name}" ({names})')
    connection.execute("BEGIN")
    insert = f'INSERT INTO "{name}" VALUES ({marks})'  # noqa: S608 - quoted names, in a database of our own
    connection.executemany(insert, rows())
    connection.execute("COMMIT")


def _text(cell: Any) -> Any:
    return cell if cell is None or isinstance(cell, str | int | float) else str(cell)


def _query(connection: sqlite3.Connection, path: Path, relation: str, sql: str) -> Table:
    """The result of a mapping's query, row by row. It may look at the tables, and do nothing else."""
    connection.set_authorizer(
        lambda action, *_: sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY
    )
    try:
        cursor = connection.execute(sql)
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise CustomerDataError(f"mapping {path}, relations.{relation}: {error}") from error
    finally:
        connection.set_authorizer(None)
    if cursor.description is None:
        raise CustomerDataError(f"mapping {path}, relations.{relation}: this is no SELECT")

    def records() -> Iterator[Record]:
        try:
            for number, cells in enumerate(cursor, start=1):
                yield Record(number, cells)
        except sqlite3.Error as error:
            raise CustomerDataError(f"mapping {path}, relations.{relation}: {error}") from error

    return Table([column[0] for column in cursor.description], records())


def _sql_time(text: Any, form: str) -> Any:
    """NULL stays NULL; what does not fit comes out as it is, to be refused with its row."""
    if text is None or not str(text).strip():
        return None
    try:
        return datetime.strptime(str(text).strip(), form).isoformat()  # noqa: DTZ007 - zoned later
    except ValueError:
        return text


def _sql_amount(text: Any, decimals: Any = None) -> Any:
    """The same, for an amount."""
    if text is None or not str(text).strip():
        return None
    try:
        return parse_amount(text if isinstance(text, int | float) else str(text), decimals)
    except ValueError:
        return text
