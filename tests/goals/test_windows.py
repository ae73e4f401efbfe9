"""What period a sentence names: the same words always give the same days (B50)."""

from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from followup_agent.goals.text import normal_form
from followup_agent.goals.windows import read_window
from followup_agent.state import Window

MONDAY = date(2026, 3, 2)


def read(text: str, today: date = MONDAY) -> Window:
    return read_window(normal_form(text), today)


@pytest.mark.parametrize("text", ["近7天", "最近一周", "past 7 days", "是否需要重点跟进"])
def test_the_same_seven_days_however_they_are_named(text: str) -> None:
    window = read(text)
    assert (window["days"], window["until"]) == (7, None)
    assert window["stated"] == (text != "是否需要重点跟进")


ROLLING = [
    ("近7天", 7),
    ("近 7 天", 7),
    ("近７天", 7),
    ("最近七天", 7),
    ("过去七天", 7),
    ("前7天", 7),
    ("7日内", 7),
    ("近７日", 7),
    ("最近三日", 3),
    ("一周内", 7),
    ("最近两周", 14),
    ("最近2个星期", 14),
    ("近两个礼拜", 14),
    ("近 3 个礼拜", 21),
    ("近3周", 21),
    ("三十天", 30),
    ("近三十天", 30),
    ("过去 30 天", 30),
    ("过去３０天", 30),
    ("最近三十天内", 30),
    ("近一个月", 30),
    ("最近１个月", 30),
    ("近1个月", 30),
    ("最近两个月", 60),
    ("最近三个月", 90),
    ("近90日", 90),
    ("最近十五天", 15),
    ("最近二十一天", 21),
    ("最近一百二十天", 120),
    ("近半个月", 15),
    ("半年", 182),
    ("最近半年", 182),
    ("过去一年", 365),
    ("最近一年", 365),
    ("近1季度", 90),
    ("最近一个季度", 90),
    ("近两个季度", 180),
    ("这两天", 2),
    ("30天没登录", 30),
    ("三周没来", 21),
    ("两周以来", 14),
    ("订单 3 笔，近 10 天", 10),
    ("last 30 days", 30),
    ("LAST 30 DAYS", 30),
    ("the last seven days", 7),
    ("past 90 days", 90),
    ("previous 14 days", 14),
    ("within 10 days", 10),
    ("during the last 10 days", 10),
    ("past two weeks", 14),
    ("over the last two weeks", 14),
    ("the last three weeks", 21),
    ("last couple of weeks", 14),
    ("last 1 week", 7),
    ("past week", 7),
    ("this past week", 7),
    ("past fortnight", 14),
    ("the past month", 30),
    ("past six months", 180),
    ("last 6 months", 180),
    ("past quarter", 90),
    ("past year", 365),
    ("a month", 30),
    ("14-day window", 14),
    ("trailing 30 days", 30),
    ("3 orders in 10 days", 10),
]


@pytest.mark.parametrize(("text", "days"), ROLLING)
def test_a_rolling_window_ends_now(text: str, days: int) -> None:
    assert read(text) == Window(days=days, until=None, stated=True)


CALENDAR = [
    ("今天", 1, None),
    ("今日", 1, None),
    ("today", 1, None),
    ("昨天", 1, "2026-03-01"),
    ("昨日", 1, "2026-03-01"),
    ("yesterday", 1, "2026-03-01"),
    ("上周", 7, "2026-03-01"),
    ("上个礼拜", 7, "2026-03-01"),
    ("上星期", 7, "2026-03-01"),
    ("last week", 7, "2026-03-01"),
    ("what was ordered and paid last week", 7, "2026-03-01"),
    ("previous week", 7, "2026-03-01"),
    ("本周", 1, None),
    ("这周", 1, None),
    ("this week", 1, None),
    ("上个月", 28, "2026-02-28"),
    ("上月", 28, "2026-02-28"),
    ("last month", 28, "2026-02-28"),
    ("本月", 2, None),
    ("这个月", 2, None),
    ("当月", 2, None),
    ("this month", 2, None),
    ("上季度", 92, "2025-12-31"),
    ("上个季度", 92, "2025-12-31"),
    ("last quarter", 92, "2025-12-31"),
    ("本季度", 61, None),
    ("this quarter", 61, None),
    ("今年", 61, None),
    ("今年以来", 61, None),
    ("this year", 61, None),
    ("year to date", 61, None),
    ("去年", 365, "2025-12-31"),
    ("last year", 365, "2025-12-31"),
]


@pytest.mark.parametrize(("text", "days", "until"), CALENDAR)
def test_a_calendar_window_ends_with_its_last_day(text: str, days: int, until: str | None) -> None:
    assert read(text) == Window(days=days, until=until, stated=True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "是否需要跟进",
        "最近",
        "最近几天",
        "订单 3 笔",
        "5个工单",
        "3 orders and 2 tickets",
        "在用3年的老客户",
        "每天登录吗",
        "日活怎么样",
        "月费客户",
        "weekly usage",
        "the monthly plan",
        "an annual plan",
        "24/7 support",
        "5月的生日",
    ],
)
def test_what_is_no_window_leaves_the_default(text: str) -> None:
    assert read(text) == Window(days=7, until=None, stated=False)


@pytest.mark.parametrize("text", ["近400天", "近两年", "last 18 months", "近0天"])
def test_a_window_out_of_range_is_kept_to_be_refused(text: str) -> None:
    window = read(text)
    assert window["stated"]
    assert not 1 <= window["days"] <= 365


@pytest.mark.parametrize("text", ["近1000000天", "last 10000007 days", "近12345678天"])
def test_a_huge_number_is_not_cut_to_its_last_digits(text: str) -> None:
    assert read(text)["days"] > 365


# Each of these was once read as some other number of days, without a word.
@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("last twenty-one days", 21),
        ("last forty-five days", 45),
        ("the last twenty one days", 21),
        ("half a year", 182),
        ("the last half year", 182),
    ],
)
def test_english_number_words_are_read_whole(text: str, days: int) -> None:
    assert read(text) == Window(days=days, until=None, stated=True)


@pytest.mark.parametrize(
    "text",
    [
        "近30天，今天要不要联系",
        "看近30天的数据，今天要跟进吗",
        "Last 30 days: should I call them today?",
        "比昨天怎么样？近30天",
    ],
)
def test_a_number_of_days_goes_before_a_today_said_in_passing(text: str) -> None:
    assert read(text) == Window(days=30, until=None, stated=True)


@pytest.mark.parametrize(
    ("text", "days", "until"),
    [
        ("前天", 1, "2026-02-28"),
        ("the day before yesterday", 1, "2026-02-28"),
        ("上上周", 7, "2026-02-22"),
        ("上上个月", 31, "2026-01-31"),
        ("上一个月", 28, "2026-02-28"),
        ("截至昨天的7天", 7, "2026-03-01"),
        ("7 days to yesterday", 7, "2026-03-01"),
        ("月初至今", 2, None),
        ("month to date", 2, None),
        ("年初至今", 61, None),
    ],
)
def test_calendar_words_are_not_read_as_their_neighbours(
    text: str, days: int, until: str | None
) -> None:
    assert read(text) == Window(days=days, until=until, stated=True)


@pytest.mark.parametrize("text", ["第三季度", "第3季度", "二季度", "上半年", "下半年"])
def test_the_name_of_a_quarter_or_half_is_no_rolling_window(text: str) -> None:
    window = read(text)
    assert window["until"] is not None or not window["stated"]


@pytest.mark.parametrize(
    ("text", "days"), [("3月1日以来", 2), ("2月1日以来", 30), ("自2月1日起", 30)]
)
def test_a_since_date_reaches_from_that_day_to_today(text: str, days: int) -> None:
    assert read(text) == Window(days=days, until=None, stated=True)


@pytest.mark.parametrize(
    ("text", "days"),
    [("一个半月", 45), ("最近30来天", 30), ("近30多天", 30), ("last fortnight", 14)],
)
def test_rounded_periods_are_read(text: str, days: int) -> None:
    window = read(text)
    assert (window["days"], window["stated"]) == (days, True)


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("過去三十天", 30),
        ("近一個月", 30),
        ("最近兩週", 14),
        ("這個月", 2),
        ("last 30d", 30),
        ("近30d", 30),
    ],
)
def test_traditional_characters_and_short_forms_are_read(text: str, days: int) -> None:
    assert read(text)["days"] == days


@pytest.mark.parametrize(
    ("today", "text", "days", "until"),
    [
        (date(2024, 3, 31), "上个月", 29, "2024-02-29"),
        (date(2026, 1, 1), "上个月", 31, "2025-12-31"),
        (date(2026, 1, 1), "本月", 1, None),
        (date(2026, 1, 1), "last quarter", 92, "2025-12-31"),
        (date(2026, 3, 8), "本周", 7, None),
        (date(2026, 3, 8), "上周", 7, "2026-03-01"),
        (date(2025, 6, 1), "去年", 365, "2024-12-31"),
        (date(2024, 12, 31), "今年", 365, None),
    ],
)
def test_calendar_windows_at_the_edges_of_the_calendar(
    today: date, text: str, days: int, until: str | None
) -> None:
    window = read(text, today)
    assert (window["days"], window["until"]) == (days, until)


def test_this_year_on_the_last_day_of_a_leap_year_can_be_looked_up() -> None:
    assert read("今年", date(2024, 12, 31))["days"] <= 365


TODAYS = st.dates(date(2000, 1, 1), date(2100, 1, 1))


@given(today=TODAYS, days=st.integers(1, 365))
@settings(max_examples=60, deadline=None)
def test_any_number_of_days_is_read_in_both_languages(today: date, days: int) -> None:
    wanted = Window(days=days, until=None, stated=True)
    assert read(f"看看近{days}天", today) == wanted
    assert read(f"over the last {days} days", today) == wanted


@given(today=TODAYS, text=st.sampled_from([text for text, *_ in CALENDAR]))
@settings(max_examples=100, deadline=None)
def test_a_calendar_window_never_reaches_past_today(today: date, text: str) -> None:
    window = read(text, today)
    assert 1 <= window["days"] <= 366
    assert window["until"] is None or date.fromisoformat(window["until"]) < today


@given(text=st.text(max_size=60))
@settings(max_examples=150, deadline=None)
def test_no_text_makes_reading_fail(text: str) -> None:
    assert read(text)["days"] >= 0


@pytest.mark.parametrize(
    "text",
    ["在 2026-02-01 到 2026-02-10 之间活跃吗", "from 2026-02-01 to 2026-02-10", "2026年1月的订单", "orders in January",
     "2月份的订单", "三月以来"],
)  # fmt: skip
def test_a_period_that_is_named_and_not_understood_is_asked_about(text: str) -> None:
    """Never "none was named", and never some other days."""
    window = read(text)
    assert window["stated"]
    assert window["days"] == 0
