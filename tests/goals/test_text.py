"""One normal form of a user's words, the language they are in, and what is no goal."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from followup_agent.goals.limits import MAX_GOAL_CHARS
from followup_agent.goals.text import clean_goal, language_of, normal_form
from followup_agent.service.errors import InvalidGoal

MIXED = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from("\u200b\u200d\u00ad\ufeff\u3000\u00a0\u0301eＡ１，？ 近天user_"),
    ),
    max_size=40,
)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("判断ｕｓｅｒ＿１２３最近７天要不要跟进", "判断user_123最近7天要不要跟进"),
        ("user_123，谢谢？", "user_123,谢谢?"),
        ("user_123\u200b要跟进", "user_123要跟进"),
        ("\ufeffuser_123", "user_123"),
        ("  a\t\nb\u3000c  ", "a b c"),
        ("", ""),
        ("\u200b \u200d", ""),
        ("帮我判断 user_123", "帮我判断 user_123"),
    ],
)
def test_full_width_and_invisible_signs_have_one_plain_form(text: str, normal: str) -> None:
    assert normal_form(text) == normal


@given(text=MIXED)
@example("e\u200d\u0301")
@settings(max_examples=300, deadline=None)
def test_the_normal_form_of_a_normal_form_is_itself(text: str) -> None:
    assert normal_form(normal_form(text)) == normal_form(text)


@given(text=MIXED)
@settings(max_examples=100, deadline=None)
def test_a_normal_form_has_no_space_at_its_ends_and_no_two_in_a_row(text: str) -> None:
    normal = normal_form(text)
    assert normal == " ".join(normal.split(" "))
    assert "  " not in normal
    assert normal.strip() == normal


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("帮我判断 user_123 最近是否需要重点跟进", "zh"),
        ("user_123 要不要 follow up?", "zh"),
        ("Does 晨光文旅 need follow-up?", "zh"),
        ("Does user_123 need follow-up?", "en"),
        ("user_123", "en"),
        ("", "en"),
        ("ｕｓｅｒ＿１２３", "en"),
    ],
)
def test_one_chinese_character_makes_a_text_chinese(text: str, language: str) -> None:
    assert language_of(text) == language


@pytest.mark.parametrize(
    "goal",
    [
        "帮我判断 user_123 最近是否需要重点跟进",
        "Does user_123 need follow-up?",
        "two\nlines\tand a tab",
        "emoji 🙂 and 𠮷",
        "判" * MAX_GOAL_CHARS,
    ],
)
def test_a_goal_is_kept_in_the_users_own_words(goal: str) -> None:
    assert clean_goal(f"  {goal}\n") == goal


def test_full_width_words_are_kept_as_typed() -> None:
    assert clean_goal("判断ｕｓｅｒ＿１２３") == "判断ｕｓｅｒ＿１２３"


@pytest.mark.parametrize(
    ("goal", "says"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("\n\t\u3000", "empty"),
        ("\u200b\u200b", "empty"),
        ("x" * 100_000, "100,000 characters, at most 4,000"),
        ("跟" * 100_000, "最多 4,000"),
        ("x" * (MAX_GOAL_CHARS + 1), "4,001"),
        ("check\x00user_123", r"character 6 .*U\+0000"),
        ("判断\x1b[31m user_123", r"第 3 个字符.*U\+001B"),
        ("check user_123 \x7f now", r"U\+007F"),
        ("check \ud800 user_123", r"U\+D800"),
        ("判断\udfff", r"U\+DFFF"),
        (None, "there is no goal"),
        (123, "must be text, not int"),
        (True, "must be text, not bool"),
        (b"user_123", "must be text, not bytes"),
        (["user_123"], "must be text, not list"),
        ({"goal": "x"}, "must be text, not dict"),
    ],
)
def test_what_is_no_goal_is_refused_with_what_to_change(goal: object, says: str) -> None:
    with pytest.raises(InvalidGoal, match=says):
        clean_goal(goal)


def test_a_refusal_is_an_ordinary_value_error_too() -> None:
    with pytest.raises(ValueError, match="empty"):
        clean_goal("")


@given(text=st.text(max_size=200))
@settings(max_examples=150, deadline=None)
def test_any_text_is_taken_or_refused_as_a_goal(text: str) -> None:
    try:
        goal = clean_goal(text)
    except InvalidGoal:
        return
    assert goal == text.strip()
    assert normal_form(goal)
    assert goal.encode("utf-8")
