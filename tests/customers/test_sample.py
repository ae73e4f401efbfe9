"""The made-up company: the same for a seed, lifelike, relative to `as_of`, with three fixed customers."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from followup_agent.customers.load import Rows
from followup_agent.customers.sample import SEGMENTS, make_company

AS_OF = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def company() -> Rows:
    return make_company(60, 7, AS_OF)


def mine(rows: list[dict[str, Any]], customer_id: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["customer_id"] == customer_id]


def is_paid(order: dict[str, Any]) -> bool:
    return order["paid_at"] is not None and order["status"] not in ("cancelled", "refunded")


def test_the_same_seed_and_time_make_the_same_company(company: Rows) -> None:
    assert make_company(60, 7, AS_OF) == company


def test_another_seed_makes_another_company(company: Rows) -> None:
    assert make_company(60, 8, AS_OF) != company


@pytest.mark.parametrize("customers", [3, 4, 25])
def test_there_are_as_many_customers_as_asked_for(customers: int) -> None:
    rows = make_company(customers, 1, AS_OF)
    ids = [row["customer_id"] for row in rows.customers]
    assert len(ids) == len(set(ids)) == customers
    assert ids[:3] == ["user_123", "user_456", "user_789"]
    assert not {"user_404", "user_500", "user_slow"} & set(ids)


def test_keys_are_unique_and_every_row_has_its_customer(company: Rows) -> None:
    ids = {row["customer_id"] for row in company.customers}
    for rows, key in ((company.orders, "order_id"), (company.tickets, "ticket_id")):
        assert len({row[key] for row in rows}) == len(rows)
    for rows in (company.activity_events, company.orders, company.tickets):
        assert {row["customer_id"] for row in rows} <= ids


@pytest.mark.parametrize("seed", [1, 2, 99])
def test_user_123_is_to_be_followed_up_whatever_the_seed(seed: int) -> None:
    rows = make_company(10, seed, AS_OF)
    last = max(row["occurred_at"] for row in mine(rows.activity_events, "user_123"))
    assert AS_OF - last >= 7 * DAY
    open_tickets = [t for t in mine(rows.tickets, "user_123") if t["closed_at"] is None]
    assert [t["priority"] for t in open_tickets] == ["urgent"]
    paid = [o["paid_at"] for o in mine(rows.orders, "user_123") if is_paid(o)]
    assert AS_OF - max(paid) == 45 * DAY


@pytest.mark.parametrize("seed", [1, 2, 99])
def test_user_456_is_active_and_has_no_open_ticket(seed: int) -> None:
    rows = make_company(10, seed, AS_OF)
    times = [row["occurred_at"] for row in mine(rows.activity_events, "user_456")]
    assert len({t.date() for t in times if AS_OF - t < 7 * DAY}) >= 5
    assert AS_OF - max(times) < DAY
    assert all(t["closed_at"] is not None for t in mine(rows.tickets, "user_456"))
    paid = [o["paid_at"] for o in mine(rows.orders, "user_456") if is_paid(o)]
    assert AS_OF - max(paid) < 7 * DAY


def test_user_789_is_new_and_has_nothing(company: Rows) -> None:
    (customer,) = mine(company.customers, "user_789")
    assert AS_OF - customer["signed_up_at"] < 7 * DAY
    for rows in (company.activity_events, company.orders, company.tickets):
        assert mine(rows, "user_789") == []


def all_times(rows: Rows) -> list[datetime]:
    return [
        value
        for _, content in rows.by_relation().items()
        for row in content
        for value in row.values()
        if isinstance(value, datetime)
    ]


SINCE = datetime(2020, 1, 1, tzinfo=UTC)
SPAN = datetime(2030, 1, 1, tzinfo=UTC) - SINCE
MOMENTS = st.timedeltas(timedelta(0), SPAN).map(lambda past: SINCE + past)


@given(seed=st.integers(0, 10**6), as_of=MOMENTS, customers=st.integers(3, 15))
@settings(max_examples=15, deadline=None)
def test_nothing_is_later_than_as_of(seed: int, as_of: datetime, customers: int) -> None:
    assert max(all_times(make_company(customers, seed, as_of))) <= as_of


@given(seed=st.integers(0, 10**6), as_of=MOMENTS)
@settings(max_examples=10, deadline=None)
def test_a_company_is_consistent_for_any_seed(seed: int, as_of: datetime) -> None:
    rows = make_company(12, seed, as_of)
    signed_up = {row["customer_id"]: row["signed_up_at"] for row in rows.customers}
    for order in rows.orders:
        assert order["amount"] > 0
        assert order["paid_at"] is None or order["paid_at"] >= order["placed_at"]
        assert (order["paid_at"] is not None) == (order["status"] in ("paid", "refunded"))
    for ticket in rows.tickets:
        assert ticket["opened_at"] >= signed_up[ticket["customer_id"]]
        assert ticket["closed_at"] is None or ticket["closed_at"] >= ticket["opened_at"]


def test_nobody_does_anything_before_signing_up() -> None:
    rows = make_company(300, 7, AS_OF)
    signed_up = {row["customer_id"]: row["signed_up_at"] for row in rows.customers}
    early = [e for e in rows.activity_events if e["occurred_at"] < signed_up[e["customer_id"]]]
    early += [o for o in rows.orders if o["placed_at"] < signed_up[o["customer_id"]]]
    early += [t for t in rows.tickets if t["opened_at"] < signed_up[t["customer_id"]]]
    assert early == []


@pytest.mark.parametrize("shift", [timedelta(days=1), timedelta(days=-400, hours=5)])
def test_a_shifted_as_of_shifts_the_fixed_customers(shift: timedelta) -> None:
    here, there = make_company(3, 7, AS_OF), make_company(3, 7, AS_OF + shift)
    assert all_times(there) == [moment + shift for moment in all_times(here)]


def test_a_shifted_as_of_shifts_the_end_of_the_history(company: Rows) -> None:
    shifted = make_company(60, 7, AS_OF - 200 * DAY)
    assert timedelta(0) <= AS_OF - 200 * DAY - max(all_times(shifted)) < DAY
    assert timedelta(0) <= AS_OF - max(all_times(company)) < DAY


def test_names_and_tickets_are_in_both_languages(company: Rows) -> None:
    for texts in (
        [row["name"] for row in company.customers],
        [row["subject"] for row in company.tickets],
        [row["body"] for row in company.tickets],
    ):
        assert any(re.search(r"[\u4e00-\u9fff]", text) for text in texts)
        assert any(text.isascii() for text in texts)


def test_every_segment_priority_and_status_occurs() -> None:
    rows = make_company(200, 7, AS_OF)
    assert {row["segment"] for row in rows.customers} == set(SEGMENTS)
    assert {row["priority"] for row in rows.tickets} == {"low", "normal", "high", "urgent"}
    assert {row["status"] for row in rows.orders} == {"placed", "paid", "cancelled", "refunded"}
    assert {row["kind"] for row in rows.activity_events} == {"login", "feature"}
