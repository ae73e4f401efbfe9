"""Day windows in a sentence: 近7天, 最近两周, 上周, 本月, last 30 days, past quarter.

Rolling windows end at `as_of` and take in whole calendar days, today included: 近7天, 最近一周,
past 7 days and no window at all are the same seven days. Calendar windows (上周, last month) end
with the last day of that week or month. Weeks begin on Monday. A number of days goes before a
calendar word said in passing: "近30天，今天要联系吗" looks back thirty days.
"""

import re
from datetime import date, timedelta

from followup_agent.goals.limits import DEFAULT_DAYS, MAX_DAYS
from followup_agent.goals.text import simplified
from followup_agent.state import Window

DAY = timedelta(days=1)

_ZH_DIGITS = {digit: value for value, digit in enumerate("零一二三四五六七八九")} | {
    "〇": 0,
    "两": 2,
}
_EN_ONES = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
)
_EN_ONES += " sixteen seventeen eighteen nineteen"
_EN_WORDS = {word: value for value, word in enumerate(_EN_ONES.split(), start=1)}
_EN_WORDS |= {"a": 1, "an": 1, "couple of": 2, "twenty": 20, "thirty": 30, "forty": 40}
_EN_WORDS |= {"fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90}

_ZH_UNIT = {
    "天": 1,
    "日": 1,
    "d": 1,
    "周": 7,
    "星期": 7,
    "礼拜": 7,
    "月": 30,
    "季度": 90,
    "年": 365,
}
_EN_UNIT = {"day": 1, "d": 1, "week": 7, "fortnight": 14, "month": 30, "quarter": 90, "year": 365}
_CLEAR_ZH_UNITS = ("天", "周", "星期", "礼拜")
"""A number of these is a period by itself; of the others (3月, 2年) only with 近 or 内 around it."""

_ZH_ROLLING = re.compile(
    r"(?P<lead>最近|过去|往前|近|前|这)?\s*(?<![上下本第每0-9零〇一二两三四五六七八九十百])"
    r"(?P<number>[0-9]+|[零〇一二两三四五六七八九十百]+)\s*[来多余]?\s*(?P<measure>个)?\s*(?P<half>半)?"
    r"(?P<unit>天|日(?!期)|d\b|周(?!岁)|星期|礼拜|月(?!\s*[0-9])|季度|年)\s*(?P<tail>之?内|以内|以?来)?",
    re.IGNORECASE,
)
_ZH_HALF = re.compile(r"(?<![上下一二两三四五个])半\s*(?:(?P<month>个?月)|年)")
_EN_ROLLING = re.compile(
    r"\b(?P<number>[0-9]+|(?:a\s+)?couple\s+of|"
    r"(?:twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)(?:[\s\-]+(?:one|two|three|four|five|six|seven|eight|nine))?|"
    + "|".join(sorted(_EN_WORDS, key=len, reverse=True))
    # Digits may touch their unit (7d), a word may not: "and" is not "an" + "d".
    + r")(?:(?<=[0-9])[\s\-]*|(?<![0-9])[\s\-]+)"
    r"(?P<unit>day|d|week|fortnight|month|quarter|year)s?\b",
    re.IGNORECASE,
)
_EN_PAST_ONE = re.compile(
    r"\b(?:past|recent)\s+(?P<unit>day|week|month|quarter|year|fortnight)\b"
    r"|\blast\s+(?P<fortnight>fortnight)\b",
    re.IGNORECASE,
)
_EN_HALF = re.compile(r"\bhalf\s+(?:a\s+|of\s+a\s+)?year\b", re.IGNORECASE)
_SINCE = re.compile(
    r"(?:(?P<month>[0-9]{1,2})月(?P<day>[0-9]{1,2})[日号]\s*(?:以来|至今|起|开始|到现在))"
    r"|(?:\bsince\s+|自\s*|从\s*)(?P<iso>[0-9]{4}-[0-9]{2}-[0-9]{2})",
    re.IGNORECASE,
)
_ENDING_YESTERDAY = re.compile(
    r"(?:截至|截止|到|至)\s*(?:昨[天日])|\b(?:to|until|till|through|ending)\s+yesterday\b",
    re.IGNORECASE,
)
_CALENDAR = re.compile(
    r"""
      (?P<week_before_last>上上\s*个?\s*(?:周|星期|礼拜)|\bweek\s+before\s+last\b)
    | (?P<month_before_last>上上\s*个?\s*月|\bmonth\s+before\s+last\b)
    | (?P<last_week>上\s*一?\s*个?\s*(?:周|星期|礼拜)|\b(?:last|previous)\s+week\b)
    | (?P<this_week>[本这]\s*个?\s*(?:周|星期|礼拜)|\bthis\s+week\b)
    | (?P<last_month>上\s*一?\s*个?\s*月|\b(?:last|previous)\s+month\b)
    | (?P<this_month>[本这当]\s*个?\s*月|月初至今|\bthis\s+month\b|\bmonth\s+to\s+date\b|\bmtd\b)
    | (?P<last_quarter>上\s*一?\s*个?\s*季度?|\b(?:last|previous)\s+quarter\b)
    | (?P<this_quarter>[本这]\s*个?\s*季度?|\bthis\s+quarter\b|\bquarter\s+to\s+date\b|\bqtd\b)
    | (?P<this_year>今年|本年|年初至今|\bthis\s+year\b|\byear\s+to\s+date\b|\bytd\b)
    | (?P<last_year>去年|\blast\s+year\b)
    | (?P<day_before_yesterday>前[天日]|\bday\s+before\s+yesterday\b)
    | (?P<yesterday>昨[天日]|\byesterday\b)
    | (?P<today>今[天日]|当天|\btoday\b)
    """,
    re.IGNORECASE | re.VERBOSE,
)
_UNREAD_PERIOD = re.compile(
    r"[0-9]{4}-[0-9]{1,2}\b|[0-9]{4}年|[0-9一二三四五六七八九十]月份|[一二三四五六七八九十]月以来"
    r"|\b(?:in|since|from|during|for)\s+(?:january|february|march|april|may|june|july|august|september"
    r"|october|november|december)\b",
    re.IGNORECASE,
)
_ANY_UNIT = re.compile(
    r"[0-9]{4}-[0-9]|january|february|march|april|\bmay\b|june|july|august|september|october|november"
    r"|december|[天日周月季年]|星期|礼拜|day|week|month|quarter|year|fortnight|[0-9]d\b|since|自|从|[mqy]td\b",
    re.IGNORECASE,
)


def read_window(normal_text: str, today: date) -> Window:
    """The window the text names, or the default; `days` may be out of range, to be asked about.

    `today` is the local date of `as_of`. The text must be in normal form and without ids.
    """
    text = simplified(normal_text)
    if not _ANY_UNIT.search(text):
        return Window(days=DEFAULT_DAYS, until=None, stated=False)
    if days := _since(text, today) or _rolling(text):
        ends_yesterday = _ENDING_YESTERDAY.search(text)
        until = (today - DAY).isoformat() if ends_yesterday else None
        return Window(days=days if days > 0 else 0, until=until, stated=True)
    if match := _CALENDAR.search(text):
        first, last = _calendar_days(str(match.lastgroup), today)
        # The tools look back over 365 days: of a whole leap year the last ones count.
        days = min((last - first).days + 1, MAX_DAYS)
        return Window(days=days, until=None if last == today else last.isoformat(), stated=True)
    # A period that is named and not understood is asked about, never taken for the default.
    unread = _UNREAD_PERIOD.search(text)
    return Window(days=0 if unread else DEFAULT_DAYS, until=None, stated=bool(unread))


def _rolling(text: str) -> int | None:
    """Days of the first rolling period; -1 for one of no day (近0天), None for no period."""
    if match := _ZH_HALF.search(text):
        return 15 if match["month"] else 182
    for match in _ZH_ROLLING.finditer(text):
        unit = match["unit"].lower()
        a_period = match["lead"] or match["tail"] or unit in _CLEAR_ZH_UNITS
        if unit == "月" and not match["lead"] and not match["measure"]:
            continue  # 三月 is March; 三个月 are three months
        if a_period or (unit == "季度" and match["measure"]) or match["half"]:
            days = _zh_number(match["number"]) * _ZH_UNIT[unit]
            return days + _ZH_UNIT[unit] // 2 if match["half"] else days or -1
    if _EN_HALF.search(text):
        return 182
    if match := _EN_PAST_ONE.search(text):
        return _EN_UNIT[(match["unit"] or match["fortnight"]).lower()]
    if match := _EN_ROLLING.search(text):
        return _en_number(match["number"]) * _EN_UNIT[match["unit"].lower()] or -1
    return None


def _since(text: str, today: date) -> int | None:
    """Days from a date that is named to today; None for none, or for one that is no date."""
    match = _SINCE.search(text)
    if match is None:
        return None
    try:
        if match["iso"]:
            first = date.fromisoformat(match["iso"])
        else:
            first = date(today.year, int(match["month"]), int(match["day"]))
            first = first if first <= today else first.replace(year=today.year - 1)
    except ValueError:
        return None
    return (today - first).days + 1 if first <= today else None


def _calendar_days(name: str, today: date) -> tuple[date, date]:
    """First and last day of a calendar window."""
    monday = today - today.weekday() * DAY
    month = today.replace(day=1)
    quarter = date(today.year, 3 * ((today.month - 1) // 3) + 1, 1)
    match name:
        case "this_week":
            return monday, today
        case "last_week":
            return monday - 7 * DAY, monday - DAY
        case "week_before_last":
            return monday - 14 * DAY, monday - 8 * DAY
        case "this_month":
            return month, today
        case "last_month":
            return _month_before(month)
        case "month_before_last":
            return _month_before(_month_before(month)[0])
        case "this_quarter":
            return quarter, today
        case "last_quarter":
            last = quarter - DAY
            return date(last.year, last.month - 2, 1), last
        case "this_year":
            return today.replace(month=1, day=1), today
        case "last_year":
            return date(today.year - 1, 1, 1), date(today.year - 1, 12, 31)
    days_ago = {"today": 0, "yesterday": 1, "day_before_yesterday": 2}[name]
    return today - days_ago * DAY, today - days_ago * DAY


def _month_before(first_of_month: date) -> tuple[date, date]:
    last = first_of_month - DAY
    return last.replace(day=1), last


def _zh_number(text: str) -> int:
    """'30', '三十', '两' as a whole number; a number of more digits than any window has is large."""
    if text.isascii():
        return int(text[:9])
    total = digit = 0
    for char in text:
        if char in "十百":
            total += (digit or 1) * (10 if char == "十" else 100)
            digit = 0
        else:
            digit = digit * 10 + _ZH_DIGITS[char]
    return total + digit


def _en_number(text: str) -> int:
    """'30', 'twenty-one', 'a couple of' as a whole number."""
    if text.isdigit():
        return int(text[:9])
    words = re.sub(r"^a\s+couple", "couple", " ".join(text.lower().replace("-", " ").split()))
    if words in _EN_WORDS:
        return _EN_WORDS[words]
    return sum(_EN_WORDS[word] for word in words.split())
