"""Put rows into the customer database: all of them in one transaction, or none."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Table, func, inspect, select
from sqlalchemy.exc import SQLAlchemyError

from followup_agent.customers.database import CustomerDatabase
from followup_agent.customers.tables import (
    READ_RELATIONS,
    activity_events,
    customers,
    orders,
    tickets,
)
from followup_agent.service.errors import CustomerDataError

Row = dict[str, Any]
CHUNK = 5000
SAMPLE_MARK = "followup_sample"
"""A table that says that the data were made up, and may be replaced without a word."""


@dataclass
class Rows:
    """Rows of the four relations, by column name."""

    customers: list[Row] = field(default_factory=list)
    activity_events: list[Row] = field(default_factory=list)
    orders: list[Row] = field(default_factory=list)
    tickets: list[Row] = field(default_factory=list)

    def by_table(self) -> list[tuple[Table, list[Row]]]:
        """In the order they are written."""
        return [
            (customers, self.customers),
            (activity_events, self.activity_events),
            (orders, self.orders),
            (tickets, self.tickets),
        ]

    def counts(self) -> dict[str, int]:
        """Relation to number of rows."""
        return {table.name: len(rows) for table, rows in self.by_table()}


def replace_all(
    database: CustomerDatabase, rows: Rows, *, is_sample: bool, replace: bool = False
) -> None:
    """Replace the content of the four relations. Follow-up tasks are kept.

    CustomerDataError when there are data that were not made up and `replace` is not set, when a
    relation is a view, or when the database refuses a row. Nothing is half-written then.
    """
    engine = database.engine
    try:
        views = {*inspect(engine).get_view_names()}
        own = [table.name for table in READ_RELATIONS if table.name in views]
        if own:
            raise CustomerDataError(
                f"{', '.join(own)} in {database.name} is a view: this is your own database, and "
                "nothing is loaded into it; point FOLLOWUP_CUSTOMERS_URL somewhere else"
            )
        was_sample = inspect(engine).has_table(SAMPLE_MARK)
        database.create()
        with engine.begin() as connection:
            held = connection.execute(select(func.count()).select_from(customers)).scalar_one()
            if held and not was_sample and not replace:
                raise CustomerDataError(
                    f"{database.name} holds {held:,} customers already: add --replace to replace "
                    "them (follow-up tasks are kept), or choose another --home"
                )
            _write(connection, rows)
            _mark(connection, is_sample)
    except SQLAlchemyError as error:
        raise CustomerDataError(_why(database, error)) from error


def _write(connection: Connection, rows: Rows) -> None:
    for table, _ in reversed(rows.by_table()):
        connection.execute(table.delete())
    for table, content in rows.by_table():
        for start in range(0, len(content), CHUNK):
            connection.execute(table.insert(), content[start : start + CHUNK])


def _mark(connection: Connection, is_sample: bool) -> None:
    statement: Callable[[str], Any] = connection.exec_driver_sql
    if is_sample:
        statement(f"CREATE TABLE IF NOT EXISTS {SAMPLE_MARK} (made_up INTEGER)")
    else:
        statement(f"DROP TABLE IF EXISTS {SAMPLE_MARK}")


def _why(database: CustomerDatabase, error: SQLAlchemyError) -> str:
    reason = str(getattr(error, "orig", None) or error).splitlines()[0]
    if "locked" in reason:
        return f"{database.name} is locked by another program: try again; nothing was changed"
    if "not a database" in reason:
        return f"{database.name} is not a database: move it away or choose another --home"
    return f"{database.name}: {reason}; nothing was changed"
