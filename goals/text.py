"""One normal form of a user's words, and the language they are in."""

import re
import unicodedata

from followup_agent.goals.limits import MAX_GOAL_CHARS
from followup_agent.service.errors import InvalidGoal
from followup_agent.tools.outcome import Language

_HAN = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")


_TRADITIONAL = str.maketrans(
    "過個週兩這當內來禮後從號間進訪風險點關優級預該聯繫單訴報沒決處訂費買購復續額躍錄陸線問斷評診況狀態麼樣異還創開發務項辦條專戶經時刪閉銷無別應幫請嗎給對",
    "过个周两这当内来礼后从号间进访风险点关优级预该联系单诉报没决处订费买购复续额跃录陆线问断评诊况状态么样异还创开发务项办条专户经时删闭销无别应帮请吗给对",
)
"""The characters of the words that goals are read by, and no others."""


def normal_form(text: str) -> str:
    """Full-width letters, digits and signs as their plain forms; nothing invisible; one space."""
    plain = unicodedata.normalize("NFKC", text)
    if not plain.isprintable():
        plain = "".join(c for c in plain if unicodedata.category(c) != "Cf")
        plain = unicodedata.normalize("NFKC", plain)  # what the invisible ones kept apart
    return " ".join(plain.split())


def simplified(text: str) -> str:
    """The text with traditional characters as simplified ones, as far as goals are read by them."""
    return text.translate(_TRADITIONAL)


def language_of(text: str) -> Language:
    """Chinese as soon as there is a Chinese character: `user_123 要不要 follow up?` is Chinese."""
    return "zh" if _HAN.search(text) else "en"


def clean_goal(text: object) -> str:
    """The goal as the user wrote it, stripped; InvalidGoal when it is none.

    Refused: not text, empty, over `MAX_GOAL_CHARS`, control characters, broken Unicode.
    """
    if text is None:
        raise InvalidGoal(
            'there is no goal: send {"user_goal": "…"}, or {"messages": […]} with a human message last'
        )
    if not isinstance(text, str):
        raise InvalidGoal(f"the goal must be text, not {type(text).__name__}")
    goal = text.strip()
    zh = language_of(goal[:MAX_GOAL_CHARS]) == "zh"
    if not normal_form(goal[: MAX_GOAL_CHARS + 1]):
        raise InvalidGoal(
            "the goal is empty: say what to judge, e.g. '帮我判断 user_123 最近是否需要重点跟进' "
            "or 'Does user_123 need priority follow-up?'"
        )
    if len(goal) > MAX_GOAL_CHARS:
        raise InvalidGoal(
            f"目标有 {len(goal):,} 个字符，最多 {MAX_GOAL_CHARS:,} 个：请用一两句话提问"
            if zh
            else f"the goal has {len(goal):,} characters, at most {MAX_GOAL_CHARS:,} are taken: "
            "ask in a sentence or two"
        )
    for position, char in enumerate("" if goal.isprintable() else goal):
        category = unicodedata.category(char)
        if (category == "Cc" and char not in "\n\r\t") or category == "Cs":
            raise InvalidGoal(
                f"目标的第 {position + 1} 个字符是控制字符（U+{ord(char):04X}）：请删掉它"
                if zh
                else f"character {position + 1} of the goal is a control character "
                f"(U+{ord(char):04X}): remove it"
            )
    return goal
