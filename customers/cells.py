"""What people's exports hold in a cell, as a time or an amount. Nothing ambiguous is guessed.

Times: ISO 8601 in any of its forms, `2026/3/1 10:00`, `2026.3.1`, `1.3.2026` (dotted dates are day
first everywhere), `2026年3月1日 10:00`, digits alone by their number (8 a day, 10 an epoch in
seconds, 13 in milliseconds, 14 a day with a time, 16 microseconds) and the serial dates of a
spreadsheet (five digits, days since 1899-12-30). `3/4/2026` is refused: it needs a declared form.

Amounts: `1234.5`, `¥1,234.50`, `1.234,50 €`, `1 234,50`, `(12.00)` for a negative one.
"""

import re
import unicodedata
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Any, Literal

Decimals = Literal[".", ","]
MIN_YEAR, MAX_YEAR = 1900, 2199
"""Outside of these a time is taken for a slip: 0001-01-01 and 9999-12-31 stand for 'none' in many
systems, and no export of customers is older."""
MAX_AMOUNT = 1e12
"""The column has 12 digits before its point."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SPREADSHEET_DAY_0 = datetime(1899, 12, 30)  # noqa: DTZ001 - local, zoned by the caller
_EPOCH_UNITS = {10: 1, 13: 1_000, 16: 1_000_000}
_DIGIT_FORMS = {8: "%Y%m%d", 14: "%Y%m%d%H%M%S"}
_FRACTION = re.compile(r"([0-9]{5}|[0-9]{10})\.[0-9]+", re.ASCII)
_WRITTEN = re.compile(
    r"(?:(?P<y>[0-9]{4})\s*[./年\-]\s*(?P<m>[0-9]{1,2})\s*[./月\-]\s*(?P<d>[0-9]{1,2})\s*日?"
    r"|(?P<d2>[0-9]{1,2})\.(?P<m2>[0-9]{1,2})\.(?P<y2>[0-9]{4}))"
    r"(?:[T\s]*(?P<H>[0-9]{1,2})[:时](?P<M>[0-9]{1,2})(?:[:分](?P<S>[0-9]{1,2})(?:[.,](?P<f>[0-9]{1,6}))?秒?)?分?)?"
    r"\s*(?P<zone>Z|UTC|GMT|[+\-][0-9]{2}:?(?:[0-9]{2})?)?",
    re.ASCII | re.IGNORECASE,
)
_EITHER_WAY = re.compile(r"[0-9]{1,2}[/\-][0-9]{1,2}[/\-](?:[0-9]{4}|[0-9]{2})\b", re.ASCII)


def parse_time(value: Any, zone: tzinfo, forms: Sequence[str] = ()) -> datetime:
    """The instant in UTC; without a zone of its own it is in `zone`, a day is its midnight there.

    `forms` (Python's `strptime`) are tried first. ValueError says what was wrong.
    """
    moment = _moment(value, forms)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    try:
        moment = moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("outside of the calendar") from error
    if not MIN_YEAR <= moment.year <= MAX_YEAR:
        raise ValueError(f"not between {MIN_YEAR} and {MAX_YEAR}: leave the cell empty for none")
    return moment


def _moment(value: Any, forms: Sequence[str]) -> datetime:
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)  # noqa: DTZ001 - zoned by the caller
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = repr(value).removesuffix(".0")
    if not isinstance(value, str):
        raise ValueError("not a time")
    text = value.strip()
    for form in forms:
        try:
            return datetime.strptime(text, form)  # noqa: DTZ007 - zoned by the caller
        except ValueError:
            continue
    if text.isdigit() and text.isascii():
        return _of_digits(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        pass
    if _FRACTION.fullmatch(text):
        return _of_number(float(text), len(text.partition(".")[0]))
    found = _WRITTEN.fullmatch(unicodedata.normalize("NFKC", text))
    if found is not None:
        return _of_parts({name: part for name, part in found.groupdict().items() if part})
    if _EITHER_WAY.match(text):
        raise ValueError(
            "may be day first or month first: declare it, e.g. --time-format '%d/%m/%Y' "
            "(in a mapping: parse_time(column, '%d/%m/%Y'))"
        )
    raise ValueError("not a time that is known here: declare its form with --time-format")


def _of_digits(digits: str) -> datetime:
    if form := _DIGIT_FORMS.get(len(digits)):
        try:
            return datetime.strptime(digits, form)  # noqa: DTZ007 - zoned by the caller
        except ValueError as error:
            raise ValueError("not a day of the calendar") from error
    if len(digits) in (5, *_EPOCH_UNITS):
        return _of_number(int(digits), len(digits))
    raise ValueError("a number that is no time: 5 digits are a spreadsheet's, 10 or 13 an epoch")


def _of_number(number: float, digits: int) -> datetime:
    if digits == 5:
        # To the millisecond, as a spreadsheet keeps it.
        return _SPREADSHEET_DAY_0 + timedelta(milliseconds=round(number * 86_400_000))
    return _EPOCH + timedelta(microseconds=round(number * (1_000_000 // _EPOCH_UNITS[digits])))


def _of_parts(parts: dict[str, str]) -> datetime:
    year, month, day = (int(parts.get(name) or parts[f"{name}2"]) for name in "ymd")
    hour, minute, second = (int(parts.get(name, 0)) for name in "HMS")
    fraction = int(parts.get("f", "0").ljust(6, "0"))
    try:
        moment = datetime(year, month, day, hour, minute, second, fraction)  # noqa: DTZ001 - as above
    except ValueError as error:
        raise ValueError("not a day of the calendar") from error
    zone = parts.get("zone", "").upper()
    if not zone:
        return moment
    if zone in ("Z", "UTC", "GMT"):
        return moment.replace(tzinfo=UTC)
    hours, minutes = int(zone[1:3]), int(zone[3:].lstrip(":") or 0)
    shift = timedelta(hours=hours, minutes=minutes)
    return (moment - shift if zone[0] == "+" else moment + shift).replace(tzinfo=UTC)


# --- amounts ---

_PLAIN = re.compile(r"-?[0-9]+(?:\.[0-9]+)?", re.ASCII)
_MARKS = re.compile(r"[A-Z]{3}|RMB|元|圆|[¥$€£₩₹]|(?:US|HK|NT|A|C|S)\$", re.IGNORECASE)
_BLANKS = re.compile(r"[\s'’_]")


def parse_amount(value: Any, decimals: Decimals | None = None) -> float:
    """The amount, rounded to two digits; ValueError says what was wrong.

    `decimals` is what stands before the fraction, where it was declared. Without it, the last of
    two kinds of separator does, and a lone one that three digits follow is a thousands comma or a
    decimal point; `1.234 €` may be either, and is refused.
    """
    if (isinstance(value, int | float | Decimal) and not isinstance(value, bool)) or (
        isinstance(value, str) and decimals != "," and _PLAIN.fullmatch(value)
    ):
        try:
            amount = float(value)
        except OverflowError:
            amount = float("inf")
    elif isinstance(value, str):
        amount = _written_amount(unicodedata.normalize("NFKC", value).strip(), decimals)
    else:
        raise ValueError("not an amount")
    if not abs(amount) < MAX_AMOUNT:  # nor NaN
        raise ValueError("not an amount: it has more than 12 digits, or is no number")
    return round(amount, 2)


def _written_amount(text: str, decimals: Decimals | None) -> float:
    bracketed = text.startswith("(") and text.endswith(")")
    inner = text[1:-1] if bracketed else text
    bare, marks = _MARKS.subn("", inner)
    if marks > 1 and not re.search(r"[¥$€£]", inner):
        raise ValueError("not an amount")
    bare = _BLANKS.sub("", bare).replace("−", "-")
    negative = bracketed or bare.startswith("-") or bare.endswith("-")
    bare = bare.strip("-") if bare.count("-") <= 1 else bare
    if not re.fullmatch(r"[0-9](?:[0-9.,]*[0-9])?", bare, re.ASCII):
        raise ValueError("not an amount")
    point = decimals or _decimal_mark(bare, marked=marks > 0)
    comma = "," if point == "." else "."
    whole, _, fraction = bare.rpartition(point) if point in bare else (bare, "", "")
    if point in whole or comma in fraction:
        raise ValueError("not an amount: its separators are mixed up")
    if comma in whole and not re.fullmatch(rf"[0-9]{{1,3}}(?:\{comma}[0-9]{{3}})+", whole):
        raise ValueError("not an amount: thousands are grouped by three digits")
    amount = float(f"{whole.replace(comma, '')}.{fraction or 0}")
    return -amount if negative else amount


def _decimal_mark(bare: str, *, marked: bool) -> Decimals:
    """Which of the two separators stands before the fraction."""
    points, commas = bare.count("."), bare.count(",")
    if points and commas:
        return "." if bare.rindex(".") > bare.rindex(",") else ","
    if points > 1:
        return ","
    if commas > 1:
        return "."
    if commas == 1:
        return "." if re.fullmatch(r"[1-9][0-9]{0,2},[0-9]{3}", bare) else ","
    if points == 1 and marked and re.fullmatch(r"[1-9][0-9]{0,2}\.[0-9]{3}", bare):
        raise ValueError(
            "may be thousands or a fraction: declare what stands before the fraction, "
            "e.g. --decimal , (in a mapping: parse_amount(column, ','))"
        )
    return "."
