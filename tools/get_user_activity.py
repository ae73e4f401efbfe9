"""How active one customer was over the last days."""

from collections.abc import Mapping, Sequence
from datetime import date

from pydantic import AwareDatetime, Field
from sqlalchemy import Connection, func, select

from followup_agent.customers.freshness import require_fresh
from followup_agent.customers.lookup import (
    CustomerResult,
    WindowArgs,
    counted,
    customer_facts,
    require_customer,
    require_readable_times,
)
from followup_agent.customers.tables import activity_events, instant
from followup_agent.customers.windows import days_between
from followup_agent.tools.definition import ToolContext, ToolDefinition
from followup_agent.tools.outcome import EvidenceDraft, FactDraft, Language


class Args(WindowArgs):
    """Whose activity, and over which days."""


class Result(CustomerResult):
    """Counts within the window; the last activity over all time."""

    event_count: int = Field(ge=0)
    login_count: int = Field(ge=0)
    active_days: int = Field(ge=0)
    """Days of the window with any event."""
    last_active_at: AwareDatetime | None
    """None when there has never been any event."""
    days_since_last_active: int | None


async def run(args: Args, context: ToolContext) -> dict[str, object]:
    """Count logins and active days; CustomerNotFound, ToolUnavailable."""

    def query(connection: Connection) -> dict[str, object]:
        customer = require_customer(connection, args.user_id, context)
        require_fresh(connection, "activity_events", context)
        require_readable_times(connection, args.user_id, activity_events.c.occurred_at)
        mine = activity_events.c.customer_id == args.user_id
        occurred_at = instant(activity_events.c.occurred_at)
        window = args.window(context)
        events = logins = 0
        active_days: set[date] = set()
        for moment, kind in connection.execute(
            select(activity_events.c.occurred_at, activity_events.c.kind).where(
                mine, occurred_at >= window.start, occurred_at <= window.end
            )
        ):
            events += 1
            logins += kind == "login"
            active_days.add(moment.astimezone(context.timezone).date())
        last = connection.execute(
            select(func.max(occurred_at, type_=occurred_at.type)).where(
                mine, occurred_at <= context.as_of
            )
        ).scalar()
        return customer | {
            "event_count": events,
            "login_count": logins,
            "active_days": len(active_days),
            "last_active_at": last,
            "days_since_last_active": last and days_between(last, context.as_of, context.timezone),
        }

    return await context.database.read(query)


def is_empty(result: Result) -> bool:
    """Nothing in the window: a signal about the customer, not a fault."""
    return result.event_count == 0


def facts(args: Args, result: Result) -> Mapping[str, FactDraft]:
    """The contract's activity facts."""
    last = result.last_active_at
    return {
        args.key("login_count"): FactDraft(result.login_count, "logins", args.days),
        args.key("active_days"): FactDraft(result.active_days, "days", args.days),
        "last_active_at": FactDraft(last.isoformat() if last else None, "time"),
        "days_since_last_active": FactDraft(result.days_since_last_active, "days"),
        **customer_facts(result),
    }


def evidence(args: Args, result: Result, language: Language) -> Sequence[EvidenceDraft]:
    """One statement on the window, one on the last activity."""
    last, window = result.days_since_last_active, args.words(language)
    if language == "zh":
        summary = f"{window}活跃 {result.active_days} 天，登录 {result.login_count} 次"
        since = (
            f"注册 {result.days_since_signup} 天以来从未活跃"
            if last is None
            else "今天刚活跃过"
            if last == 0
            else f"最近一次活跃在 {last} 天前"
        )
    else:
        summary = (
            f"Active on {result.active_days} of {window}, {counted(result.login_count, 'login')}"
        )
        since = (
            f"Never active in the {counted(result.days_since_signup, 'day')} since sign-up"
            if last is None
            else "Last active today"
            if last == 0
            else f"Last active {counted(last, 'day')} ago"
        )
    return EvidenceDraft(summary, 0.9), EvidenceDraft(since, 0.9)


TOOL = ToolDefinition(
    name="get_user_activity",
    description="Summarise one customer's activity over the last days: logins, active days, "
    "and when they were last active.",
    args=Args,
    result=Result,
    run=run,
    is_empty=is_empty,
    facts=facts,
    evidence=evidence,
    effect="read",
)
