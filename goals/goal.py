"""Read a goal: who it is about, which days, and what is wanted. Chinese or English.

The reading is code, not a model's, so that it is the same for every planner: the ids it finds are
the only customers a run may touch, and the answer answers the kind of question it found.
"""

import re
from datetime import datetime, tzinfo

from followup_agent.goals.ids import IdPattern
from followup_agent.goals.text import normal_form
from followup_agent.goals.windows import read_window
from followup_agent.state import Goal, GoalKind, TaskWish

_TASK_NOUN = (
    r"(?:跟进|回访|follow[\s\-]?up)?\s*(?:任务|工作项|待办|提醒|tasks?|to-?dos?|reminders?)"
)
_TASK = re.compile(
    rf"(?:创建|新建|建立?|开|派|发送?|下发|生成|加|安排|提交)\s*(?:一个|个|一条|条)?\s*(?:[^，。,.;；?？]{{0,12}}?){_TASK_NOUN}"
    r"|(?:安排|派)\s*(?:一下|个|一次|人|专人|人工|同事|客服|客户经理)*\s*(?:去|来)?\s*(?:跟进|回访|联系)"
    r"|\b(?:create|make|send|open|add|schedule|assign|set\s+up|raise|file|log)\b"
    rf"[^.;?!]{{0,40}}?\b(?:follow[\s\-]?up\s*)?(?:tasks?|to-?dos?|reminders?)\b"
    r"|\b(?:schedule|arrange|set\s+up)\s+(?:a\s+)?(?:follow[\s\-]?up|call)\b",
    re.IGNORECASE,
)
_NO_TASK = re.compile(
    r"(?:不要|不用|不必|别|无需|先不|勿|不)\s*(?:再|先|去)?\s*(?:创建|新建|建|开|派|发|下发|生成|加|安排|提交)"
    r"|\b(?:do\s+not|don'?t|without|no\s+need\s+to|never)\s+"
    r"(?:create|creating|make|making|send|sending|open|opening|add|adding|schedule|scheduling)",
    re.IGNORECASE,
)
_IF_NEEDED = re.compile(
    r"如果|若|要是|如需|需要的话|有必要|必要时|值得的话|\bif\b|\bwhen\s+needed\b|\bshould\s+(?:it|they)\b",
    re.IGNORECASE,
)
_KIND_WORDS: tuple[tuple[GoalKind, str], ...] = (
    (
        "judgement",
        r"跟进|回访|流失|风险|重点|关注|挽留|健康|follow[\s\-]?(?:ed\s+)?up|priorit|churn|at[\s\-]risk|\brisk|attention|"
        r"worr(?:y|ied)|reach\s+out|check\s+in\s+with|healthy",
    ),
    (
        "tickets",
        r"工单|投诉|报障|升级处理|升级|escalat|tickets?\b|complain|support\s+case|\bissues?\b",
    ),
    (
        "orders",
        r"订单|下单|付费|付款|支付|消费|购买|买了|买过|复购|续费|花了|金额|order|\bpaid\b|\bpay(?:s|ing|ment)?s?\b|"
        r"purchas|\bbought\b|\bbuy|\bspen[dt]|\bspending|revenue|renew",
    ),
    (
        "activity",
        r"活跃|登录|登陆|上线|在用|使用情况|来过|沉默|logins?\b|\blog(?:ged|s)?[\s\-]?(?:in|on)\b|\bactive\b|activity|"
        r"inactive|usage|\busing\b|\bused?\b|\bseen\b|quiet",
    ),
    (
        "judgement",
        r"判断|评估|情况|怎么样|如何|看看|看一下|要不要|judge|assess|evaluat|how\s+is|how'?s|status",
    ),
)
"""The first kind whose words occur; words of judgement go before the sources they may name."""
_KINDS = tuple((kind, re.compile(words, re.IGNORECASE)) for kind, words in _KIND_WORDS)
_DUE = re.compile(
    r"(?:[0-9]+|[一二两三四五六七八九十]+)\s*天(?:之?内|后|以内)(?:完成|处理|跟进|回访|联系|到期|截止)"
    r"|\bdue\s+(?:in|within)\s+\w+\s+(?:days?|weeks?)",
    re.IGNORECASE,
)
_BARE_ID = re.compile(r"[\s\W]*", re.UNICODE)


def read_goal(text: str, ids: IdPattern, as_of: datetime, zone: tzinfo) -> Goal:
    """What the user's words ask for; `kind` is 'unclear' when no known question is in them."""
    normal = normal_form(text)
    words = ids.blank(normal)
    subjects = ids.find(normal)
    task = _task_wish(words)
    return Goal(
        kind=_kind(words, task, has_id=bool(subjects)),
        subjects=subjects,
        unreadable_ids=ids.find_unreadable(normal),
        window=read_window(_DUE.sub(" ", words), as_of.astimezone(zone).date()),
        task=task,
    )


def read_answer(goal: Goal, text: str, ids: IdPattern, as_of: datetime, zone: tzinfo) -> Goal:
    """The goal with what the answer to a question adds: an id, and what was unclear before."""
    answer = read_goal(text, ids, as_of, zone)
    was_unclear = goal["kind"] == "unclear"
    return Goal(
        kind=answer["kind"] if was_unclear else goal["kind"],
        subjects=answer["subjects"] or goal["subjects"],
        unreadable_ids=answer["unreadable_ids"],
        window=answer["window"] if answer["window"]["stated"] else goal["window"],
        task=answer["task"] if was_unclear else goal["task"],
    )


def _task_wish(words: str) -> TaskWish:
    if not _TASK.search(words) or _NO_TASK.search(words):
        return "none"
    return "if_needed" if _IF_NEEDED.search(words) else "requested"


def _kind(words: str, task: TaskWish, *, has_id: bool) -> GoalKind:
    if task == "requested":
        return "task"
    for kind, pattern in _KINDS:
        if pattern.search(words):
            return kind
    if has_id and _BARE_ID.fullmatch(words):
        return "judgement"
    return "unclear"
