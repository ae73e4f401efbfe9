"""Read a goal: who it is about, which days, and what is wanted. Chinese or English.

The reading is code, not a model's, so that it is the same for every planner: the ids it finds are
the only customers a run may touch, and the answer answers the kind of question it found.
"""

import re
from datetime import datetime, tzinfo

from followup_agent.goals.ids import IdPattern
from followup_agent.goals.text import normal_form, simplified
from followup_agent.goals.windows import read_window
from followup_agent.state import Goal, GoalKind, TaskWish


def _words(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives), re.IGNORECASE)


_ZH_MAKE = r"(?:创建|新建|建立|建|开|派|发送|发|下发|生成|加|安排|提交)"
_EN_MAKE = r"(?:create|make|send|open|add|schedule|assign|set(?:\s+up)?|raise|file|log)"
_EN_MAKING = r"(?:creating|making|sending|opening|adding|scheduling|assigning|setting|raising)"
_SAME_CLAUSE = r"[^，。,.;；?？!！]"

_TASK = _words(
    rf"{_ZH_MAKE}\s*(?:一个|个|一条|条)?{_SAME_CLAUSE}{{0,16}}?(?:任务|工作项|待办|提醒)",
    r"(?:安排|派)\s*(?:一下|个|一次|人|专人|人工|同事|客服|客户经理)*\s*(?:去|来)?\s*(?:跟进|回访|联系)",
    rf"\b{_EN_MAKE}\b{_SAME_CLAUSE}{{0,40}}?\b(?:tasks?|to-?dos?|reminders?)\b",
    rf"\b{_EN_MAKE}\s+(?:a|an|one|the)?\s*follow[\s\-]?up\b",
    r"\b(?:schedule|arrange|set\s+up)\s+(?:a\s+)?call\b",
    r"\bremind\s+me\b|提醒我",
)
_NO_TASK = _words(
    rf"(?:不要|不用|不必|别|无需|不需要|先不|勿){_SAME_CLAUSE}{{0,16}}?{_ZH_MAKE}",
    rf"\b(?:do\s+not|don['’]?t|never|no\s+need\s+to)\s+{_EN_MAKE}\b",
    rf"\b(?:without|not)\s+{_EN_MAKING}\b",
    r"\bno\s+(?:follow[\s\-]?up\s+)?(?:tasks?|to-?dos?|reminders?)\b",
)
_WHETHER_TASK = _words(
    rf"(?:要不要|需不需要|是否需要|是否|该不该|用不用){_SAME_CLAUSE}{{0,16}}?{_ZH_MAKE}",
    rf"(?:需要|有必要|应该|该|要){_SAME_CLAUSE}{{0,16}}?{_ZH_MAKE}{_SAME_CLAUSE}{{0,24}}?(?:吗|么|嘛)",
    rf"\b(?:should|shall|must|do)\s+(?:i|we|you)\s+(?:have\s+to\s+|need\s+to\s+)?{_EN_MAKE}\b",
)
_ABOUT_A_TASK = _words(
    "任务|工作项|待办|提醒|安排|派", r"\btask|to-?do|remind|follow[\s\-]?up\b|\bcall\b"
)
"""One of these is in every goal that asks for a task, and in few others."""
_TASK_QUESTION = _words(
    rf"(?:已经|之前|是不是){_SAME_CLAUSE}{{0,24}}?{_ZH_MAKE}",
    rf"{_ZH_MAKE}{_SAME_CLAUSE}{{0,16}}?(?:任务|待办|提醒)\s*了?\s*(?:吗|没有|没)",
    rf"\b(?:did|have|has|had|was|were|why|when|who)\b{_SAME_CLAUSE}{{0,40}}?\b(?:tasks?|to-?dos?|reminders?)\b",
)
"""About a task that may be there already."""
_UNDO_TASK = _words(
    rf"(?:删除|取消|关闭|撤销|去掉){_SAME_CLAUSE}{{0,16}}?(?:任务|待办|提醒)",
    r"(?:任务|待办|提醒)\s*(?:给|都|先|全部)?\s*(?:删除|删|取消|关闭|撤销|去掉)",
    rf"\b(?:delete|cancel|remove|close|undo)\b{_SAME_CLAUSE}{{0,30}}?\b(?:tasks?|to-?dos?|reminders?)\b",
)
"""There is no tool for it: better to say what can be done than to judge."""
_IF_NEEDED = _words(
    "如果|若|要是|如需|的话|有必要就|必要时|需要就",
    r"\bif\b|\bwhen\s+needed\b|\bin\s+case\b|\bshould\s+(?:it|they|this|the)\b",
)

_KINDS: tuple[tuple[GoalKind, re.Pattern[str]], ...] = (
    (
        "judgement",
        _words(
            "跟进|回访|流失|风险|重点|关注|挽留|健康|优先级|高危|预警|该不该联系|要不要联系",
            r"follow(?:ed|ing)?[\s\-]?up|priorit|churn|\brisk|attention|reach\s+out|check\s+in\s+with",
            r"worr(?:y|ied)|concern|red\s+flags?|health|worth\s+(?:a\s+call|contacting|calling)",
            r"should\s+(?:we|i)\s+(?:call|contact|phone|email)",
        ),
    ),
    (
        "tickets",
        _words(
            "工单|投诉|报障|升级|没解决|未解决|没处理|未处理",
            r"escalat|tickets?\b|complain|support\s+(?:case|request)|\bissues?\b|unresolved|\bproblems?\b",
        ),
    ),
    (
        "orders",
        _words(
            "订单|下单|下了(?:几|多少)\\s*单|付费|付款|付了|付过|支付|消费|购买|买了|买过|复购|续费|花了|金额|退款|充值|欠费",
            r"(?<!in )\borders?\b(?!\s+to\b)|\bordered\b|\bpaid\b|\bpay(?:s|ing|ments?)?\b|purchas|\bbought\b",
            r"\bbuy|\bspen[dt]|revenue|renew|refund",
        ),
    ),
    (
        "activity",
        _words(
            "活跃|登录|登陆|登入|上线|在用|使用|来过|没来|没用|没上|访问|沉默",
            r"logins?\b|\blog(?:ged|s|ging)?[\s\-]?(?:in|on)\b|\bactiv(?:e|ity)\b|inactive|\busage\b|\busing\b",
            r"\bused?\b|\bseen\b|\bquiet\b|\bvisit",
        ),
    ),
)
"""The first kind whose words occur; words of judgement go before the sources they may name."""

_GENERAL = _words(
    "判断|评估|分析|诊断|情况|状态|怎么样|如何|看看|看一下|查一下|要不要|联系|异常|还好",
    r"judge|assess|evaluat|review|analy[sz]e|\bhow\s+(?:is|are|about)\b|how'?s|status",
    r"what\s+about|tell\s+me\s+about|\bcheck\b|\blook\s+(?:at|into)\b|\bdoing\b|\bcontact",
    r"^[\s\W]*$",
)
"""A mere "check" or "how is", or the id alone."""

_QUOTED = re.compile(r"“[^”]*”|「[^」]*」|『[^』]*』|\"[^\"]*\"")
"""What a customer has said: told by the user, and no wish of the user's."""

_ZH_COUNT = r"(?:[0-9]+|[一二两三四五六七八九十]+)\s*个?\s*(?:天|日|周|星期|礼拜|月)"
_EN_COUNT = r"(?:[0-9]+|a|an|one|two|three|four|five|six|seven|ten)\s+(?:days?|weeks?|months?)"
_DUE = _words(
    rf"{_ZH_COUNT}\s*(?:之?内|以内|后|之后)\s*(?:完成|处理|跟进|回访|联系|到期|截止|解决)",
    rf"(?:期限|截止|到期|限期)\s*(?:是|为)?\s*{_ZH_COUNT}",
    rf"\b(?:due|done|finished|completed?)\s+(?:in|within)\s+{_EN_COUNT}",
)
_DUE_OF_A_TASK = _words(rf"{_ZH_COUNT}\s*(?:后|之后)", rf"\b(?:in|within)\s+{_EN_COUNT}")
"""In a goal that asks for a task, "in 3 days" says when it is due."""


def read_goal(text: str, ids: IdPattern, as_of: datetime, zone: tzinfo) -> Goal:
    """What the user's words ask for; `kind` is 'unclear' when no known question is in them."""
    normal = normal_form(text)
    subjects, unreadable, words = ids.read(normal)
    words = simplified(words)
    said = _QUOTED.sub(" ", words)
    nothing_left = not any(map(str.isalnum, said))
    if nothing_left or _kind(said, _task_wish(said), has_id=bool(subjects)) == "unclear":
        said = words  # the question itself stands in quotes
    task = _task_wish(said)
    looking_back = _DUE.sub(" ", words)
    if task != "none":
        looking_back = _DUE_OF_A_TASK.sub(" ", looking_back)
    return Goal(
        kind=_kind(said, task, has_id=bool(subjects)),
        subjects=subjects,
        unreadable_ids=unreadable,
        window=read_window(looking_back, as_of.astimezone(zone).date()),
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
    if not _ABOUT_A_TASK.search(words):
        return "none"
    if not _TASK.search(words) or _NO_TASK.search(words) or _TASK_QUESTION.search(words):
        return "none"
    if _IF_NEEDED.search(words):
        return "if_needed"
    return "none" if _WHETHER_TASK.search(words) else "requested"


def _kind(words: str, task: TaskWish, *, has_id: bool) -> GoalKind:
    if task == "requested":
        return "task"
    if task == "if_needed":
        return "judgement"
    if _ABOUT_A_TASK.search(words) and (_UNDO_TASK.search(words) or _TASK_QUESTION.search(words)):
        return "unclear"
    for kind, pattern in _KINDS:
        if pattern.search(words):
            return kind
    # "How is …" is a judgement of a customer, and nothing without one.
    return "judgement" if has_id and _GENERAL.search(words) else "unclear"
