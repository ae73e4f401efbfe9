"""Day windows in a sentence: 近7天, 最近两周, 上周, 本月, last 30 days, past quarter.

Rolling windows end at `as_of` and take in whole calendar days, today included: 近7天, 最近一周,
past 7 days and no window at all are the same seven days. Calendar windows (上周, last month) end
with the last day of that week or month. Weeks begin on Monday.
"""

import calendar
import re
from datetime import date, timedelta

from followup_agent.goals.limits import DEFAULT_DAYS, MAX_DAYS
from followup_agent.state import Window

_DIGITS = {"零": 0, "〇": 0, "一": 1, "二": 2, "两": 2, "三": 3, "四": 4, "五": 5, "六": 6, "七": 7}
_DIGITS |= {"八": 8, "九": 9}
_WORDS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
_WORDS |= {"seven": 7, "eight": 8, "nine": 9, "ten": 10, "twelve": 12, "fourteen": 14}
_WORDS |= {"fifteen": 15, "twenty": 20, "thirty": 30, "sixty": 60, "ninety": 90, "couple of": 2}

_ZH_NUMBER = r"[0-9]{1,6}|[零〇一二两三四五六七八九十百]{1,5}"
_EN_NUMBER = "[0-9]{1,6}|" + "|".join(sorted(_WORDS, key=len, reverse=True))
_ZH_UNIT = {"天": 1, "日": 1, "周": 7, "星期": 7, "礼拜": 7, "月": 30, "季度": 90, "年": 365}
_EN_UNIT = {"day": 1, "week": 7, "month": 30, "quarter": 90, "year": 365, "fortnight": 14}
_RECENT = r"最近|过去|近|前|这|往前|以来"

_ZH_ROLLING = re.compile(
    rf"(?P<lead>{_RECENT})?\s*(?P<number>{_ZH_NUMBER})\s*个?\s*"
    r"(?P<unit>天|日(?!期)|周(?!岁)|星期|礼拜|月(?!\s*[0-9一二三])|季度|年)"
    r"\s*(?P<tail>之?内|以?来)?"
)
_ZH_HALF = re.compile(rf"(?:{_RECENT})?\s*半\s*(?P<unit>个月|年)")
_EN_ROLLING = re.compile(
    rf"\b(?:last|past|previous|recent|in|within|over|for|during)?\s*(?:the\s+)?(?:last|past|previous)?\s*"
    rf"\b(?P<number>{_EN_NUMBER})[\s\-]*(?P<unit>day|week|month|quarter|year|fortnight)s?\b",
    re.IGNORECASE,
)
_EN_PAST_ONE = re.compile(
    r"\b(?:past|recent)\s+(?P<unit>day|week|month|quarter|year|fortnight)\b", re.IGNORECASE
)
_CALENDAR = re.compile(
    r"""
      (?P<last_week>上\s*个?\s*(?:周|星期|礼拜)|\b(?:last|previous)\s+week\b)
    | (?P<this_week>[本这]\s*个?\s*(?:周|星期|礼拜)|\bthis\s+week\b)
    | (?P<last_month>上\s*个?\s*月|\b(?:last|previous)\s+month\b)
    | (?P<this_month>[本这当]\s*个?\s*月|\bthis\s+month\b)
    | (?P<last_quarter>上\s*个?\s*季度?|\b(?:last|previous)\s+quarter\b)
    | (?P<this_quarter>[本这]\s*个?\s*季度?|\bthis\s+quarter\b)
    | (?P<this_year>今年|本年|\bthis\s+year\b|\byear\s+to\s+date\b)
    | (?P<last_year>去年|\blast\s+year\b)
    | (?P<yesterday>昨[天日]|\byesterday\b)
    | (?P<today>今[天日]|当天|\btoday\b)
    """,
    re.IGNORECASE | re.VERBOSE,
)


_ANY_UNIT = re.compile(
    r"[天日周月季年]|星期|礼拜|day|week|month|quarter|year|fortnight", re.IGNORECASE
)


def read_window(normal_text: str, today: date) -> Window:
    """The window the text names, or the default; `days` may be over `MAX_DAYS`, to be refused.

    `today` is the local date of `as_of`. The text must be in normal form and without ids.
    """
    if not _ANY_UNIT.search(normal_text):
        return Window(days=DEFAULT_DAYS, until=None, stated=False)
    if match := _CALENDAR.search(normal_text):
        return _calendar_window(str(match.lastgroup), today)
    if match := _ZH_HALF.search(normal_text):
        return _rolling(15 if match["unit"] == "个月" else 182)
    for match in _ZH_ROLLING.finditer(normal_text):
        if match["lead"] or match["tail"] or match["unit"] not in ("日", "月", "年"):
            return _rolling(_number(match["number"]) * _ZH_UNIT[match["unit"]])
    if match := _EN_PAST_ONE.search(normal_text):
        return _rolling(_EN_UNIT[match["unit"].lower()])
    if match := _EN_ROLLING.search(normal_text):
        return _rolling(_number(match["number"]) * _EN_UNIT[match["unit"].lower()])
    return Window(days=DEFAULT_DAYS, until=None, stated=False)


def _rolling(days: int) -> Window:
    return Window(days=days, until=None, stated=True)


def _calendar_window(name: str, today: date) -> Window:
    first, last = _calendar_days(name, today)
    until = None if last == today else last.isoformat()
    return Window(days=(last - first).days + 1, until=until, stated=True)


def _calendar_days(name: str, today: date) -> tuple[date, date]:
    monday = today - timedelta(days=today.weekday())
    month = today.replace(day=1)
    quarter = date(today.year, 3 * ((today.month - 1) // 3) + 1, 1)
    day = timedelta(days=1)
    match name:
        case "today":
            return today, today
        case "yesterday":
            return today - day, today - day
        case "this_week":
            return monday, today
        case "last_week":
            return monday - 7 * day, monday - day
        case "this_month":
            return month, today
        case "last_month":
            last = month - day
            return last.replace(day=1), last
        case "this_quarter":
            return quarter, today
        case "last_quarter":
            last = quarter - day
            return date(last.year, last.month - 2, 1), last
        case "this_year":
            return today.replace(month=1, day=1), today
        case _:
            year = today.year - 1
            days = 366 if calendar.isleap(year) else 365
            # The last 365 days of a leap year: the tools look back no further.
            first = date(year, 1, 1) + (days - MAX_DAYS) * day
            return first, date(year, 12, 31)


def _number(text: str) -> int:
    """'30', '三十', '两', 'two' as a whole number."""
    text = text.lower()
    if text in _WORDS:
        return _WORDS[text]
    if text.isascii() and text.isdigit():
        return int(text)
    total = 0
    digit = 0
    for char in text:
        if char in "十百":
            total += (digit or 1) * (10 if char == "十" else 100)
            digit = 0
        else:
            digit = _DIGITS[char] if digit == 0 else digit * 10 + _DIGITS[char]
    return total + digit
