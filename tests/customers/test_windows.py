"""Day windows in a time zone: whole local days, and nothing later than `as_of`."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from followup_agent.customers.windows import day_window, days_between

SHANGHAI = ZoneInfo("Asia/Shanghai")
NEW_YORK = ZoneInfo("America/New_York")
TICK = timedelta(microseconds=1)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("days", "until", "zone", "start", "end"),
    [
        (1, None, UTC, "2026-03-01 00:00", "2026-03-01 23:30"),
        (7, None, UTC, "2026-02-23 00:00", "2026-03-01 23:30"),
        (7, None, SHANGHAI, "2026-02-23 16:00", "2026-03-01 23:30"),
        (1, None, SHANGHAI, "2026-03-01 16:00", "2026-03-01 23:30"),
        (7, date(2026, 3, 1), SHANGHAI, "2026-02-22 16:00", "2026-03-01 15:59:59.999999"),
        (28, date(2026, 2, 28), SHANGHAI, "2026-01-31 16:00", "2026-02-28 15:59:59.999999"),
        (1, date(2026, 3, 2), SHANGHAI, "2026-03-01 16:00", "2026-03-01 23:30"),
        (7, None, NEW_YORK, "2026-02-23 05:00", "2026-03-01 23:30"),
    ],
)
def test_a_window_takes_in_whole_local_days(
    days: int, until: date | None, zone: ZoneInfo, start: str, end: str
) -> None:
    window = day_window(days, until, utc("2026-03-01 23:30"), zone)
    assert (window.start, window.end) == (utc(start), utc(end))


@pytest.mark.parametrize(
    ("day", "hours"),
    [(date(2026, 3, 8), 23), (date(2026, 3, 9), 24), (date(2026, 11, 1), 25)],
)
def test_a_day_of_23_or_25_hours_is_one_day(day: date, hours: int) -> None:
    window = day_window(1, day, utc("2027-01-01 00:00"), NEW_YORK)
    assert window.end - window.start + TICK == timedelta(hours=hours)


@pytest.mark.parametrize(
    ("earlier", "as_of", "zone", "days"),
    [
        ("2026-03-01 10:00", "2026-03-01 23:30", UTC, 0),
        ("2026-03-01 10:00", "2026-03-01 23:30", SHANGHAI, 1),
        ("2026-03-01 16:00", "2026-03-01 23:30", SHANGHAI, 0),
        ("2026-02-28 23:59", "2026-03-01 00:00", UTC, 1),
        ("2026-03-08 04:59", "2026-03-09 04:00", NEW_YORK, 2),
        ("2026-03-08 05:00", "2026-03-09 03:59", NEW_YORK, 0),
        ("2026-01-15 23:30", "2026-03-01 23:30", UTC, 45),
    ],
)
def test_days_between_counts_local_midnights(
    earlier: str, as_of: str, zone: ZoneInfo, days: int
) -> None:
    assert days_between(utc(earlier), utc(as_of), zone) == days


ZONES = st.sampled_from(
    [
        "UTC",
        "Asia/Shanghai",
        "America/New_York",
        "Europe/London",
        "Australia/Lord_Howe",
        "Africa/Cairo",
        "America/Havana",
        "Asia/Kathmandu",
        "Pacific/Kiritimati",
    ]
).map(ZoneInfo)
SINCE = datetime(2015, 1, 1, tzinfo=UTC)
SPAN = datetime(2035, 1, 1, tzinfo=UTC) - SINCE
MOMENTS = st.timedeltas(timedelta(0), SPAN).map(lambda past: SINCE + past)


@given(days=st.integers(1, 365), back=st.integers(0, 400), as_of=MOMENTS, zone=ZONES)
@settings(max_examples=300, deadline=None)
def test_a_window_covers_exactly_its_local_dates_and_nothing_after_as_of(
    days: int, back: int, as_of: datetime, zone: ZoneInfo
) -> None:
    today = as_of.astimezone(zone).date()
    until = today - timedelta(days=back) if back else None
    window = day_window(days, until, as_of, zone)
    first, last = window.start.astimezone(zone).date(), window.end.astimezone(zone).date()
    assert window.end <= as_of
    assert last == (until or today)
    assert (last - first).days + 1 == days
    assert (window.start - TICK).astimezone(zone).date() == first - timedelta(days=1)
    if until:
        assert (window.end + TICK).astimezone(zone).date() == last + timedelta(days=1)


@given(days=st.integers(1, 365), ahead=st.integers(1, 400), as_of=MOMENTS, zone=ZONES)
@settings(max_examples=100, deadline=None)
def test_a_window_up_to_a_future_day_still_ends_at_as_of(
    days: int, ahead: int, as_of: datetime, zone: ZoneInfo
) -> None:
    until = as_of.astimezone(zone).date() + timedelta(days=ahead)
    assert day_window(days, until, as_of, zone).end == as_of


@given(days=st.integers(1, 364), as_of=MOMENTS, zone=ZONES)
@settings(max_examples=100, deadline=None)
def test_two_windows_side_by_side_neither_overlap_nor_leave_a_gap(
    days: int, as_of: datetime, zone: ZoneInfo
) -> None:
    near = day_window(days, None, as_of, zone)
    before = near.start.astimezone(zone).date() - timedelta(days=1)
    assert day_window(1, before, as_of, zone).end + TICK == near.start


@given(earlier=MOMENTS, later=MOMENTS, zone=ZONES)
@settings(max_examples=100, deadline=None)
def test_days_between_and_windows_agree(earlier: datetime, later: datetime, zone: ZoneInfo) -> None:
    earlier, later = sorted((earlier, later))
    days = days_between(earlier, later, zone)
    assert days >= 0
    assert day_window(days + 1, None, later, zone).start <= earlier
    if days:
        assert earlier < day_window(days, None, later, zone).start
