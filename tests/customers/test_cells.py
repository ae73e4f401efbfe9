"""Times and amounts as exports hold them. What may be two things is refused, and the way out named."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from followup_agent.customers.cells import parse_amount, parse_time

SHANGHAI = ZoneInfo("Asia/Shanghai")
AT = datetime(2026, 3, 1, 2, 30, tzinfo=UTC)
"""10:30 in Shanghai."""


@pytest.mark.parametrize(
    "cell",
    [
        "2026-03-01 10:30",
        " 2026-03-01T10:30:00 ",
        "2026/3/1 10:30",
        "2026.3.1 10:30:00",
        "1.3.2026 10:30",
        "2026年3月1日 10:30",
        "2026年3月1日 10时30分",
        "2026年03月01日10时30分00秒",
        "２０２６－０３－０１ １０：３０",
        "20260301103000",
        "2026-03-01T02:30:00Z",
        "2026-03-01 02:30:00 UTC",
        "2026-03-01 02:30:00+00",
        "2026-03-01T10:30:00 +0800",
        "2026/03/01 10:30:00+08:00",
        "1772332200",
        "1772332200000",
        "1772332200000000",
        "1772332200.0",
        1772332200,
        "46082.4375",
        46082.4375,
        datetime(2026, 3, 1, 10, 30),
        datetime(2026, 3, 1, 2, 30, tzinfo=UTC),
    ],
)
def test_a_time_in_any_form_that_means_one_thing(cell: Any) -> None:
    assert parse_time(cell, SHANGHAI) == AT


@pytest.mark.parametrize(
    "cell", ["2026-03-01", "20260301", "46082", "2026/3/1", "1.3.2026", date(2026, 3, 1)]
)
def test_a_day_is_its_midnight_in_the_zone_declared(cell: Any) -> None:
    assert parse_time(cell, SHANGHAI) == datetime(2026, 2, 28, 16, tzinfo=UTC)


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("03/04/2026", "day first or month first: declare it, e.g. --time-format '%d/%m/%Y'"),
        ("13/04/2026", "day first or month first"),
        ("3-4-26", "day first or month first"),
        ("2026-02-30", "not a day of the calendar"),
        ("20261301", "not a day of the calendar"),
        ("2026-03-01 25:00", "not a day of the calendar"),
        ("yesterday", "not a time that is known here"),
        ("123456", "a number that is no time"),
        ("0001-01-01", "not between 1900 and 2199|outside of the calendar"),
        ("9999-12-31", "not between 1900 and 2199"),
        (True, "not a time"),
        ([], "not a time"),
    ],
)
def test_what_is_no_time_or_two_is_refused(cell: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_time(cell, SHANGHAI)


def test_a_declared_form_goes_first() -> None:
    assert parse_time("03/04/2026", UTC, ("%d/%m/%Y",)) == datetime(2026, 4, 3, tzinfo=UTC)
    assert parse_time("03/04/2026", UTC, ("%m/%d/%Y",)) == datetime(2026, 3, 4, tzinfo=UTC)
    assert parse_time("20260301", UTC, ("%d/%m/%Y",)) == datetime(2026, 3, 1, tzinfo=UTC)


TIMES = st.datetimes(datetime(1971, 1, 1), datetime(2150, 1, 1)).map(
    lambda moment: moment.replace(microsecond=0)
)


@given(TIMES, st.sampled_from(["UTC", "Asia/Shanghai", "America/New_York", "Europe/Berlin"]))
def test_all_forms_of_one_local_time_are_one_instant(moment: datetime, name: str) -> None:
    """Also within the hours that a change of the clocks repeats or skips."""
    zone = ZoneInfo(name)
    instant = moment.replace(tzinfo=zone).astimezone(UTC)
    forms = (
        moment.isoformat(),
        moment.isoformat(" "),
        f"{moment.year}/{moment.month}/{moment.day} {moment:%H:%M:%S}",
        f"{moment.year}年{moment.month}月{moment.day}日 {moment:%H:%M:%S}",
        f"{moment:%Y%m%d%H%M%S}",
        instant.isoformat(),
    )
    assert {parse_time(form, zone) for form in forms} == {instant}


@given(st.datetimes(datetime(2001, 10, 1), datetime(2150, 1, 1), timezones=st.just(UTC)))
def test_an_epoch_is_its_instant_whatever_the_zone(moment: datetime) -> None:
    moment = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    seconds = int(moment.timestamp())
    for zone in (UTC, SHANGHAI):
        assert parse_time(str(seconds), zone) == moment.replace(microsecond=0)
        milliseconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
        assert parse_time(str(milliseconds), zone) == moment


@given(st.one_of(st.text(), st.integers(), st.floats(), st.none(), st.booleans(), st.dates()))
def test_any_cell_is_a_time_within_bounds_or_a_value_error(cell: Any) -> None:
    try:
        moment = parse_time(cell, SHANGHAI)
    except ValueError:
        return
    assert moment.tzinfo is UTC
    assert 1900 <= moment.year <= 2199


@pytest.mark.parametrize(
    ("cell", "amount"),
    [
        ("1234.5", 1234.5),
        ("¥1,234.50", 1234.5),
        ("￥１，２３４．５０", 1234.5),
        ("1.234,50 €", 1234.5),
        ("1 234,50", 1234.5),
        ("1\u00a0234,50\u00a0€", 1234.5),
        ("1'234.50 CHF", 1234.5),
        ("$1,234,567.89", 1234567.89),
        ("1.234.567", 1234567.0),
        ("1,234", 1234.0),
        ("1.234", 1.23),
        ("0,5", 0.5),
        ("12元", 12.0),
        ("RMB 12", 12.0),
        ("(12.00)", -12.0),
        ("-12", -12.0),
        ("−12,00 €", -12.0),
        ("12-", -12.0),
        (12, 12.0),
        (12.345, 12.35),
        (Decimal("12.30"), 12.3),
    ],
)
def test_an_amount_as_people_write_it(cell: Any, amount: float) -> None:
    assert parse_amount(cell) == pytest.approx(amount, abs=0.006)


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("1.234 €", "thousands or a fraction: declare what stands before the fraction"),
        ("1,23,4", "grouped by three digits"),
        ("1.234,5.6", "mixed up"),
        ("nan", "not an amount"),
        ("inf", "not an amount"),
        ("1e3", "not an amount"),
        ("", "not an amount"),
        ("zwölf", "not an amount"),
        ("12 CNY paid", "not an amount"),
        ("--5", "not an amount"),
        ("1" * 13, "more than 12 digits"),
        (float("nan"), "no number"),
        (True, "not an amount"),
        (None, "not an amount"),
    ],
)
def test_what_is_no_amount_or_two_is_refused(cell: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_amount(cell)


def test_a_declared_mark_settles_it() -> None:
    assert parse_amount("1.234 €", ",") == 1234.0
    assert parse_amount("1.234 €", ".") == 1.23
    assert parse_amount("1,234", ",") == 1.23
    with pytest.raises(ValueError, match=r"mixed up|three digits"):
        parse_amount("1,234.50", ",")


CENTS = st.integers(-(10**13) + 1, 10**13 - 1)


@given(CENTS, st.sampled_from(["", "¥", "€", "USD "]))
def test_an_amount_written_either_way_is_the_same(cents: int, mark: str) -> None:
    amount = cents / 100
    english, german = f"{amount:,.2f}", f"{amount:,.2f}".translate(str.maketrans(",.", ".,"))
    for written in (f"{mark}{english}", f"{german} {mark}".strip(), f"{amount:.2f}"):
        assert parse_amount(written) == pytest.approx(amount, rel=1e-12)


@given(
    st.one_of(st.text(), st.integers(), st.floats(), st.none()), st.sampled_from([None, ",", "."])
)
def test_any_cell_is_an_amount_within_bounds_or_a_value_error(cell: Any, mark: Any) -> None:
    try:
        amount = parse_amount(cell, mark)
    except ValueError:
        return
    assert abs(amount) <= 1e12


def test_a_huge_whole_number_is_refused() -> None:
    with pytest.raises(ValueError, match="12 digits"):
        parse_amount(10**400)
