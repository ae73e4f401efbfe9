"""From the cells of an export to typed rows; what is wrong with a row is told, and the row left out."""

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TextIO

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    with_config,
)
from typing_extensions import TypedDict

from followup_agent.customers.cells import Decimals, parse_amount, parse_time
from followup_agent.customers.files import Record, Table
from followup_agent.customers.load import Row
from followup_agent.customers.lookup import USER_ID_PATTERN
from followup_agent.customers.tables import PRIORITIES, STATUSES
from followup_agent.service.errors import CustomerDataError

RELATIONS = ("customers", "activity_events", "orders", "tickets")
AT = "_at"
"""A column that a mapping's query may select: file and line that a row comes from."""
MAX_SHOWN = 100
"""Bad rows kept to be shown. All are counted, and all are written to the file of rejects."""
MAX_VALUE = 60


@dataclass(frozen=True)
class Reading:
    """How cells are read."""

    zone: tzinfo = UTC
    """Of times without a zone of their own."""
    time_forms: Sequence[str] = ()
    decimals: Decimals | None = None


def _time(value: Any, info: ValidationInfo) -> datetime:
    reading: Reading = info.context  # type: ignore[assignment] # always given
    return parse_time(value, reading.zone, reading.time_forms)


def _amount(value: Any, info: ValidationInfo) -> float:
    reading: Reading = info.context  # type: ignore[assignment] # always given
    return parse_amount(value, reading.decimals)


_ROW = ConfigDict(extra="ignore", str_strip_whitespace=True, coerce_numbers_to_str=True)
Time = Annotated[datetime, BeforeValidator(_time)]
Id = Annotated[str, Field(min_length=1, max_length=200)]
CustomerId = Annotated[str, Field(pattern=USER_ID_PATTERN)]


@with_config(_ROW)
class _Customer(TypedDict):
    customer_id: CustomerId
    name: NotRequired[str]
    segment: NotRequired[Annotated[str, Field(max_length=100)]]
    signed_up_at: Time


@with_config(_ROW)
class _Event(TypedDict):
    customer_id: CustomerId
    occurred_at: Time
    kind: NotRequired[Annotated[str, Field(min_length=1, max_length=50)]]


@with_config(_ROW)
class _Order(TypedDict):
    order_id: Id
    customer_id: CustomerId
    placed_at: Time
    paid_at: NotRequired[Time]
    amount: Annotated[float, BeforeValidator(_amount)]
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")]
    status: Literal[STATUSES]  # type: ignore[valid-type] # a tuple of literals


@with_config(_ROW)
class _Ticket(TypedDict):
    ticket_id: Id
    customer_id: CustomerId
    opened_at: Time
    closed_at: NotRequired[Time]
    priority: Literal[PRIORITIES]  # type: ignore[valid-type] # a tuple of literals
    kind: NotRequired[Annotated[str, Field(max_length=50)]]
    subject: NotRequired[str]
    body: NotRequired[str]


class _Relation(NamedTuple):
    row: TypeAdapter[Any]
    empty: Row
    """What stands for an empty cell, and the columns in their order."""
    key: str | None


_PATTERN_IN_WORDS = {
    "customer_id": "an id begins with a letter or digit and has up to 64 of them and of _ . : @ / + -",
    "currency": "three capitals are needed, e.g. CNY",
}
_NONE: Any = None
_RELATIONS: Mapping[str, _Relation] = {
    "customers": _Relation(
        TypeAdapter(_Customer),
        {"customer_id": _NONE, "name": "", "segment": "general", "signed_up_at": _NONE},
        "customer_id",
    ),
    "activity_events": _Relation(
        TypeAdapter(_Event), {"customer_id": _NONE, "occurred_at": _NONE, "kind": "login"}, None
    ),
    "orders": _Relation(
        TypeAdapter(_Order),
        dict.fromkeys(
            ("order_id", "customer_id", "placed_at", "paid_at", "amount", "currency", "status")
        ),
        "order_id",
    ),
    "tickets": _Relation(
        TypeAdapter(_Ticket),
        dict.fromkeys(("ticket_id", "customer_id", "opened_at", "closed_at", "priority"))
        | {"kind": "question", "subject": "", "body": ""},
        "ticket_id",
    ),
}


def columns_of(relation: str) -> list[str]:
    """The columns that a file or a query must have for this relation."""
    return list(_RELATIONS[relation].empty)


@dataclass(frozen=True)
class Source:
    """Where rows come from, to name a bad one."""

    name: str
    counts: Literal["line", "row"] = "line"
    """Lines of a file, or rows of a query's result."""


class Problem(NamedTuple):
    """What is wrong with one row."""

    relation: str
    file: str
    line: int
    column: str
    message: str
    counts: str = "line"

    def __str__(self) -> str:
        """As a person reads it."""
        column = f"{self.column} " if self.column else ""
        return f"{self.file}, {self.counts} {self.line}: {column}{self.message}"


@dataclass
class Rejects:
    """The rows that were left out: all counted and written to a file, the first ones kept."""

    path: Path | None = None
    shown: list[Problem] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    _file: TextIO | None = field(default=None, repr=False)
    _writer: Any = field(default=None, repr=False)

    def __enter__(self) -> "Rejects":
        """Open the file; CustomerDataError when it cannot be written."""
        if self.path is not None:
            try:
                self._file = self.path.open("w", encoding="utf-8", newline="")
            except OSError as error:
                raise CustomerDataError(f"cannot write {self.path}: {error.strerror}") from error
            self._writer = csv.writer(self._file)
            self._writer.writerow(["file", "line", "column", "reason", "row"])
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        if self._file is not None:
            with suppress(OSError):  # a full disk was told by the row that was not written
                self._file.close()

    @property
    def total(self) -> int:
        """How many rows were left out."""
        return self.counts.total()

    def add(self, problem: Problem, row: Any) -> None:
        """Leave this row out."""
        self.counts[problem.relation] += 1
        if len(self.shown) < MAX_SHOWN:
            self.shown.append(problem)
        if self._writer is not None:
            cells = json.dumps(row, ensure_ascii=False, default=str)
            try:
                where = (problem.file, problem.line, problem.column)
                self._writer.writerow([*where, problem.message, cells])
            except OSError as error:
                raise CustomerDataError(f"cannot write {self.path}: {error.strerror}") from error


def require_columns(relation: str, table: Table, source: Source) -> None:
    """CustomerDataError when the relation lacks a column."""
    needed = columns_of(relation)
    missing = [name for name in needed if name not in table.columns]
    if missing:
        raise CustomerDataError(
            f"{source.name}: no column {', '.join(map(repr, missing))}; {relation} needs "
            f"{', '.join(needed)} (`followup data map` proposes a mapping for files of another form)"
        )


def typed_rows(
    relation: str,
    table: Table,
    source: Source,
    reading: Reading,
    rejects: Rejects,
    customers: set[str],
) -> Iterator[Row]:
    """The good rows of one relation; the bad ones go to `rejects`.

    `customers` is filled by the rows of that relation, and those of the others must be of one of
    them. A second row of a key is a bad one. CustomerDataError when no good row is left.
    """
    require_columns(relation, table, source)
    check = _Checker(relation, table, source, reading, customers)
    good = 0
    for record in table.rows:
        row, problem = check.row(record)
        if problem is None:
            good += 1
            yield row
        else:
            rejects.add(problem, row)
    if not good:
        first = next((p for p in rejects.shown if p.relation in (relation, "files")), None)
        raise CustomerDataError(
            f"no row is good; {first}"
            if first is not None
            else f"{source.name} names columns and holds no row: leave {relation} out if there is none"
        )


def _is_blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


class _Checker:
    """Checks the rows of one relation, one after another."""

    def __init__(
        self, relation: str, table: Table, source: Source, reading: Reading, customers: set[str]
    ) -> None:
        self._relation, self._columns, self._source = relation, table.columns, source
        self._reading, self._customers = reading, customers
        self._validate, self._empty, self._key = _RELATIONS[relation]
        self._seen: dict[str, int] = {}

    def row(self, record: Record) -> tuple[Row, Problem | None]:
        """The typed row; or the cells, and what is wrong with them."""
        if record.fault:
            return {"cells": list(record.cells)}, self._problem(record, {}, "", record.fault)
        raw = dict(zip(self._columns, record.cells, strict=True))
        given = {name: value for name, value in raw.items() if not _is_blank(value)}
        try:
            row: Row = self._validate.validate_python(given, context=self._reading)
        except ValidationError as error:
            return raw, self._invalid(record, raw, error)
        row = self._empty | row
        customer = row["customer_id"]
        if self._relation == "customers":
            pass
        elif customer not in self._customers:
            said = f"{customer!r} is not among the customers"
            return raw, self._problem(record, raw, "customer_id", said)
        if self._key is not None:
            before = self._seen.setdefault(row[self._key], record.line)
            if before != record.line:
                said = f"{row[self._key]!r} is there already ({self._source.counts} {before})"
                return raw, self._problem(record, raw, self._key, said)
        if self._relation == "customers":
            self._customers.add(customer)
        return row, None

    def _invalid(self, record: Record, raw: Row, error: ValidationError) -> Problem:
        problem = error.errors(include_url=False)[0]
        column = str(problem["loc"][0])
        value = raw.get(column)
        said = "is empty" if _is_blank(value) else f"is {str(value)[:MAX_VALUE]!r}"
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "missing":
            message = "it is needed"
        elif problem["type"] == "string_pattern_mismatch":
            message = _PATTERN_IN_WORDS[column]
        return self._problem(record, raw, column, f"{said}: {message}")

    def _problem(self, record: Record, raw: Row, column: str, message: str) -> Problem:
        file, line, counts = self._source.name, record.line, self._source.counts
        origin, _, of_file = str(raw.get(AT) or "").rpartition(":")
        if origin and of_file.isdigit():
            file, line, counts = origin, int(of_file), "line"
        return Problem(self._relation, file, line, column, message, counts)
