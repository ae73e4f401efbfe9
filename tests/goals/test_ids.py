"""Customer ids in a sentence are found whole or not at all (B09, B30)."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from followup_agent.goals.ids import IdPattern, learn_pattern
from followup_agent.goals.text import normal_form

SEED = IdPattern()


@pytest.mark.parametrize(
    "text",
    [
        "帮我判断user_123最近是否需要重点跟进",
        "用户user_123要跟进吗",
        "user_123，谢谢",
        "user_123。",
        "（user_123）",
        "“user_123”要跟进吗",
        "客户:user_123",
        "客户：user_123",
        "user_123",
        "  user_123  ",
        "user_123?",
        "user_123!",
        "Check user_123.",
        "Check user_123, please",
        "user_123's status",
        "(user_123)",
        "'user_123'",
        '"user_123"',
        "id=user_123;",
        "#user_123",
        "user_123...",
        "user_123-",
        "user_123、谢谢",
        "第1位客户user_123",
    ],
)
def test_an_id_next_to_other_signs_or_chinese_characters_is_found_whole(text: str) -> None:
    assert SEED.find(normal_form(text)) == ["user_123"]
    assert SEED.read(normal_form(text)).unreadable == []


@pytest.mark.parametrize(
    "text",
    [
        "判断ｕｓｅｒ＿１２３最近７天要不要跟进",
        "user＿123",
        "user_１２３",
        "ＵＳＥＲ_123",
        "user_123\u200b要跟进",
        "us\u200ber_123",
        "user_123\ufeff",
        "user_\u00ad123",
    ],
)
def test_full_width_and_invisible_forms_are_the_same_id(text: str) -> None:
    assert SEED.find(normal_form(text)) == ["user_123"]


@pytest.mark.parametrize("typed", ["USER_123", "User_123", "uSeR_123"])
def test_upper_case_is_spelled_back(typed: str) -> None:
    assert SEED.find(f"Check {typed} now") == ["user_123"]


@pytest.mark.parametrize(
    "word",
    ["user_123abc", "xuser_123", "user_123_old", "user-123", "my_user_123", "user_12a", "vip-7"],
)
def test_a_word_that_only_holds_an_id_is_reported_and_not_shortened(word: str) -> None:
    for text in (word, f"帮我判断{word}要跟进吗", f"Check {word}, please"):
        assert SEED.find(text) == []
        assert SEED.read(text).unreadable == [word]


@pytest.mark.parametrize(
    "text",
    [
        "有没有P1工单",
        "B2B客户要跟进吗",
        "看一下Q4的订单",
        "24h内登录过吗",
        "last 30d",
        "L30D 活跃",
        "7x24 支持",
        "the 1st order",
        "their 2nd ticket",
    ],
)
def test_everyday_words_with_a_digit_are_no_unreadable_ids(text: str) -> None:
    assert SEED.read(text).unreadable == []


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("把user_123和user_456都看一下", ["user_123", "user_456"]),
        ("user_456、user_123", ["user_456", "user_123"]),
        ("user_123,user_456", ["user_123", "user_456"]),
        ("user_123/user_456", ["user_123", "user_456"]),
        ("user_123 or USER_123?", ["user_123"]),
        ("用户user_1234要跟进吗", ["user_1234"]),
        ("最近哪些客户要跟进", []),
        ("", []),
    ],
)
def test_ids_are_found_in_order_and_each_once(text: str, ids: list[str]) -> None:
    assert SEED.find(text) == ids


def test_an_id_is_blanked_so_that_its_digits_are_no_window() -> None:
    assert not any(c.isdigit() for c in SEED.read("user_30天后 user_12a").words)
    assert "近7天" in SEED.read("user_123近7天").words


@pytest.mark.parametrize(
    ("known", "text", "found"),
    [
        (["user_9"], "判断user_1234", ["user_1234"]),
        (["user_9", "user_12"], "check USER_7", ["user_7"]),
        (["C00017"], "客户C00017最近怎么样", ["C00017"]),
        (["C00017"], "客户c00018最近怎么样", ["C00018"]),
        (["A-2e4581", "A-43a9e3", "A-0a282f"], "A-2e4581怎么样", ["A-2e4581"]),
        (["A-2e4581", "A-43a9e3", "A-0a282f"], "判断A-ffe012", ["A-ffe012"]),
        (["A-2e4581", "A-43a9e3", "A-0a282f"], "判断a-2E4581", ["A-2e4581"]),
        (["10001", "10002"], "客户10003近30天", ["10003"]),
        (["10001", "10002"], "近30天有3笔订单", []),
        (["10001", "10002"], "最近 7 days", []),
        (["user_1", "C00017"], "user_2 和 C00018", ["user_2", "C00018"]),
        (["crm:17"], "看看crm:18", ["crm:18"]),
        (["org.acme.17"], "看看org.acme.18。", ["org.acme.18"]),
        (["acme", "globex"], "看看acme怎么样", ["acme"]),
        (["acme", "globex"], "is acmeco at risk", []),
        ([], "user_123", ["user_123"]),
    ],
)
def test_the_form_of_ids_is_learned_from_the_database(
    known: list[str], text: str, found: list[str]
) -> None:
    assert learn_pattern(known).find(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("客户 15 近7天要跟进吗", ["15"]),
        ("Does 15 need follow-up? last 7 days", ["15"]),
        ("客户15最近3个月付了几次", ["15"]),
    ],
)
def test_a_number_of_days_is_no_id_where_ids_are_short_numbers(text: str, found: list[str]) -> None:
    assert learn_pattern(["1", "2", "15"]).find(text) == found


@pytest.mark.parametrize(
    ("known", "text"),
    [
        (["AB123CD", "XY987ZW"], "Does AB123CD need priority follow-up?"),
        (["ab12cd", "x9y8z7"], "Should we follow up with ab12cd before Friday?"),
        (["2e4581", "43a9e3", "0a282f"], "2e4581: a decade of orders, a new facade"),
    ],
)
def test_a_plain_word_is_no_id_where_ids_mix_letters_and_digits(
    known: list[str], text: str
) -> None:
    assert learn_pattern(known).find(text) == [i for i in known if i in text]


def test_the_example_is_one_of_the_ids_of_the_largest_family() -> None:
    assert learn_pattern(["C00017", "user_1", "user_2"]).example in {"user_1", "user_2"}


@pytest.mark.parametrize("word", ["a1", "ab", "1", "a1-", "a_1", "user_123x", "A"])
def test_a_long_word_is_read_in_no_time(word: str) -> None:
    """A short one first, so that a pattern that backtracks fails instead of hanging."""
    for length in (16, 20, 24, 28, 32, 4000):
        for end in ("_", "-", "_!", ".a", "é"):
            text = (word * length)[:length] + end
            began = time.process_time()
            SEED.read(text)
            assert time.process_time() - began < 0.05


DIGITS = st.integers(0, 10**7).map(str)
HEX6 = st.text("0123456789abcdef", min_size=6, max_size=6)
FAMILIES = st.one_of(
    st.lists(DIGITS.map("user_{}".format), min_size=1, max_size=6),
    st.lists(DIGITS.map("cust-{}".format), min_size=1, max_size=6),
    st.lists(st.integers(0, 99999).map("C{:05d}".format), min_size=1, max_size=6),
    st.lists(HEX6.map("A-{}".format), min_size=1, max_size=6),
    st.lists(st.integers(10000, 999999).map(str), min_size=1, max_size=6),
    st.lists(st.uuids(version=4).map(str), min_size=1, max_size=6),
    st.lists(
        st.tuples(st.sampled_from(["EU", "US", "CN"]), DIGITS).map(lambda p: f"{p[0]}-{p[1]}"),
        min_size=1,
        max_size=6,
    ),
    st.lists(st.from_regex(r"[A-Z]{2}[0-9]{3}[A-Z]{2}", fullmatch=True), min_size=1, max_size=6),
    st.lists(st.from_regex(r"[a-z]{3,8}", fullmatch=True), min_size=1, max_size=6),
)


@given(ids=st.tuples(FAMILIES, FAMILIES).map(lambda pair: pair[0] + pair[1]), data=st.data())
@settings(max_examples=60, deadline=None)
def test_learning_does_not_depend_on_order_or_repetition(
    ids: list[str], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(ids))
    assert learn_pattern(shuffled + ids) == learn_pattern(ids)


@given(ids=FAMILIES)
@settings(max_examples=120, deadline=None)
def test_every_learned_id_is_found_whole_in_both_languages(ids: list[str]) -> None:
    pattern = learn_pattern(ids)
    for customer_id in ids:
        for text in (
            f"帮我判断{customer_id}最近是否需要重点跟进",
            f"客户{customer_id}，谢谢",
            f"Does {customer_id} need priority follow-up?",
            f"Look at {customer_id}.",
        ):
            assert pattern.find(text) == [customer_id]


@given(known=st.integers(0, 9), later=st.integers(10, 10**12))
@settings(max_examples=40, deadline=None)
def test_a_longer_id_of_a_known_family_is_found(known: int, later: int) -> None:
    pattern = learn_pattern([f"user_{known}"])
    assert pattern.find(f"判断user_{later}要跟进吗") == [f"user_{later}"]
