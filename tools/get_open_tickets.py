"""Which tickets of one customer are open."""

from collections.abc import Mapping, Sequence

from pydantic import Field
from sqlalchemy import Connection, case, func, or_, select

from followup_agent.customers.freshness import require_fresh
from followup_agent.customers.lookup import (
    CustomerArgs,
    CustomerResult,
    counted,
    customer_facts,
    require_customer,
    require_readable_times,
)
from followup_agent.customers.tables import instant, tickets
from followup_agent.customers.windows import days_between
from followup_agent.tools.definition import ToolContext, ToolDefinition, ToolResult
from followup_agent.tools.outcome import EvidenceDraft, FactDraft, Language

MAX_URGENT_IDS = 3
"""Urgent tickets named in the evidence. Counts are always over all of them."""
MAX_EXCERPTS = 5
MAX_SUBJECT_CHARS = 160
MAX_BODY_CHARS = 400
"""Read of what the customer wrote, the urgent tickets first. It goes to a model as a quote; facts
and evidence are made without it, and nothing in it may steer a run."""


class Args(CustomerArgs):
    """Whose tickets."""


class Excerpt(ToolResult):
    """What the customer wrote, cut."""

    ticket_id: str
    priority: str
    subject: str
    body: str


class Result(CustomerResult):
    """Tickets opened by `as_of` and not closed by then."""

    open_ticket_count: int = Field(ge=0)
    urgent_ticket_count: int = Field(ge=0)
    oldest_open_ticket_days: int | None
    """None when no ticket is open."""
    urgent_ticket_ids: list[str] = Field(max_length=MAX_URGENT_IDS)
    """The oldest urgent ones."""
    excerpts: list[Excerpt] = Field([], max_length=MAX_EXCERPTS)


async def run(args: Args, context: ToolContext) -> dict[str, object]:
    """Count open tickets in the database; CustomerNotFound, ToolUnavailable."""

    def query(connection: Connection) -> dict[str, object]:
        customer = require_customer(connection, args.user_id, context)
        require_fresh(connection, "tickets", context)
        require_readable_times(connection, args.user_id, tickets.c.opened_at, tickets.c.closed_at)
        opened_at, closed_at = instant(tickets.c.opened_at), instant(tickets.c.closed_at)
        is_open = (
            (tickets.c.customer_id == args.user_id)
            & (opened_at <= context.as_of)
            & or_(tickets.c.closed_at.is_(None), closed_at > context.as_of)
        )
        count, oldest = connection.execute(
            select(func.count(), func.min(opened_at, type_=opened_at.type)).where(is_open)
        ).one()
        urgent = is_open & (tickets.c.priority == "urgent")
        urgent_count = connection.execute(select(func.count()).where(urgent)).scalar_one()
        shown = connection.execute(
            select(
                tickets.c.ticket_id,
                tickets.c.priority,
                func.substr(tickets.c.subject, 1, MAX_SUBJECT_CHARS).label("subject"),
                func.substr(tickets.c.body, 1, MAX_BODY_CHARS).label("body"),
            )
            .where(is_open)
            .order_by(case((tickets.c.priority == "urgent", 0), else_=1))
            .order_by(opened_at, tickets.c.ticket_id)
            .limit(MAX_EXCERPTS)
        ).all()
        urgent_ids = [str(row.ticket_id) for row in shown if row.priority == "urgent"]
        return customer | {
            "open_ticket_count": count,
            "urgent_ticket_count": urgent_count,
            "oldest_open_ticket_days": oldest
            and days_between(oldest, context.as_of, context.timezone),
            "urgent_ticket_ids": urgent_ids[:MAX_URGENT_IDS],
            "excerpts": [
                {
                    "ticket_id": str(row.ticket_id),
                    "priority": str(row.priority),
                    "subject": row.subject or "",
                    "body": row.body or "",
                }
                for row in shown
            ],
        }

    return await context.database.read(query)


def is_empty(result: Result) -> bool:
    """No open ticket: a good sign."""
    return result.open_ticket_count == 0


def facts(args: Args, result: Result) -> Mapping[str, FactDraft]:
    """The contract's ticket facts."""
    return {
        "open_ticket_count": FactDraft(result.open_ticket_count, "tickets"),
        "urgent_ticket_count": FactDraft(result.urgent_ticket_count, "tickets"),
        "oldest_open_ticket_days": FactDraft(result.oldest_open_ticket_days, "days"),
        **customer_facts(result),
    }


def evidence(args: Args, result: Result, language: Language) -> Sequence[EvidenceDraft]:
    """One statement; the urgent tickets by their ids, never by their text."""
    ids = ", ".join(result.urgent_ticket_ids)
    if language == "zh":
        if result.open_ticket_count == 0:
            summary = "没有未关闭工单"
        else:
            summary = (
                f"未关闭工单 {result.open_ticket_count} 个，其中紧急 {result.urgent_ticket_count} 个"
                + (f"（{ids}）" if ids else "")
                + f"，最早的已打开 {result.oldest_open_ticket_days} 天"
            )
    elif result.open_ticket_count == 0:
        summary = "No open tickets"
    else:
        summary = (
            f"{counted(result.open_ticket_count, 'open ticket')}, {result.urgent_ticket_count} urgent"
            + (f" ({ids})" if ids else "")
            + f", the oldest open for {counted(result.oldest_open_ticket_days or 0, 'day')}"
        )
    return (EvidenceDraft(summary, 0.95),)


def quotes(args: Args, result: Result) -> Sequence[str]:
    """The tickets in the customer's own words."""
    return [
        f"{ticket.ticket_id} ({ticket.priority}): {ticket.subject}\n{ticket.body}".strip()
        for ticket in result.excerpts
    ]


TOOL = ToolDefinition(
    name="get_open_tickets",
    description="Count one customer's open tickets, how many are urgent, and how old the oldest is.",
    args=Args,
    result=Result,
    run=run,
    is_empty=is_empty,
    facts=facts,
    evidence=evidence,
    quotes=quotes,
    effect="read",
)
