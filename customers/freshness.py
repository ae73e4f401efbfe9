"""Is a source connected, and how fresh is it? Silence of one customer means something; silence of a
whole source means that the source is broken, and nothing about any customer.

A tool asks before it looks: where nothing at all came in for so many days (`[sources]` of the
policy), it fails as unavailable. The verdict then counts that source as not known, which may leave it
undetermined; it never reads as "inactive".
"""

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Column, Connection, Select, String, and_, func, select, type_coerce

from followup_agent.customers.tables import activity_events, customers, instant, orders, tickets
from followup_agent.tools.definition import ToolContext, ToolUnavailable

MIN_CUSTOMERS = 3
"""Customers who have any row in the source (or are there at all, where it holds none). With fewer,
all of them may well be quiet at once."""
SOURCE_TIMES: dict[str, Column[Any]] = {
    "activity_events": activity_events.c.occurred_at,
    "orders": orders.c.placed_at,
    "tickets": tickets.c.opened_at,
}
"""Relation to the time that says when a row came in."""


class Freshness(NamedTuple):
    """How a source stands at a time."""

    newest: datetime | None
    """None: it holds nothing at all."""
    is_stale: bool


def require_fresh(connection: Connection, relation: str, context: ToolContext) -> None:
    """Raise ToolUnavailable when this source is not connected, or is stale at `as_of`."""
    database = context.database
    limit_days = database.stale_after_days.get(relation)
    key = (relation, context.as_of.date())
    if limit_days is None or key in database.found_fresh:
        return
    if not _has_rows_since(connection, relation, context.as_of, limit_days):
        found = freshness(connection, relation, context.as_of, limit_days)
        if found.newest is None:
            if _means_unconnected(connection, relation, context.as_of):
                raise ToolUnavailable(f"{relation} holds nothing: this source is not connected")
        elif found.is_stale:
            days = (context.as_of - found.newest).days
            raise ToolUnavailable(
                f"{relation} is stale: nothing newer than {found.newest.date()} from any customer, "
                f"for {days} days (more than {limit_days})"
            )
    database.found_fresh.add(key)


def freshness(
    connection: Connection, relation: str, as_of: datetime, limit_days: int | None
) -> Freshness:
    """How the source stands at `as_of`; reads all of it, unless its time has an index."""
    time = SOURCE_TIMES[relation]
    moment = instant(time)
    newest = connection.execute(
        select(func.max(moment, type_=moment.type)).where(moment <= as_of)
    ).scalar()
    if newest is None or limit_days is None or newest > as_of - timedelta(days=limit_days):
        return Freshness(newest, is_stale=False)
    some = select(time.table.c.customer_id).where(moment <= as_of).distinct().limit(MIN_CUSTOMERS)
    theirs = connection.execute(select(func.count()).select_from(some.subquery())).scalar_one()
    return Freshness(newest, is_stale=theirs >= MIN_CUSTOMERS)


def _means_unconnected(connection: Connection, relation: str, as_of: datetime) -> bool:
    """Whether a source without any row is not connected. A few customers may all have no ticket and
    no order; that none of them ever did anything is never taken for silence."""
    if relation == activity_events.name:
        return True
    some = select(customers.c.customer_id).where(instant(customers.c.signed_up_at) <= as_of)
    some = some.limit(MIN_CUSTOMERS)
    count = connection.execute(select(func.count()).select_from(some.subquery())).scalar_one()
    return bool(count >= MIN_CUSTOMERS)


def _has_rows_since(
    connection: Connection, relation: str, as_of: datetime, limit_days: int
) -> bool:
    start = as_of - timedelta(days=limit_days)
    time = SOURCE_TIMES[relation]
    moment = instant(time)
    recent: Select[Any] = select(moment).where(and_(moment > start, moment <= as_of)).limit(1)
    if connection.dialect.name == "sqlite":
        # Any ISO text begins with its local day: so an index on the column itself can be used.
        text = type_coerce(time, String)
        first, last = start - timedelta(days=1), as_of + timedelta(days=2)
        recent = recent.where(text >= f"{first:%Y-%m-%d}", text < f"{last:%Y-%m-%d}")
    return connection.execute(recent).first() is not None
