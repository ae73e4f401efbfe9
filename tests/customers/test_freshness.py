"""A source that is stale or not connected is never read as silence of a customer."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from business import AS_OF, Business, opened
from support import fill

from followup_agent import FollowupAgent
from followup_agent.customers.database import sqlite_url
from followup_agent.tools import get_open_tickets, get_user_activity, get_user_orders
from followup_agent.tools.definition import ToolUnavailable

LIMITS = {"activity_events": 7, "orders": 45, "tickets": 45}
OTHERS = ("user_2", "user_3")


@pytest.fixture
def business(url: str) -> Iterator[Business]:
    with opened(url, stale_after_days=LIMITS) as made:
        for other in OTHERS:
            made.insert("customers", (other, "", "business", "2025-03-02 00:00:00"))
        yield made


def days_ago(days: float) -> str:
    return (AS_OF - timedelta(days=days)).strftime("%Y-%m-%d %H:%M:%S")


async def test_a_source_without_a_row_for_days_is_stale(business: Business) -> None:
    for customer in ("user_123", *OTHERS):
        business.event(days_ago(8), customer=customer)
    with pytest.raises(
        ToolUnavailable, match="activity_events is stale: nothing newer than 2026-02-21"
    ):
        await business.facts(get_user_activity.TOOL, days=7)


async def test_one_fresh_row_of_anybody_is_enough(business: Business) -> None:
    for customer in ("user_123", *OTHERS):
        business.event(days_ago(60), customer=customer)
    business.event(days_ago(6.9), customer="user_2")
    facts = await business.facts(get_user_activity.TOOL, days=7)
    assert facts["days_since_last_active"] == 60


async def test_a_few_customers_may_all_be_quiet_at_once(business: Business) -> None:
    business.event(days_ago(60))
    business.event(days_ago(50), customer="user_2")
    assert (await business.facts(get_user_activity.TOOL, days=7))["days_since_last_active"] == 60


async def test_a_source_that_holds_nothing_is_not_connected(business: Business) -> None:
    for tool, args in (
        (get_user_activity.TOOL, {"days": 7}),
        (get_user_orders.TOOL, {"days": 7}),
        (get_open_tickets.TOOL, {}),
    ):
        with pytest.raises(ToolUnavailable, match="holds nothing: this source is not connected"):
            await business.facts(tool, **args)


async def test_a_later_row_does_not_make_a_source_fresh(business: Business) -> None:
    for customer in ("user_123", *OTHERS):
        business.event(days_ago(30), customer=customer)
        business.event(days_ago(-1), customer=customer)
    with pytest.raises(ToolUnavailable, match="stale"):
        await business.facts(get_user_activity.TOOL, days=7)
    later = AS_OF + timedelta(days=2)
    assert (await business.facts(get_user_activity.TOOL, days=7, as_of=later))[
        "active_days_7d"
    ] == 1


@pytest.mark.parametrize(
    "text",
    ["2026-02-27T10:00:00+08:00", "2026-02-27T10:00:00Z", "2026-02-27 10:00:00.123", "2026-02-27"],
)
async def test_freshness_is_told_from_any_text_that_sqlite_holds(tmp_path: Path, text: str) -> None:
    with opened(sqlite_url(tmp_path / "c.db"), stale_after_days=LIMITS) as business:
        for customer in ("user_123", "user_2", "user_3"):
            business.insert("customers", (f"{customer}x", "", "b", "2025-01-01"))
            business.event(text, customer=customer)
        assert (await business.facts(get_user_activity.TOOL, days=7))["active_days_7d"] == 1


def test_a_stale_source_leaves_the_verdict_undetermined_and_says_so(tmp_path: Path) -> None:
    """user_456 was active and paying until the data end; forty days later nobody knows."""
    fill(tmp_path / "customers.db", customers=20).close()
    as_of = (AS_OF + timedelta(days=40)).isoformat()
    with FollowupAgent.open(home=tmp_path, planner="rules", clock=lambda: AS_OF) as agent:
        fresh = agent.ask("Does user_456 need follow-up?")
        assert fresh.verdict is not None
        assert fresh.verdict["needs_followup"] is False
        stale = agent.ask("Does user_456 need follow-up?", as_of=as_of)
    assert stale.verdict is not None
    assert stale.verdict["coverage"]["get_user_activity"] == "failed"
    assert stale.verdict["needs_followup"] is None
    assert stale.verdict["priority"] == "undetermined"
    assert "days_since_last_active" not in stale.facts.get("user_456", {})
    assert any("is stale" in call["result_summary"] for call in stale.tool_history)
    for words in ("not need", "no follow-up", "inactive"):
        assert words not in stale.answer.lower()
