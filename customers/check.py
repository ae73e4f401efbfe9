"""`followup data check`: what is wrong with the business data, before anybody is judged by them.

Read-only, and every check is one query that the database answers by counting; on large tables it
takes as long as reading them.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta, tzinfo
from typing import Any, NamedTuple

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Dialect,
    Index,
    MetaData,
    Table,
    and_,
    exists,
    func,
    inspect,
    select,
)
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.schema import CreateIndex

from followup_agent.customers.cells import MAX_YEAR, MIN_YEAR
from followup_agent.customers.database import CustomerDatabase
from followup_agent.customers.freshness import SOURCE_TIMES, freshness
from followup_agent.customers.structure import faults_of
from followup_agent.customers.tables import (
    PRIORITIES,
    READ_RELATIONS,
    STATUSES,
    Instant,
    activity_events,
    customers,
    instant,
    orders,
    tickets,
)
from followup_agent.service.errors import CustomerDataError

UNUSUAL_SHARE = 0.5
"""Where more of the customers than this have never had an event, the source is probably connected
only in part."""
SETTLED_DAYS = 30
"""Customers who signed up this long ago should have been active once."""


class DataProblem(NamedTuple):
    """One thing that is wrong."""

    relation: str
    column: str | None
    rows: int | None
    """How many rows have it; None where it is no matter of rows."""
    message: str


class SourceReport(NamedTuple):
    """One relation as it stands."""

    relation: str
    rows: int
    newest: datetime | None
    """Of its times up to `as_of`; None for none."""
    without: float | None
    """Share of the customers without any row, 0 to 1; None for the customers themselves."""


class DataReport(NamedTuple):
    """What was found."""

    problems: list[DataProblem]
    sources: list[SourceReport]

    @property
    def ok(self) -> bool:
        """Nothing is wrong."""
        return not self.problems

    def as_json(self) -> dict[str, Any]:
        """The contract's document, and how each source stands."""
        return {
            "ok": self.ok,
            "problems": [problem._asdict() for problem in self.problems],
            "sources": [
                {
                    "relation": source.relation,
                    "rows": source.rows,
                    "newest": source.newest and source.newest.isoformat(),
                    "customers_without": source.without,
                }
                for source in self.sources
            ],
        }


def check_data(database: CustomerDatabase, as_of: datetime, zone: tzinfo) -> DataReport:
    """Everything that is wrong; CustomerDataError when the database cannot be looked at."""
    database.require()
    try:
        with database.reader.connect() as connection:
            faults = [
                DataProblem(fault.relation, fault.column or None, None, fault.message)
                for fault in faults_of(connection)
            ]
            if faults:  # no query would be answered
                return DataReport(faults, [])
            check = _Check(connection, database, as_of, zone)
            sources = [check.source(table) for table in READ_RELATIONS]
            return DataReport([*check.problems(sources)], sources)
    except SQLAlchemyError as error:
        raise CustomerDataError(database.why(error)) from error


class _Check:
    """The queries, in one transaction."""

    def __init__(
        self, connection: Connection, database: CustomerDatabase, as_of: datetime, zone: tzinfo
    ) -> None:
        self._connection, self._as_of, self._zone = connection, as_of, zone
        self._limits = database.stale_after_days
        self._customers = self._count(customers)

    def source(self, table: Table) -> SourceReport:
        """How many rows, how fresh, for how many customers."""
        rows = self._count(table)
        if table is customers:
            return SourceReport(table.name, rows, None, None)
        limit = self._limits.get(table.name)
        newest = freshness(self._connection, table.name, self._as_of, limit).newest
        theirs = exists().where(table.c.customer_id == customers.c.customer_id)
        without = self._count(customers, ~theirs)
        return SourceReport(
            table.name, rows, newest, without / self._customers if self._customers else 0.0
        )

    def problems(self, sources: list[SourceReport]) -> Iterator[DataProblem]:
        """All of them, in the order of the relations."""
        for table in READ_RELATIONS:
            yield from self._keys(table)
            yield from self._times(table)
            if table is not customers:
                yield from self._orphans(table)
            yield from self._indexes(table)
        yield from self._values()
        for source in sources:
            yield from self._connected(source)

    def _keys(self, table: Table) -> Iterator[DataProblem]:
        """Keys that are empty or there twice: a view has no constraint against either."""
        column = next(iter(table.primary_key.columns), table.c.customer_id)
        yield from self._rows(table, column, column.is_(None) | (column == ""), "is empty")
        if table.primary_key.columns:
            twice = select(column).group_by(column).having(func.count() > 1).subquery()
            count = self._scalar(select(func.count()).select_from(twice))
            if count:
                yield DataProblem(
                    table.name,
                    column.name,
                    count,
                    "is there more than once: every count of them is too high",
                )

    def _orphans(self, table: Table) -> Iterator[DataProblem]:
        known = exists().where(customers.c.customer_id == table.c.customer_id)
        yield from self._rows(
            table, table.c.customer_id, ~known, "is not among the customers: nobody is judged by it"
        )

    def _times(self, table: Table) -> Iterator[DataProblem]:
        for column in table.columns:
            if not isinstance(column.type, Instant):
                continue
            moment: ColumnElement[Any] = instant(column)
            unreadable: ColumnElement[bool] = moment.is_(None)
            if column.nullable:
                unreadable = and_(column.is_not(None), unreadable)
            yield from self._rows(table, column, unreadable, "is empty, or holds what is no time")
            first = datetime(MIN_YEAR, 1, 1, tzinfo=self._zone)
            last = datetime(MAX_YEAR, 12, 31, tzinfo=self._zone)
            yield from self._rows(
                table,
                column,
                (moment < first) | (moment > last),
                f"is an impossible time: before {MIN_YEAR} or after {MAX_YEAR}",
            )
            yield from self._rows(
                table,
                column,
                (moment > self._as_of) & (moment <= last),
                f"is later than {self._as_of:%Y-%m-%d %H:%M} UTC: not seen until then, or in another zone",
            )

    def _values(self) -> Iterator[DataProblem]:
        """What the words and numbers may be."""
        yield from self._rows(
            tickets,
            tickets.c.priority,
            tickets.c.priority.is_(None) | tickets.c.priority.not_in(PRIORITIES),
            f"is none of {', '.join(PRIORITIES)}: never counted as urgent",
        )
        yield from self._rows(
            orders,
            orders.c.status,
            orders.c.status.is_(None) | orders.c.status.not_in(STATUSES),
            f"is none of {', '.join(STATUSES)}: counted as paid when it has a time of payment",
        )
        yield from self._rows(orders, orders.c.amount, orders.c.amount.is_(None), "is empty")
        yield from self._rows(
            tickets,
            tickets.c.closed_at,
            instant(tickets.c.closed_at) < instant(tickets.c.opened_at),
            "is before opened_at",
        )
        yield from self._rows(
            orders,
            orders.c.paid_at,
            instant(orders.c.paid_at) < instant(orders.c.placed_at),
            "is before placed_at",
        )

    def _connected(self, source: SourceReport) -> Iterator[DataProblem]:
        """Whether silence says anything about a customer."""
        if source.relation == "customers":
            if not source.rows:
                yield DataProblem("customers", None, None, "holds nothing: nobody can be judged")
            return
        column = SOURCE_TIMES[source.relation].name
        if source.newest is None:
            yield DataProblem(
                source.relation,
                None,
                None,
                "holds nothing: this source is not connected, and verdicts may be undetermined",
            )
            return
        limit = self._limits.get(source.relation)
        if freshness(self._connection, source.relation, self._as_of, limit).is_stale:
            days = (self._as_of - source.newest).days
            yield DataProblem(
                source.relation,
                column,
                None,
                f"is stale: nothing newer than {source.newest:%Y-%m-%d} from any customer, for {days} "
                f"days (more than {limit}); until it is fresh it counts as failed",
            )
        if source.relation == "activity_events":
            yield from self._never_active()

    def _never_active(self) -> Iterator[DataProblem]:
        settled = instant(customers.c.signed_up_at) <= self._as_of - timedelta(days=SETTLED_DAYS)
        theirs = exists().where(activity_events.c.customer_id == customers.c.customer_id)
        count, never = self._count(customers, settled), self._count(customers, settled, ~theirs)
        if count and never / count > UNUSUAL_SHARE:
            yield DataProblem(
                "activity_events",
                "customer_id",
                never,
                f"{never / count:.0%} of the customers who signed up over {SETTLED_DAYS} days ago have "
                "no event at all: are they inactive, or is their activity not connected?",
            )

    def _indexes(self, table: Table) -> Iterator[DataProblem]:
        """Indexes that are missing on a table; what lies under a view is not known here."""
        inspector = inspect(self._connection)
        if table.name in inspector.get_view_names():
            return
        there = [tuple(index["column_names"]) for index in inspector.get_indexes(table.name)]
        key = tuple(inspector.get_pk_constraint(table.name)["constrained_columns"])
        wanted = tuple(column.name for column in table.primary_key.columns)
        unique = {
            tuple(i["column_names"]) for i in inspector.get_indexes(table.name) if i["unique"]
        }
        if wanted and wanted != key and wanted not in unique:
            copy = Table(table.name, MetaData(), Column(wanted[0]))
            made = Index(f"uq_{table.name}_{wanted[0]}", copy.c[wanted[0]], unique=True)
            statement = _statement(CreateIndex(made), self._connection.dialect)
            yield DataProblem(table.name, wanted[0], None, f"has no key: {statement};")
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            names = tuple(column.name for column in index.columns)
            if not any(one[: len(names)] == names for one in (*there, key)):
                yield DataProblem(
                    table.name,
                    ", ".join(names),
                    None,
                    f"has no index: {_statement(CreateIndex(index), self._connection.dialect)};",
                )

    def _rows(
        self, table: Table, column: Column[Any], where: ColumnElement[bool], message: str
    ) -> Iterator[DataProblem]:
        count = self._count(table, where)
        if count:
            yield DataProblem(table.name, column.name, count, message)

    def _count(self, table: Table, *where: Any) -> int:
        return self._scalar(select(func.count()).select_from(table).where(*where))

    def _scalar(self, statement: Any) -> int:
        return int(self._connection.execute(statement).scalar_one())


def _statement(element: CreateIndex, dialect: Dialect) -> str:
    return " ".join(str(element.compile(dialect=dialect)).split())
