"""What every customer tool asks first: does this customer exist, and of which segment is it?"""

from collections.abc import Mapping
from datetime import date, datetime
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from sqlalchemy import Connection, select

from followup_agent.customers.tables import customers, instant
from followup_agent.customers.windows import days_between
from followup_agent.tools.definition import CustomerNotFound, ToolArgs, ToolContext, ToolResult
from followup_agent.tools.outcome import FactDraft, Language

USER_ID = Field(
    min_length=1,
    max_length=64,
    pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:\-]*$",
    description="Customer id exactly as the user gave it, e.g. 'user_123'.",
)


class CustomerArgs(ToolArgs):
    """Arguments of a tool about one customer."""

    user_id: str = USER_ID


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a number of days, not true or false")
    return value


def _day_text(value: Any) -> Any:
    if value is not None and not isinstance(value, str | date):
        raise ValueError("a day as YYYY-MM-DD")
    return value


class WindowArgs(CustomerArgs):
    """Arguments of a tool that looks back over some days.

    `7`, `7.0` and `"7"` are all seven days; anything that is not a whole number is refused.
    """

    days: Annotated[int, BeforeValidator(_no_bool)] = Field(
        ge=1, le=365, description="Lookback in calendar days, the last one included."
    )
    until: Annotated[date | None, BeforeValidator(_day_text)] = Field(
        None, description="Last day of the window, YYYY-MM-DD; leave out for a window ending now."
    )

    def key(self, name: str) -> str:
        """A fact key that carries this window, so that two windows never overwrite each other."""
        return f"{name}_{self.days}d" + (f"_until_{self.until}" if self.until else "")

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
        select(customers.c.segment, customers.c.signed_up_at).where(
            customers.c.customer_id == user_id,
            instant(customers.c.signed_up_at) <= context.as_of,
        )
    ).first()
    if row is None:
        raise CustomerNotFound(f"no customer {user_id!r} in the business data")
    signed_up_at: datetime = row.signed_up_at
    return {
        "segment": row.segment,
        "days_since_signup": days_between(signed_up_at, context.as_of, context.timezone),
    }


def customer_facts(result: CustomerResult) -> Mapping[str, FactDraft]:
    """Facts that any customer tool learns by the way."""
    return {
        "segment": FactDraft(result.segment, "text"),
        "days_since_signup": FactDraft(result.days_since_signup, "days"),
    }
