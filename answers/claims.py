"""What a text claims: the ids, dates, times and numbers in it, and what each number counts.

Chinese and English. Read in the same way from a model's draft and from the evidence it is held
against (`answers/grounding.py`), so that the same words always mean the same.
"""

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import NamedTuple

from followup_agent.goals.ids import IdPattern
from followup_agent.goals.text import normal_form, simplified

Day = tuple[int | None, int | None, int | None]
"""Year, month, day; None where none is named."""


class Count(NamedTuple):
    """A number and what it counts."""

    value: Decimal
    kind: str
    """'' when the words beside it do not say."""
    about: str = ""
    """Of days: since what; of money: the currency; '' when unsaid."""
    text: str = ""


class Reading(NamedTuple):
    """What a text names, and its words without that."""

    customers: list[str]
    references: list[str]
    """Of evidence and calls."""
    others: list[str]
    """Other ids, addresses, telephone numbers."""
    days: list[tuple[str, Day]]
    times: list[str]
    words: str
    counts: list[tuple[str, list[Count]]]
    """The clauses, each with its numbers."""


# --- the text ---

_LIST_MARK = re.compile(
    r"^[ \t]*(?:[-*•·]+(?![0-9])|\(?[0-9]{1,2}(?:[.、](?![0-9])|\)))[ \t]*|[①-⑳]"
    r"|(?<=[:;,.：；，。])\s*(?:and\s+)?[（(][0-9]{1,2}[）)]",
    re.MULTILINE,
)
"""The numbers of a list count nothing."""
_EMPHASIS = re.compile(r"(?<![0-9])[*`]+|[*`]+(?![0-9])")
MARKUP = re.compile(r"```|<[/|!?]?\s*[^\W\d_]|<\||\[/?think", re.IGNORECASE)
_MORE_SIMPLIFIED = str.maketrans(
    "緊為將會應聯絡繫萬兩俩壹贰叁肆伍陆柒捌玖拾佰仟",
    "紧为将会应联络系万两两一二三四五六七八九十百千",
)
"""Characters that goals are not read by, and answers are."""
_PERCENT = re.compile(r"百分之\s*([0-9.]+|[零一二两三四五六七八九十百]+)")
_CLAUSE_END = re.compile(r"[;。!?()\[\]—]|(?<![0-9]),|,(?![0-9]{3}(?![0-9]))|\.(?=\s|$)")
"""What stands beyond it does not say what a number counts. `1,234` is one number."""


def plain_text(text: str) -> str:
    """One line in normal form, simplified, without list marks and emphasis, its digits ASCII."""
    lines = _EMPHASIS.sub("", _LIST_MARK.sub("", text)).splitlines()
    plain = normal_form(" ; ".join(line.replace("|", " ") for line in lines if line.strip()))
    plain = simplified(plain).translate(_MORE_SIMPLIFIED)
    return _PERCENT.sub(r"\1%", re.sub(r"\d", lambda digit: str(int(digit[0])), plain))


# --- what is named ---

_ADDRESS = re.compile(
    r"(?:https?://|www\.)[^\s,;。()\"]+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
    r"|(?<![\w.-])(?:[a-z0-9-]+\.)+(?:com|cn|net|org|io|app|ai)(?![a-z])[^\s,;。()\"]*",
    re.IGNORECASE | re.ASCII,
)
_REFERENCE = re.compile(r"(?<![A-Za-z0-9_])(?<![A-Za-z_]-)[ec][0-9]{1,3}(?![A-Za-z0-9_])")
"""[e1], c2, e1-e5."""
_CODE = re.compile(r"(?<![A-Za-z0-9_])[A-Za-z]+[0-9][A-Za-z0-9]*")
"""P1, B2B, v2: too short for an id, and no number either."""
_PHONE = re.compile(r"(?<![\w.,])\+?[0-9](?:[ -]?[0-9]){6,}(?!\w|[.,][0-9])")
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_NAME = (
    r"(?P<name>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|(?-i:May)|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_D = r"[0-9]{1,2}|[一二三四五六七八九十]{1,3}"
_TH = r"(?P<d>[0-9]{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?:,?\s+(?P<y>[0-9]{4})\b)"
_DATES = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?<![\w-])(?P<y>[0-9]{4})([-/.])(?P<m>[0-9]{1,2})\2(?P<d>[0-9]{1,2})(?![0-9])",
        rf"(?:(?P<y>[0-9]{{4}})\s*年\s*)?(?<![0-9])(?P<m>{_D})\s*月\s*(?P<d>{_D})\s*[日号]",
        rf"(?P<y>[0-9]{{4}})\s*年\s*(?P<m>{_D})\s*月",
        rf"(?<![近去个0-9])(?P<m>{_D})\s*月(?!内)",
        r"(?<![0-9])(?P<y>20[0-9]{2})\s*年",
        rf"\b{_NAME}\s+(?:the\s+)?{_TH}\b{_YEAR}?",
        rf"\b{_TH}\s+(?:of\s+)?{_NAME}{_YEAR}?",
        rf"\b{_NAME}{_YEAR}",
    )
]
"""The longer forms first. 三月 is March, 三个月 and 近三月 are months."""
_TIME = re.compile(
    r"(?<![0-9:])T?(?P<time>(?:[01]?[0-9]|2[0-3]):[0-5][0-9])(?::[0-5][0-9](?:\.[0-9]+)?)?"
    r"(?:\s*(?:Z\b|UTC\b|[+-][0-9]{2}:[0-9]{2}))?(?![0-9:])"
)


def read_claims(text: str, ids: IdPattern) -> Reading:
    """What a plain text names. Dates go before ids: 2026-03-02T15 looks like one."""
    addresses, text = _take(_ADDRESS, text)
    days = []
    for pattern in _DATES:
        days += [(match[0].strip(), _day(match.groupdict())) for match in pattern.finditer(text)]
        text = pattern.sub(" ", text)
    times = [match["time"].zfill(5) for match in _TIME.finditer(text)]
    references, text = _take(_REFERENCE, _TIME.sub(" ", text))
    named = ids.read(text)
    codes, text = _take(_CODE, named.words)
    phones, _ = _take(_PHONE, text)
    others = [*addresses, *named.unreadable, *codes, *phones]
    counts = [(clause, list(_counts(clause))) for clause in _CLAUSE_END.split(text)]
    return Reading(named.found, references, others, days, times, text, counts)


def _take(pattern: re.Pattern[str], text: str) -> tuple[list[str], str]:
    """What the pattern finds, and the text without it."""
    return [match[0] for match in pattern.finditer(text)], pattern.sub(" ", text)


def _day(groups: Mapping[str, str | None]) -> Day:
    """The year, month and day that a date names."""
    year, month, day = (
        None if part is None else int(part) if part.isascii() else _zh_number(part)
        for part in (groups.get("y"), groups.get("m"), groups.get("d"))
    )
    name = groups.get("name")
    return year, _MONTHS.index(name[:3].lower()) + 1 if name else month, day


# --- numbers ---

_OF = r"of|the|its|their|them|these|those|which|is|are|was|were|have|been|being"
ADJECTIVE = (
    r"(?:尚?未(?:关闭|处理|解决|完成)|待(?:处理|解决)|打开|开放|开着|处理中|有效|成功|活跃|连续|自然|新增?|已|的"
    r"|(?:open|unresolved|unclosed|outstanding|pending|active|new|recent|separate|different|distinct"
    rf"|calendar|consecutive|full|whole|customer|support|successful|last|past|{_OF})(?![A-Za-z]))"
)
TICKET = r"(?:tickets?|issues?|cases?)"
_WORDS_FOR = {
    "urgent_tickets": (
        rf"紧急\s*(?:{ADJECTIVE}\s*){{0,3}}工单|工单(?:被?标?记?为|是|属于|都|均|很|较)*紧急|紧急|加急",
        rf"urgent(?:\s+(?:open|unresolved|outstanding|pending|support))*(?:\s+{TICKET})?"
        rf"|{TICKET}(?:\s+(?:that|which|is|are|was|were|marked|as))+\s+urgent",
    ),
    "tickets": (
        r"(?:未关闭|未处理|未解决|待处理)(?!\s*的?\s*(?:紧急|工单))|工单|最早的?(?:已?打开|一)",
        rf"{TICKET}|oldest|open(?=\s*$|\s*:|\s+(?:or|and)\b)",
    ),
    "tasks": (r"任务", r"tasks?"),
    "paid_orders": (r"(?:付[过了]?费|支付|付款)(?:的?订单)?", r"paid(?:\s+orders?)?|pay(?:s|ing|ments?)?"),
    "orders": (r"订单|下单|购买", r"order(?:s|ed|ing)?|purchase[sd]?|placed"),
    "logins": (r"登[录陆]", r"log(?:s|ged|ging)?[ -]?ins?|sign(?:s|ed|ing)?[ -]?ins?"),
    "activity": (r"活跃|使用", r"(?:in)?activ(?:e|ity)|usage"),
    "sign_up": (r"注册", r"sign(?:ed|ing)?[ -]?ups?|registered|registration"),
    "score": (r"[得评]分|分数", r"scor(?:es?|ed)|points?"),
    "reasons": (r"来源|理由|依据|原因|信号|方面|证据", r"sources?|reasons?|signals?"),
    "amount": (r"金额|总额|消费|[合总共]计", r"amount(?:s|ing)?|total(?:s|ing|ling)?|worth|spen[dt]"),
}  # fmt: skip
"""What is counted, in Chinese and in English; of two that begin in one place the first is meant."""
KIND = "|".join(
    rf"(?P<{kind}>{zh}|(?<![A-Za-z])(?:{en})(?![A-Za-z]))" for kind, (zh, en) in _WORDS_FOR.items()
)
KINDS = re.compile(KIND, re.IGNORECASE)
_ATTACHED = re.compile(
    rf"\s*(?:个|张|条|件|笔|次|单|起|项|份|times?)?\s*(?:{ADJECTIVE}\s*){{0,5}}(?:{KIND})",
    re.IGNORECASE,
)
_AFTER_DAYS = re.compile(
    r"\s*(?:(?:[前内里之来未不无都均仍曾才刚过的]|以来|没有?|有过|最[后近]|上?一次"
    r"|(?:ago|since|without|for|the|its|their|last|latest|most|recent|any|an?|of|no|not|in|was|has"
    rf"|had|have|been|after|from|on)(?![A-Za-z]))\s*){{0,6}}(?:{KIND})",
    re.IGNORECASE,
)
"""45 天前付费, 9 days since the last login."""
_SINCE = {
    "paid orders": "last payment", "orders": "orders", "logins": "active", "activity": "active",
    "tickets": "open", "urgent tickets": "open", "sign up": "since sign-up",
}  # fmt: skip
"""What days are about, by the word beside them."""
_WINDOW = re.compile(
    r"(?:[近前这]|过去|截至\s*的?|(?<![A-Za-z])(?:last|past|previous|recent|the|this|within)"
    r"|\b(?:no|not|without|never)\b.{0,30}\b(?:in|for))\s*$",
    re.IGNORECASE,
)
_IN_WINDOW = re.compile(r"\s*(?:之?内|[里中]|以?来|(?!前)\w{0,2}?[没未无不])")
"""近 7 天, 7 天内, 7 天没有, a 7-day window: looked back over."""
_ALSO = re.compile(r"[且并但和]|\b(?:and|but|so|with)\b", re.IGNORECASE)
_AGO = re.compile(r"\s*(?:之?前|以前|ago|since|without|of\s+inactiv)")
_AGO_BEFORE = re.compile(r"距|\b(?:since|inactiv\w+)", re.IGNORECASE)
"""Days since, not days on which: last active 9 days ago, inactive for 9 days."""
_CURRENCIES = {
    "CNY": r"CNY|RMB|¥|元|人民币|yuan", "USD": r"USD|US\$|\$|美元|美金|dollars?",
    "EUR": r"EUR|€|欧元|euros?", "GBP": r"GBP|£|英镑", "JPY": r"JPY|日元", "HKD": r"HKD|港[元币]",
}  # fmt: skip
_CURRENCY = "|".join(f"(?P<{code}>{names})" for code, names in _CURRENCIES.items())
_MONEY_BEFORE = re.compile(rf"(?<![A-Za-z])(?:{_CURRENCY})\s*$", re.IGNORECASE)
_DAYS_IN = {
    "天": 1, "日": 1, "day": 1, "d": 1, "周": 7, "星期": 7, "礼拜": 7, "week": 7, "fortnight": 14,
    "月": 30, "month": 30, "季度": 90, "quarter": 90, "年": 365, "year": 365,
}  # fmt: skip
"""As windows are read (`goals/windows.py`)."""
_UNIT = re.compile(
    rf"\s*(?:(?:{_CURRENCY})(?![A-Za-z])"
    r"|(?P<percent>%|percent|per\s+cent|个?百分点|成(?![功为员本长交果]))"
    r"|(?P<hours>个?(?:小时|分钟|点钟|秒)|(?:hours?|hrs?|h|minutes?|mins?)(?![A-Za-z]))"
    r"|(?P<score>分(?![钟之别析成])|points?(?![A-Za-z]))"
    rf"|[多余来]?[\s-]*个?\s*(?:{ADJECTIVE}\s*){{0,4}}(?P<period>天|日|周|星期|礼拜|月|季度|年"
    r"|(?:day|d|week|fortnight|month|quarter|year)(?=s?(?![A-Za-z])))s?)",
    re.IGNORECASE,
)
_ZH_DIGITS = {digit: value for value, digit in enumerate("零一二三四五六七八九")} | {"两": 2}
_ZH_UNITS = {"十": 10, "百": 100, "千": 1000, "万": 10_000}
_ZH = "".join([*_ZH_DIGITS, *_ZH_UNITS])
_EN_ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
_EN_ONES += " fifteen sixteen seventeen eighteen nineteen"
_EN_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_EN_WORDS = {"twice": 2, "a": 1, "an": 1}
_EN_WORDS |= {word: value for value, word in enumerate(_EN_ONES.split())}
_EN_WORDS |= {word: value * 10 for value, word in enumerate(_EN_TENS.split(), start=2)}
_EN_UNITS = {"dozen": 12, "hundred": 100, "thousand": 1000}
_EN = rf"(?:{'|'.join(word for word in [*_EN_WORDS, *_EN_UNITS] if len(word) > 2)})(?![A-Za-z])"
_SCALES = {"万": 10**4, "亿": 10**8, "k": 1000, "thousand": 1000, "million": 10**6}
_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_])(?<![0-9]\.)(?P<digits>-?(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?)"
    r"(?:\s*(?P<scale>万|亿|k|million|thousand)(?![A-Za-z]))?"
    rf"|(?<![第周期拜唯{_ZH}])(?P<zh>[{_ZH}]{{1,9}})(?=\s*[多余来]?\s*(?:[个张条件笔次天日周月年元块项份位名成种%]"
    r"|单(?!独|一)|起(?!来)|星期|礼拜|季度|小时|分钟|方面|工单|订单))"
    rf"|(?<![A-Za-z-])(?:an?\s+)?(?P<en>{_EN}(?:[\s-]+{_EN})*|an?(?=\s+(?:day|week|month|quarter|year)\b))",
    re.IGNORECASE,
)
"""A Chinese numeral counts only before a measure word; 周三 and 第三 count nothing."""
_DID = r"(?:活跃|登[录陆]|付[过了]?费|付款|下单|active|activity|logged\s+in|login|paid|payment|ordered)"
_DAY_WORD = r"今[天日]|昨[天日]|前天|today|yesterday"
_DID_TODAY = re.compile(
    rf"(?P<did>{_DID}[过了]?\s*(?:[是在为于]|(?:was|is|just|again)(?![A-Za-z]))?\s*)(?P<on>{_DAY_WORD})"
    rf"|(?P<day>{_DAY_WORD})(?=\s*[刚才还也又曾已有]{{0,3}}{_DID})",
    re.IGNORECASE,
)
"""今天刚活跃过, last paid yesterday: 0 and 1 days ago."""
_OUT_OF_100 = re.compile(r"(?<=[0-9])\s*(?:/|out\s+of)\s*100(?![0-9.%])")
_OF_DAYS = re.compile(r"\s*of\s+(?:the\s+)?(?:last|past)\s*")
"""Active on 3 of the last 7 days."""
_NO_COUNT = re.compile(r"(?:最[近后新]|没有|[上下每任同另再这那某哪首各])\s*$")
"""Before 一: 最近一次付费 is no count of payments."""
NONE_FACTS = {
    "urgent tickets": ("urgent_ticket_count", ""), "tickets": ("open_ticket_count", ""),
    "logins": ("login_count_", "days_since_last_active"), "orders": ("order_count_", ""),
    "paid orders": ("paid_order_count_", "days_since_last_paid"),
    "activity": ("active_days_", "days_since_last_active"),
}  # fmt: skip
"""The facts that say there is none: how many there were, and how long ago the last one was."""


def _counts(clause: str) -> Iterator[Count]:
    """The numbers of a clause, each with what it counts: the word attached to it, else the nearest
    before it, else the first after it. A bare 一 or `one` counts only what it is attached to."""
    clause = _DID_TODAY.sub(_days_ago, _OUT_OF_100.sub(" ", clause))
    found = list(_NUMBER.finditer(clause))
    ends = [*(match.start() for match in found[1:]), len(clause)]
    for match, end in zip(found, ends, strict=False):
        left, right = clause[: match.start()][-40:], clause[match.end() : end][:40]
        unit, attached = _UNIT.match(right), _ATTACHED.match(right)
        if match[0].lower() in ("一", "one") and not _counts_one(left, unit, attached):
            continue
        kind, about, factor = _kind(left, right, unit, attached)
        yield Count(_value(match) * factor, kind, about, match[0].strip()[:30])


def _days_ago(match: re.Match[str]) -> str:
    days = {"今": 0, "t": 0, "昨": 1, "y": 1, "前": 2}
    return f"{match['did'] or ''}{days[(match['on'] or match['day'])[0].lower()]} 天前 "


def _counts_one(left: str, unit: re.Match[str] | None, attached: re.Match[str] | None) -> bool:
    """一个紧急工单, one day; not 一次回访, 最近一次付费, one of the tickets."""
    if _NO_COUNT.search(left) or attached is None:
        return unit is not None and not _NO_COUNT.search(left)
    some_of = re.match(r"\s*of\b", attached[0]) and kind_of(attached) != "urgent tickets"
    return unit is not None or (kind_of(attached) in NONE_FACTS and not some_of)


def _kind(
    left: str, right: str, unit: re.Match[str] | None, attached: re.Match[str] | None
) -> tuple[str, str, int]:
    """What a number between these texts counts, what that is about, and how many of it one is."""
    before = list(KINDS.finditer(left))[-1:]
    money = unit if unit and unit.lastgroup in _CURRENCIES else _MONEY_BEFORE.search(left)
    if money:
        return "amount", str(money.lastgroup), 1
    if unit and unit["period"]:
        rest = right[unit.end() :]
        near = _AFTER_DAYS.match(rest) or (
            before[0] if before else KINDS.search(_ALSO.split(rest)[0])
        )
        about = _SINCE.get(kind_of(near), "") if near else ""
        if re.search("活跃|active", unit[0], re.IGNORECASE):
            about = "active"
        elif _WINDOW.search(left) or _IN_WINDOW.match(rest) or "-" in unit[0]:
            about = "window"
        elif about == "active" and (_AGO_BEFORE.search(left) or _AGO.match(rest)):
            about = "last activity"
        return "days", about, _DAYS_IN[unit["period"].lower()]
    if unit:
        return str(unit.lastgroup), "", 1
    near = attached or (before[0] if before else KINDS.search(right))
    kind = kind_of(near) if near else ""
    if kind == "activity" or _OF_DAYS.fullmatch(right):
        return "days", "active", 1
    return kind, "", 1


def kind_of(match: re.Match[str]) -> str:
    return str(match.lastgroup).replace("_", " ")


def _value(match: re.Match[str]) -> Decimal:
    if digits := match["digits"]:
        return Decimal(digits.replace(",", "")) * _SCALES.get((match["scale"] or "").lower(), 1)
    return Decimal(_zh_number(match["zh"]) if match["zh"] else _en_number(match["en"]))


def _zh_number(text: str) -> int:
    """'十五', '两百三十', '一万二千'."""
    total = section = digit = 0
    for char in text:
        if char in _ZH_DIGITS:
            digit = digit * 10 + _ZH_DIGITS[char]
        elif char == "万":
            total, section, digit = (total + section + digit or 1) * 10_000, 0, 0
        else:
            section, digit = section + (digit or 1) * _ZH_UNITS[char], 0
    return total + section + digit


def _en_number(text: str) -> int:
    """'twelve', 'twenty-three', 'two hundred'."""
    total = 0
    for word in re.split(r"[\s-]+", text.lower()):
        many = _EN_UNITS.get(word)
        total = (total or 1) * many if many else total + _EN_WORDS[word]
    return total
