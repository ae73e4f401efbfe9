"""The business relations, as in the contract. On a user's own database they may be views.

Times are UTC instants. SQLite has no time type, so there a time is text, and `instant()` makes the
texts that people's databases hold (`2026-03-01 10:00:00`, `2026-03-01T18:00:00+08:00`) comparable.
"""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    Column,
    DateTime,
    Dialect,
    Index,
    MetaData,
    Numeric,
    String,
    Table,
    Text,
    TypeDecorator,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction


class Instant(TypeDecorator[datetime]):
    """An aware time: timestamptz where the database has one; UTC text on SQLite, UTC on MySQL."""

    impl = String
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> Any:
        """Text on SQLite, a time with zone elsewhere."""
        if dialect.name == "sqlite":
            return dialect.type_descriptor(String(32))
        if dialect.name in ("mysql", "mariadb"):
            return dialect.type_descriptor(mysql.DATETIME(fsp=6))
        return dialect.type_descriptor(DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """Write in UTC; a time without zone is a bug of the caller."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value!r} has no time zone")
        value = value.astimezone(UTC)
        if dialect.name == "sqlite":
            return value.replace(tzinfo=None).isoformat(" ", "milliseconds")
        return value.replace(tzinfo=None) if dialect.name in ("mysql", "mariadb") else value

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """Read as aware UTC; text without zone is UTC already."""
        if value is None:
            return None
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        if not isinstance(moment, datetime):  # a view's date: the day's midnight
            moment = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


class instant(GenericFunction[datetime]):  # noqa: N801 - reads as an SQL function
    """`instant(column)`: the column as a comparable UTC time, whatever text SQLite holds."""

    type = Instant()
    inherit_cache = True


@compiles(instant)
def _instant_default(element: Any, compiler: Any, **options: Any) -> str:
    return str(compiler.process(element.clauses, **options))


@compiles(instant, "sqlite")
def _instant_sqlite(element: Any, compiler: Any, **options: Any) -> str:
    return f"strftime('%Y-%m-%d %H:%M:%f', {compiler.process(element.clauses, **options)})"


PRIORITIES = ("low", "normal", "high", "urgent")
STATUSES = ("placed", "paid", "cancelled", "refunded")
LongText = Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")
"""What customers write; MySQL's TEXT ends at 64 kB."""
_OWN: dict[str, Any] = {
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
    "mysql_engine": "InnoDB",
}
"""Ids are compared exactly, and any name can be stored."""

metadata = MetaData()

customers = Table(
    "customers",
    metadata,
    Column("customer_id", String(200), primary_key=True),
    Column("name", Text, nullable=False),
    Column("segment", String(100), nullable=False),
    Column("signed_up_at", Instant, nullable=False),
    **_OWN,
)
activity_events = Table(
    "activity_events",
    metadata,
    Column("customer_id", String(200), nullable=False),
    Column("occurred_at", Instant, nullable=False),
    Column("kind", String(50), nullable=False),
    Index("ix_activity_events_customer", "customer_id", "occurred_at"),
    Index("ix_activity_events_time", "occurred_at"),
    **_OWN,
)
orders = Table(
    "orders",
    metadata,
    Column("order_id", String(200), primary_key=True),
    Column("customer_id", String(200), nullable=False, index=True),
    Column("placed_at", Instant, nullable=False, index=True),
    Column("paid_at", Instant),
    Column("amount", Numeric(14, 2, asdecimal=False), nullable=False),
    Column("currency", String(3), nullable=False),
    Column("status", String(20), nullable=False),
    **_OWN,
)
tickets = Table(
    "tickets",
    metadata,
    Column("ticket_id", String(200), primary_key=True),
    Column("customer_id", String(200), nullable=False, index=True),
    Column("opened_at", Instant, nullable=False, index=True),
    Column("closed_at", Instant),
    Column("priority", String(20), nullable=False),
    Column("kind", String(50), nullable=False),
    Column("subject", LongText, nullable=False),
    Column("body", LongText, nullable=False),
    **_OWN,
)
followup_tasks = Table(
    "followup_tasks",
    metadata,
    Column("task_id", String(200), primary_key=True),
    Column("idempotency_key", String(200), nullable=False, unique=True),
    Column("customer_id", String(200), nullable=False, index=True),
    Column("reason", Text, nullable=False),
    Column("priority", String(20), nullable=False),
    Column("due_at", Instant, nullable=False),
    Column("assignee", String(200)),
    Column("evidence", JSON, nullable=False),
    Column("thread_id", String(200), nullable=False),
    Column("approved_by", String(200), nullable=False),
    Column("created_at", Instant, nullable=False),
    **_OWN,
)

READ_RELATIONS = (customers, activity_events, orders, tickets)
"""Filled by `followup data`; views on a user's own database are as good."""
