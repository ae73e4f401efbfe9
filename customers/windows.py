"""Day windows: N calendar days in one time zone, the last day included."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo


@dataclass(frozen=True, slots=True)
class DayWindow:
    """Instants from `start` (included) to `end` (included), both aware UTC."""

    start: datetime
    end: datetime


def day_window(days: int, until: date | None, as_of: datetime, zone: tzinfo) -> DayWindow:
    """The last `days` calendar days up to `as_of`, or up to the end of the day `until`.

    Nothing later than `as_of` is ever in a window. A day that is 23 or 25 hours long is one day.
    """
    last = until or as_of.astimezone(zone).date()
    first = last - timedelta(days=days - 1)
    end = _midnight(last + timedelta(days=1), zone) - timedelta(microseconds=1)
    return DayWindow(start=_midnight(first, zone), end=min(end, as_of.astimezone(UTC)))


def days_between(earlier: datetime, as_of: datetime, zone: tzinfo) -> int:
    """Calendar days from one instant to `as_of`: 0 on the same local day."""
    return (as_of.astimezone(zone).date() - earlier.astimezone(zone).date()).days


def _midnight(day: date, zone: tzinfo) -> datetime:
    return datetime.combine(day, time.min, zone).astimezone(UTC)
