"""What every customer tool asks first: does this customer exist, and of which segment is it?"""

import re
from collections.abc import Mapping
from datetime import date, datetime
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from sqlalchemy import Column, Connection, Text, cast, select

from followup_agent.customers.tables import customers, instant
from followup_agent.customers.windows import DayWindow, day_window, days_between
from followup_agent.tools.definition import (
    CustomerNotFound,
    ToolArgs,
    ToolContext,
    ToolRefused,
    ToolResult,
    ToolUnavailable,
)
from followup_agent.tools.outcome import FactDraft, Language

USER_ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.:@/+\-]{0,63}$"
"""Any usual form of id; no blanks, quotes or semicolons: what follows them was never part of one.
The import refuses other ids, so that none is stored that could not be asked about."""
USER_ID = Field(
    pattern=USER_ID_PATTERN,
    description="Customer id exactly as the user gave it.",
)


class CustomerArgs(ToolArgs):
    """Arguments of a tool about one customer."""

    user_id: str = USER_ID


def _day(value: Any) -> Any:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        value = date.fromisoformat(value)
    if value is None or (type(value) is date and 1970 <= value.year < 9000):
        return value
    raise ValueError("a day as YYYY-MM-DD")


class WindowArgs(CustomerArgs):
    """Arguments of a tool that looks back over some days."""

    days: int = Field(ge=1, le=365, description="Lookback in calendar days, the last one included.")
    until: Annotated[date | None, BeforeValidator(_day)] = Field(
        None, description="Last day of the window, YYYY-MM-DD; leave out for a window ending now."
    )

    def key(self, name: str) -> str:
        """A fact key that carries this window, so that two windows never overwrite each other."""
        return f"{name}_{self.days}d" + (f"_until_{self.until}" if self.until else "")

    def window(self, context: ToolContext) -> DayWindow:
        """The window's instants; ToolRefused when it ends after `as_of`, where nothing is known."""
        if self.until and self.until > context.as_of.astimezone(context.timezone).date():
            raise ToolRefused(f"until {self.until} is after {context.as_of.date()}")
        return day_window(self.days, self.until, context.as_of, context.timezone)

    def words(self, language: Language) -> str:
        """The window as a person would say it."""
        if language == "zh":
            return f"截至 {self.until} 的 {self.days} 天" if self.until else f"近 {self.days} 天"
        days = "1 day" if self.days == 1 else f"{self.days} days"
        return f"the {days} to {self.until}" if self.until else f"the last {days}"


def counted(count: int, noun: str) -> str:
    """English: '1 order', '2 orders'."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class CustomerResult(ToolResult):
    """Result of a tool about one customer, who exists."""

    segment: str
    days_since_signup: int = Field(ge=0)


def require_customer(
    connection: Connection, user_id: str, context: ToolContext
) -> dict[str, object]:
    """The fields of `CustomerResult`; CustomerNotFound when there is no such customer at `as_of`."""
    row = connection.execute(
        select(customers.c.segment, instant(customers.c.signed_up_at).label("signed_up_at")).where(
            customers.c.customer_id == user_id
        )
    ).first()
    if row is not None and row.signed_up_at is None:
        raise ToolUnavailable("customers.signed_up_at is empty or holds what is no time")
    if row is None or row.signed_up_at > context.as_of:
        raise CustomerNotFound(f"no customer {user_id!r} in the business data")
    signed_up_at: datetime = row.signed_up_at
    return {
        "segment": str(row.segment),
        "days_since_signup": days_between(signed_up_at, context.as_of, context.timezone),
    }


def require_readable_times(connection: Connection, user_id: str, *columns: Column[Any]) -> None:
    """Raise ToolUnavailable when a time of this customer's rows is text that is no time.

    SQLite would compare it as nothing, and the row would silently not count.
    """
    if connection.dialect.name != "sqlite":
        return
    for column in columns:
        bad = connection.execute(
            select(cast(column, Text)).where(
                column.table.c.customer_id == user_id,
                column.is_not(None),
                instant(column).is_(None),
            )
        )
        if bad.first() is not None:
            raise ToolUnavailable(f"{column.table.name}.{column.name} holds what is no time")


def customer_facts(result: CustomerResult) -> Mapping[str, FactDraft]:
    """Facts that any customer tool learns by the way."""
    return {
        "segment": FactDraft(result.segment, "text"),
        "days_since_signup": FactDraft(result.days_since_signup, "days"),
    }
