"""What one customer ordered and paid over the last days."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

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
from followup_agent.customers.tables import instant, orders
from followup_agent.customers.windows import days_between
from followup_agent.tools.definition import ToolContext, ToolDefinition
from followup_agent.tools.outcome import EvidenceDraft, FactDraft, Language

UNPAID_STATUSES = ("cancelled", "refunded")
"""An order of this status is not a paid one, even with a payment date."""


class Args(WindowArgs):
    """Whose orders, and over which days."""


class Result(CustomerResult):
    """Counts within the window; the last payment over all time."""

    order_count: int = Field(ge=0)
    """By the time of placing, whatever became of them."""
    paid_order_count: int = Field(ge=0)
    """By the time of payment."""
    paid_amount: dict[str, float]
    """Currency to amount."""
    last_paid_at: AwareDatetime | None
    days_since_last_paid: int | None


async def run(args: Args, context: ToolContext) -> dict[str, object]:
    """Count orders and payments; CustomerNotFound, ToolUnavailable."""

    def query(connection: Connection) -> dict[str, object]:
        customer = require_customer(connection, args.user_id, context)
        require_fresh(connection, "orders", context)
        require_readable_times(connection, args.user_id, orders.c.placed_at, orders.c.paid_at)
        mine = orders.c.customer_id == args.user_id
        placed_at, paid_at = instant(orders.c.placed_at), instant(orders.c.paid_at)
        paid = orders.c.paid_at.is_not(None) & orders.c.status.not_in(UNPAID_STATUSES)
        window = args.window(context)
        order_count = connection.execute(
            select(func.count()).where(mine, placed_at >= window.start, placed_at <= window.end)
        ).scalar_one()
        paid_count = 0
        amounts: dict[str, float] = defaultdict(float)
        for currency, count, amount in connection.execute(
            select(orders.c.currency, func.count(), func.sum(orders.c.amount))
            .where(mine, paid, paid_at >= window.start, paid_at <= window.end)
            .group_by(orders.c.currency)
            .order_by(orders.c.currency)
        ):
            paid_count += count
            amounts[currency] = round(float(amount), 2)
        last = connection.execute(
            select(func.max(paid_at, type_=paid_at.type)).where(
                mine, paid, paid_at <= context.as_of
            )
        ).scalar()
        return customer | {
            "order_count": order_count,
            "paid_order_count": paid_count,
            "paid_amount": dict(amounts),
            "last_paid_at": last,
            "days_since_last_paid": last and days_between(last, context.as_of, context.timezone),
        }

    return await context.database.read(query)


def is_empty(result: Result) -> bool:
    """No order and no payment in the window: perhaps too little to judge by, but no fault."""
    return result.order_count == 0 and result.paid_order_count == 0


def facts(args: Args, result: Result) -> Mapping[str, FactDraft]:
    """The contract's order facts."""
    last = result.last_paid_at
    return {
        args.key("order_count"): FactDraft(result.order_count, "orders", args.days),
        args.key("paid_order_count"): FactDraft(result.paid_order_count, "orders", args.days),
        args.key("paid_amount"): FactDraft(result.paid_amount, "amount", args.days),
        "last_paid_at": FactDraft(last.isoformat() if last else None, "time"),
        "days_since_last_paid": FactDraft(result.days_since_last_paid, "days"),
        **customer_facts(result),
    }


def evidence(args: Args, result: Result, language: Language) -> Sequence[EvidenceDraft]:
    """One statement on the window, one on the last payment."""
    last, window = result.days_since_last_paid, args.words(language)
    amounts = ", ".join(f"{amount:,.2f} {code}" for code, amount in result.paid_amount.items())
    if language == "zh":
        summary = f"{window}下单 {result.order_count} 笔，付费 {result.paid_order_count} 笔"
        summary += f"，共 {amounts}" if amounts else ""
        since = (
            "从未付费"
            if last is None
            else "今天刚付过费"
            if last == 0
            else f"最近一次付费在 {last} 天前"
        )
    else:
        placed = counted(result.order_count, "order")
        summary = f"{placed} placed and {result.paid_order_count} paid in {window}"
        summary += f", {amounts} in all" if amounts else ""
        since = (
            "Has never paid"
            if last is None
            else "Last payment today"
            if last == 0
            else f"Last payment {counted(last, 'day')} ago"
        )
    return EvidenceDraft(summary, 0.85), EvidenceDraft(since, 0.85)


TOOL = ToolDefinition(
    name="get_user_orders",
    description="Summarise one customer's orders over the last days: placed, paid, amounts by "
    "currency, and the last payment.",
    args=Args,
    result=Result,
    run=run,
    is_empty=is_empty,
    facts=facts,
    evidence=evidence,
    effect="read",
)
