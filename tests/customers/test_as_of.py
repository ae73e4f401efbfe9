"""Nothing after `as_of` is ever seen: later rows, whatever they are, change no result."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from business import AS_OF, Business, opened
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import fill

from followup_agent import FollowupAgent
from followup_agent.customers.database import CustomerDatabase
from followup_agent.customers.tables import activity_events, customers, orders, tickets
from followup_agent.tools import get_open_tickets, get_user_activity, get_user_orders
from followup_agent.tools.definition import CustomerNotFound, ToolUnavailable

TOOLS = (
    (get_user_activity.TOOL, {"days": 30}),
    (get_user_activity.TOOL, {"days": 7, "until": "2026-02-20"}),
    (get_user_orders.TOOL, {"days": 90}),
    (get_open_tickets.TOOL, {}),
)
LIMITS = {"activity_events": 7, "orders": 45, "tickets": 45}
EARLIER = st.integers(0, 200 * 86_400).map(lambda s: AS_OF - timedelta(seconds=s))
LATER = st.integers(1, 200 * 86_400).map(lambda s: AS_OF + timedelta(seconds=s))
CUSTOMER = st.sampled_from(["user_123", "user_2", "user_3", "user_4"])
STATUS = st.sampled_from(["placed", "paid", "cancelled", "refunded"])
PRIORITY = st.sampled_from(["low", "normal", "high", "urgent"])


def orders_of(when: st.SearchStrategy[datetime]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(CUSTOMER, when, st.one_of(st.none(), LATER), STATUS)


def tickets_of(when: st.SearchStrategy[datetime]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(CUSTOMER, when, st.one_of(st.none(), LATER), PRIORITY)


def insert(business: Business, part: dict[str, list[tuple[Any, ...]]], prefix: str) -> None:
    """Rows as a test has drawn them."""
    rows: dict[Any, list[dict[str, Any]]] = {
        activity_events: [
            {"customer_id": c, "occurred_at": at, "kind": "login"} for c, at in part["events"]
        ],
        orders: [
            {
                "order_id": f"{prefix}{n}", "customer_id": c, "placed_at": at, "paid_at": paid,
                "amount": 1.0, "currency": "CNY", "status": status,
            }
            for n, (c, at, paid, status) in enumerate(part["orders"])
        ],
        tickets: [
            {
                "ticket_id": f"{prefix}{n}", "customer_id": c, "opened_at": at, "closed_at": closed,
                "priority": priority, "kind": "bug", "subject": "s", "body": "b",
            }
            for n, (c, at, closed, priority) in enumerate(part["tickets"])
        ],
        customers: [
            {"customer_id": c, "name": "", "segment": "general", "signed_up_at": at}
            for c, at in part["customers"]
        ],
    }  # fmt: skip
    with business.database.engine.begin() as connection:
        for table, content in rows.items():
            if content:
                connection.execute(table.insert(), content)


def part(when: st.SearchStrategy[datetime], ids: list[str]) -> st.SearchStrategy[Any]:
    """Some rows of every relation."""
    return st.fixed_dictionaries(
        {
            "events": st.lists(st.tuples(CUSTOMER, when), max_size=8),
            "orders": st.lists(orders_of(when), max_size=5),
            "tickets": st.lists(tickets_of(when), max_size=5),
            "customers": st.lists(
                st.tuples(st.sampled_from(ids), when),
                max_size=len(ids),
                unique_by=lambda row: row[0],
            ),
        }
    )


async def seen(business: Business) -> list[Any]:
    """What every tool says of every customer."""
    said: list[Any] = []
    business.database.found_fresh.clear()
    for customer in ("user_123", "user_2", "user_5"):
        for tool, args in TOOLS:
            try:
                _, result = await business.run(tool, user_id=customer, **args)
                said.append(result.model_dump())
            except (CustomerNotFound, ToolUnavailable) as error:
                said.append(str(error))
    return said


@given(part(EARLIER, ["user_2", "user_3"]), part(LATER, ["user_4", "user_5"]))
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_rows_of_a_later_time_change_nothing(url: str, before: Any, after: Any) -> None:
    """On every database, freshness of the sources included."""

    async def both() -> tuple[list[Any], list[Any]]:
        with opened(url, stale_after_days=LIMITS) as business:
            insert(business, before, "b")
            first = await seen(business)
            insert(business, after, "a")
            return first, await seen(business)

    first, second = asyncio.run(both())
    assert first == second


@pytest.fixture
def company(tmp_path: Path) -> Iterator[CustomerDatabase]:
    database = fill(tmp_path / "customers.db", customers=12)
    yield database
    database.close()


def test_a_whole_run_as_of_a_day_is_the_same_when_the_next_days_are_there(
    company: CustomerDatabase, tmp_path: Path
) -> None:
    """Answer, facts and verdict, in both languages, for windows of every kind."""
    as_of = datetime(2026, 2, 10, 12, tzinfo=UTC)
    later = as_of + timedelta(seconds=1)
    goals = [
        "帮我判断 user_123 最近是否需要重点跟进",
        "user_456 上周有没有活跃",
        "Does user_123 need follow-up? Use last month",
        "user_456 本季度的订单",
    ]

    def ask() -> list[Any]:
        with FollowupAgent.open(
            home=tmp_path, planner="rules", clock=lambda: as_of, timezone="Asia/Shanghai"
        ) as agent:
            runs = [agent.ask(goal, as_of=as_of.isoformat()) for goal in goals]
            return [(run.answer, run.verdict, run.evidence) for run in runs]

    with_future = ask()
    with company.engine.begin() as connection:
        assert connection.execute(
            activity_events.delete().where(activity_events.c.occurred_at >= later)
        ).rowcount
        connection.execute(orders.delete().where(orders.c.placed_at >= later))
        connection.execute(orders.update().where(orders.c.paid_at >= later).values(paid_at=None))
        connection.execute(tickets.delete().where(tickets.c.opened_at >= later))
        connection.execute(
            tickets.update().where(tickets.c.closed_at >= later).values(closed_at=None)
        )
        connection.execute(customers.delete().where(customers.c.signed_up_at >= later))
    assert ask() == with_future


@pytest.mark.parametrize(
    ("zone", "as_of", "event", "days", "active"),
    [
        # New York's clocks go forward on 2026-03-08 at 02:00 and back on 2026-11-01 at 02:00.
        ("America/New_York", "2026-03-09T03:30:00+00:00", "2026-03-08T05:00:00+00:00", 1, 1),
        ("America/New_York", "2026-03-09T03:30:00+00:00", "2026-03-08T04:59:59+00:00", 1, 0),
        ("America/New_York", "2026-11-02T04:30:00+00:00", "2026-11-01T04:00:00+00:00", 1, 1),
        ("America/New_York", "2026-11-02T04:30:00+00:00", "2026-11-01T03:59:59+00:00", 1, 0),
        ("Europe/Berlin", "2026-03-29T21:59:00+00:00", "2026-03-22T23:00:00+00:00", 7, 1),
        ("Europe/Berlin", "2026-03-29T21:59:00+00:00", "2026-03-22T22:59:59+00:00", 7, 0),
    ],
)
async def test_a_day_of_23_or_25_hours_begins_and_ends_at_local_midnight(
    business: Business, zone: str, as_of: str, event: str, days: int, active: int
) -> None:
    business.event(event)
    facts = await business.facts(
        get_user_activity.TOOL,
        days=days,
        as_of=datetime.fromisoformat(as_of),
        zone=ZoneInfo(zone),
    )
    assert facts[f"active_days_{days}d"] == active
