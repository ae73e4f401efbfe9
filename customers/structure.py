"""Whether the relations are there, with their columns, of types that can be compared and read."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from sqlalchemy import Connection, inspect, types
from sqlalchemy.engine.interfaces import ReflectedColumn

from followup_agent.customers.tables import READ_RELATIONS, Instant


class Fault(NamedTuple):
    """Why a relation cannot be used."""

    relation: str
    column: str
    message: str


def faults_of(connection: Connection) -> Iterator[Fault]:
    """What is wrong with the structure, relation by relation."""
    inspector = inspect(connection)
    for table in READ_RELATIONS:
        if not inspector.has_table(table.name):  # a view, wherever the search path finds it
            yield Fault(
                table.name,
                "",
                f"there is no relation {table.name!r}: fill it with `followup data sample` or `followup data import`, or add "
                "a view of that name",
            )
            continue
        columns = {column["name"]: column for column in inspector.get_columns(table.name)}
        lacking = [column.name for column in table.columns if column.name not in columns]
        if lacking:
            yield Fault(
                table.name,
                ", ".join(lacking),
                f"relation {table.name!r} lacks {', '.join(lacking)}; it is from another version: import it again, or add "
                "the columns to your view",
            )
        for column in table.columns:
            if column.name in columns:
                wrong = _wrong_type(connection.dialect.name, column, columns[column.name])
                if wrong:
                    yield Fault(table.name, column.name, wrong)


def _wrong_type(dialect: str, column: Any, found: ReflectedColumn) -> str:
    """Why this type will not do; empty when it will. SQLite's types bind nothing."""
    kind = found["type"]
    if dialect == "sqlite" or isinstance(kind, types.NullType):
        return ""
    if isinstance(column.type, Instant):
        fits, cast = isinstance(kind, types.DateTime | types.Date), "a timestamp"
    elif isinstance(column.type, types.Numeric):
        fits, cast = isinstance(kind, types.Numeric | types.Integer), "numeric"
    elif column.name in ("order_id", "ticket_id"):
        return ""  # named, never compared
    else:
        comparable = dialect != "postgresql" or not isinstance(kind, types.Enum)
        fits, cast = isinstance(kind, types.String) and comparable, "text"
    if fits:
        return ""
    return f"{column.table.name}.{column.name} is {kind}: cast it to {cast} in the view"
