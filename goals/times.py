"""Read the time a run judges as of."""

from datetime import UTC, date, datetime, time, tzinfo


def parse_as_of(text: str, zone: tzinfo) -> datetime:
    """An ISO 8601 time as aware UTC; ValueError with an example when it is none.

    A time without zone is in `zone`; a date alone is the end of that day, so that the day itself
    is seen.
    """
    try:
        if not isinstance(text, str):
            raise ValueError("not text")
        try:
            moment = datetime.combine(date.fromisoformat(text), time.max, zone)
        except ValueError:
            moment = datetime.fromisoformat(text)
        if not 1970 <= moment.year < 2200:
            raise ValueError("out of range")
    except ValueError as error:
        raise ValueError(
            f"as_of {text!r} is not an ISO 8601 time: write 2026-03-02 or 2026-03-02T07:30:00+08:00"
        ) from error
    return (moment.replace(tzinfo=zone) if moment.tzinfo is None else moment).astimezone(UTC)
