"""May a model's own words stand in the answer? Only where the record bears them out.

A draft is read for what can be checked: ids, dates, numbers and what they count, what there is none
of, what was done, whether follow-up is needed. Each must stand in the evidence, the facts or the
record of calls, and none may contradict the verdict. Draft and evidence are read by the same code.
In doubt a draft is turned down: the answer that is made of the record is always at hand.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from typing import NamedTuple


from followup_agent.goals.ids import IdPattern
from followup_agent.goals.text import language_of, normal_form, simplified
from followup_agent.judgement.judge import SOURCES, WRITE_TOOL, current_evidence
from followup_agent.state import AgentState, Evidence, ModelView, Verdict, facts_of
from followup_agent.tools.outcome import Fact

KEPT_CHARS = 4000
USED_CHARS = 2000
"""A longer draft is kept, cut to `KEPT_CHARS`, and not used."""

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


class Record(NamedTuple):
    """What the run knows, in the form that a draft is read in."""

    counts: list[Count]
    days: list[Day]
    times: set[str]
    words: str
    """Every text in which an id may stand."""
    names: set[str]
    """The ids of customer, evidence and calls, in lower case."""
    facts: Mapping[str, Fact]
    created: bool
    """A follow-up task was created."""
    unknown: bool
    """Whether one was is unknown."""


def view_draft(
    draft: str, state: AgentState, verdict: Verdict | None, ids: IdPattern, zone: tzinfo
) -> ModelView:
    """What the draft says, and whether the answer may say it; raises for no text."""
    text = _plain(draft[:KEPT_CHARS])
    record = _record(state, verdict, zone)
    problems = _form(draft, text, state)
    addresses, text = _take(_ADDRESS, text)
    days, times, text = _take_dates(text)
    problems += [f"{what} is not in the evidence" for what in _undated(days, times, record)]
    problems += [f"address {a} is not in the evidence" for a in addresses if not _in(record, a)]
    strangers, text = _take_names(text, ids, record)
    problems += strangers
    for clause in _CLAUSE_END.split(text):
        counts = list(_counts(clause))
        problems += [_unfounded(count) for count in counts if not _founded(count, record)]
        problems += _wrong_nothing(clause, counts, record.facts)
    problems += _actions(text, record)
    needs, contradictions = _stance(text, verdict)
    problems += contradictions + _priorities(text, verdict)
    return ModelView(
        draft=draft[:KEPT_CHARS],
        needs_followup=needs,
        used=bool(_plain(draft)) and not problems,
        disagreements=list(dict.fromkeys(problems)),
    )


# --- the text ---

_LIST_MARK = re.compile(
    r"^[ \t]*(?:[-*•·]+(?![0-9])|\(?[0-9]{1,2}(?:[.、](?![0-9])|\)))[ \t]*|[①-⑳]", re.MULTILINE
)
"""The numbers of a list count nothing."""
_EMPHASIS = re.compile(r"(?<![0-9])[*`]+|[*`]+(?![0-9])")
_MARKUP = re.compile(r"```|<[/|!?]?\s*[^\W\d_]|<\||\[/?think", re.IGNORECASE)
_MORE_SIMPLIFIED = str.maketrans(
    "緊為將會應聯絡繫萬兩俩壹贰叁肆伍陆柒捌玖拾佰仟",
    "紧为将会应联络系万两两一二三四五六七八九十百千",
)
"""Characters that goals are not read by, and answers are."""
_CLAUSE_END = re.compile(r"[;。!?()\[\]—|]|(?<![0-9]),|,(?![0-9]{3}(?![0-9]))|\.(?=\s|$)")
"""What stands beyond it does not say what a number counts. `1,234` is one number."""


def _plain(text: str) -> str:
    """One line in normal form, simplified, without list marks and emphasis, its digits ASCII."""
    lines = _EMPHASIS.sub("", _LIST_MARK.sub("", text)).splitlines()
    plain = normal_form(" ; ".join(line for line in lines if line.strip()))
    plain = simplified(plain).translate(_MORE_SIMPLIFIED)
    return re.sub(r"\d", lambda digit: str(int(digit[0])), plain)


def _form(draft: str, text: str, state: AgentState) -> list[str]:
    foreign = any(char.isalpha() for char in text) and language_of(draft) != state["language"]
    found = {
        f"it is longer than {USED_CHARS} characters": len(draft) > USED_CHARS,
        "it holds markup": _MARKUP.search(normal_form(draft[:KEPT_CHARS])) is not None,
        f"it is not in the language of the run ({state['language']})": foreign,
    }
    return [problem for problem, holds in found.items() if holds]


def _take(pattern: re.Pattern[str], text: str) -> tuple[list[str], str]:
    """What the pattern finds, and the text without it."""
    return [match[0] for match in pattern.finditer(text)], pattern.sub(" ", text)


# --- ids, references, addresses ---

_ADDRESS = re.compile(
    r"(?:https?://|www\.)[^\s,;。()\"]+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
    r"|(?<![\w.-])(?:[a-z0-9-]+\.)+(?:com|cn|net|org|io|app|ai)(?![a-z])[^\s,;。()\"]*",
    re.IGNORECASE | re.ASCII,
)
_REFERENCE = re.compile(r"(?<![A-Za-z0-9])(?<![A-Za-z0-9_][_-])[ec][0-9]{1,3}(?![A-Za-z0-9_])")
"""[e1], c2, e1-e5."""
_CODE = re.compile(r"(?<![A-Za-z0-9_])[A-Za-z]+[0-9][A-Za-z0-9]*")
"""P1, B2B, v2: too short for an id, and no number either."""
_LONG_DIGITS = re.compile(r"(?<![\w.,])\+?[0-9](?:[ -]?[0-9]){6,}(?!\w|[.,][0-9])")
"""Perhaps a phone number."""


def _in(record: Record, word: str) -> bool:
    """Whole in the record's words, not as a part of a longer one."""
    whole = rf"(?<![A-Za-z0-9_-]){re.escape(word)}(?![A-Za-z0-9_-])"
    return re.search(whole, record.words, re.IGNORECASE) is not None


def _take_names(text: str, ids: IdPattern, record: Record) -> tuple[list[str], str]:
    """What is named that the run does not know, and the text without anything that is named."""
    references, text = _take(_REFERENCE, text.replace("–", "-"))
    reading = ids.read(text)
    codes, text = _take(_CODE, reading.words)
    digits, _ = _take(_LONG_DIGITS, text)
    amounts = {count.value for count in record.counts}
    named = {
        "reference {} is not in the evidence": [r for r in references if r not in record.names],
        "customer {} is not the one asked about": [
            found for found in reading.found if found.lower() not in record.names
        ],
        "id {} is not in the evidence": [
            word for word in (*reading.unreadable, *codes) if not _in(record, word)
        ],
        "digits {} are not in the evidence": [
            run
            for run in digits
            if not _in(record, run) and Decimal(re.sub("[^0-9]", "", run)) not in amounts
        ],
    }
    return [say.format(word[:60]) for say, words in named.items() for word in words], text


# --- dates ---

_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_EN_MONTH = (
    r"(?P<name>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|(?-i:May)|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_ZH_DAY = r"[0-9]{1,2}|[一二三四五六七八九十]{1,3}"
_TH = r"(?:st|nd|rd|th)?"
_DATES = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?<![\w-])(?P<y>[0-9]{4})([-/.])(?P<m>[0-9]{1,2})\2(?P<d>[0-9]{1,2})(?![0-9])",
        rf"(?:(?P<y>[0-9]{{4}})\s*年\s*)?(?<![0-9])(?P<m>{_ZH_DAY})\s*月\s*(?P<d>{_ZH_DAY})\s*[日号]",
        rf"(?P<y>[0-9]{{4}})\s*年\s*(?P<m>{_ZH_DAY})\s*月|(?<![近去个0-9])(?P<m2>{_ZH_DAY})\s*月(?!内)",
        r"(?<![0-9])(?P<y>20[0-9]{2})\s*年|\bin\s+(?P<y2>20[0-9]{2})\b(?!-)",
        rf"\b{_EN_MONTH}\s+(?:the\s+)?(?P<d>[0-9]{{1,2}}){_TH}\b(?:,?\s+(?P<y>[0-9]{{4}})\b)?",
        rf"\b(?P<d>[0-9]{{1,2}}){_TH}\s+(?:of\s+)?{_EN_MONTH}(?:,?\s+(?P<y>[0-9]{{4}})\b)?",
        rf"\b{_EN_MONTH}\s+(?P<y>[0-9]{{4}})\b",
    )
]
"""The longer forms first. 三月 is March, 三个月 and 近三月 are months."""
_TIME = re.compile(
    r"(?<![0-9:])T?(?P<time>(?:[01]?[0-9]|2[0-3]):[0-5][0-9])(?::[0-5][0-9](?:\.[0-9]+)?)?"
    r"(?:\s*(?:Z\b|UTC\b|[+-][0-9]{2}:[0-9]{2}))?(?![0-9:])"
)


def _take_dates(text: str) -> tuple[list[tuple[str, Day]], list[str], str]:
    """The days and the times of day that are named, and the text without them."""
    days = []
    for pattern in _DATES:
        for match in pattern.finditer(text):
            found = {name.rstrip("2"): part for name, part in match.groupdict().items() if part}
            name = found.get("name")
            month = _MONTHS.index(name[:3].lower()) + 1 if name else _day(found.get("m"))
            days.append((match[0].strip(), (_day(found.get("y")), month, _day(found.get("d")))))
        text = pattern.sub(" ", text)
    times = [match["time"].zfill(5) for match in _TIME.finditer(text)]
    return days, times, _TIME.sub(" ", text)


def _day(text: str | None) -> int | None:
    return None if text is None else int(text) if text.isascii() else _zh_number(text)


def _undated(days: Sequence[tuple[str, Day]], times: Sequence[str], record: Record) -> list[str]:
    """Dates and times that the run does not know."""

    def agree(one: Day, other: Day) -> bool:
        return all(a is None or b is None or a == b for a, b in zip(one, other, strict=True))

    return [
        *(f"date {text}" for text, day in days if not any(agree(day, k) for k in record.days)),
        *(f"time {time}" for time in times if time not in record.times),
    ]


# --- numbers ---

_OF = r"of|the|its|their|them|these|those|which|is|are|was|were|have|been|being"
_ADJECTIVE = (
    r"(?:尚?未(?:关闭|处理|解决|完成)|待(?:处理|解决)|打开|开放|开着|处理中|有效|成功|活跃|连续|自然|新增?|已|的"
    r"|(?:open|unresolved|unclosed|outstanding|pending|active|new|recent|separate|different|distinct"
    rf"|calendar|consecutive|full|whole|customer|support|successful|last|past|{_OF})(?![A-Za-z]))"
)
_WORDS_FOR = {
    "urgent_tickets": (
        rf"紧急\s*(?:且|或)?(?:{_ADJECTIVE}\s*){{0,3}}工单|工单(?:被?标?记?为|是|属于|都|均|很|较)*紧急|紧急|加急",
        r"urgent(?:\s+(?:open|unresolved|outstanding|pending|support))*(?:\s+(?:tickets?|issues?|cases?))?"
        r"|(?:tickets?|issues?|cases?)(?:\s+(?:that|which|is|are|was|were|marked|as))+\s+urgent",
    ),
    "tickets": (
        r"(?:未关闭|未处理|未解决|待处理)(?!\s*的?\s*(?:紧急|工单))|工单|最早的?(?:已?打开|一)",
        r"tickets?|issues?|cases?|oldest|open(?=\s*$|\s*:|\s+(?:or|and)\b)",
    ),
    "paid_orders": (r"(?:付费|支付|付款)(?:的?订单)?", r"paid(?:\s+orders?)?|pay(?:s|ing|ments?)?"),
    "orders": (r"订单|下单|购买", r"order(?:s|ed|ing)?|purchase[sd]?|placed"),
    "logins": (r"登[录陆]", r"log(?:s|ged|ging)?[ -]?ins?|sign(?:s|ed|ing)?[ -]?ins?"),
    "activity": (r"活跃|使用", r"(?:in)?activ(?:e|ity)|usage"),
    "sign_up": (r"注册", r"sign(?:ed)?[ -]?ups?|registered|registration"),
    "score": (r"[得评]分|分数", r"scor(?:es?|ed)|points?"),
    "reasons": (
        r"来源|理由|依据|原因|信号|方面|证据",
        r"sources?|reasons?|signals?|pieces?\s+of\s+evidence",
    ),
    "amount": (r"金额|总额|消费|[合总共]计", r"amount(?:s|ing)?|total(?:s|ing|ling)?|worth|spen[dt]"),
}
"""What counts, in Chinese and in English; of two that fit in one place the first is meant."""
_KIND = re.compile(
    "|".join(rf"(?P<{k}>{zh}|(?<![A-Za-z])(?:{en})(?![A-Za-z]))" for k, (zh, en) in _WORDS_FOR.items()),
    re.IGNORECASE,
)  # fmt: skip
_ANY_KIND = re.sub(r"\?P<\w+>", "?:", _KIND.pattern)
_ATTACHED = re.compile(
    rf"\s*(?:个|张|条|件|笔|次|单|起|项|份|times?)?\s*(?:{_ADJECTIVE}\s*){{0,5}}(?:{_KIND.pattern})",
    re.IGNORECASE,
)
_AFTER_DAYS = re.compile(
    r"\s*(?:(?:[前内里之来未不无都均仍曾才过的]|以来|没有?|有过|最[后近]|上?一次"
    r"|(?:ago|since|without|for|the|its|their|last|latest|most|recent|any|an?|of|no|not|in|was|has|had"
    rf"|have|been|after|from|on)(?![A-Za-z]))\s*){{0,6}}(?:{_KIND.pattern})",
    re.IGNORECASE,
)
"""45 天前付费, 9 days since the last login."""
_SINCE = {
    "paid orders": "payment", "orders": "orders", "logins": "activity", "activity": "activity",
    "tickets": "tickets", "urgent tickets": "tickets", "sign up": "sign-up",
}  # fmt: skip
"""What days are about, by the word beside them."""
_CURRENCIES = {
    "CNY": r"CNY|RMB|¥|元|人民币|yuan", "USD": r"USD|US\$|\$|美元|美金|dollars?", "EUR": r"EUR|€|欧元|euros?",
    "GBP": r"GBP|£|英镑", "JPY": r"JPY|日元", "HKD": r"HKD|港[元币]",
}  # fmt: skip
_CURRENCY = "|".join(f"(?P<{c}>{names})" for c, names in _CURRENCIES.items())
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
    rf"|[多余来]?[\s-]*个?\s*(?:{_ADJECTIVE}\s*){{0,4}}"
    r"(?P<period>天|日|周|星期|礼拜|月|季度|年|(?:day|d|week|fortnight|month|quarter|year)(?=s?(?![A-Za-z]))))",
    re.IGNORECASE,
)
_ZH_DIGITS = {digit: value for value, digit in enumerate("零一二三四五六七八九")} | {"两": 2}
_ZH_UNITS = {"十": 10, "百": 100, "千": 1000, "万": 10_000}
_ZH = "".join([*_ZH_DIGITS, *_ZH_UNITS])
_EN_WORDS = {
    word: value
    for value, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
        "fifteen sixteen seventeen eighteen nineteen".split()
    )
} | {"twice": 2, "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60}
_EN_WORDS |= {"seventy": 70, "eighty": 80, "ninety": 90}
_EN_MULTIPLES = {"dozen": 12, "hundred": 100, "thousand": 1000}
_EN = rf"(?:{'|'.join([*_EN_WORDS, *_EN_MULTIPLES])})(?![A-Za-z])"
_SCALES = {"百万": 10**6, "万": 10**4, "千": 1000, "亿": 10**8, "k": 1000, "million": 10**6, "thousand": 1000}
_NUMBER = re.compile(
    rf"百分之\s*(?P<share>[0-9.]+|[{_ZH}]+)"
    r"|(?<![A-Za-z0-9_])(?<![0-9]\.)(?P<digits>-?(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?)"
    r"(?:\s*(?P<scale>百万|万|千|亿|k|million|thousand)(?![A-Za-z]))?"
    rf"|(?<![第周期拜唯{_ZH}])(?P<zh>[{_ZH}]{{1,9}})(?=\s*[多余来]?\s*(?:[个张条件笔次天日周月年元块项份位名成种]"
    r"|单(?!独|一)|起(?!来)|星期|礼拜|季度|小时|分钟|方面|工单|订单))"
    rf"|(?<![A-Za-z-])(?:an?\s+)?(?P<en>{_EN}(?:[\s-]+{_EN})*)",
    re.IGNORECASE,
)
"""周三 and 第三 count nothing, and a Chinese numeral counts only before a measure word."""
_OUT_OF_100 = re.compile(r"(?<=[0-9])\s*(?:/|out\s+of)\s*100(?![0-9.%])")
_NO_COUNT = re.compile(r"(?:最[近后新]|没有|[上下每任同另再这那某哪首各])\s*$")
"""Before 一: 最近一次付费 is no count of payments."""


def _counts(clause: str) -> Iterator[Count]:
    """The numbers of a clause, each with what it counts: the word attached to it, else the nearest
    before it, else the first after it. A bare 一 or `one` counts only what it is attached to."""
    clause = _OUT_OF_100.sub(" ", clause)
    found = list(_NUMBER.finditer(clause))
    edges = [0, *(match.end() for match in found)]
    for number, match in enumerate(found):
        left = clause[edges[number] : match.start()][-30:]
        until = found[number + 1].start() if number + 1 < len(found) else len(clause)
        right = clause[match.end() : until][:40]
        bare = match[0].lower() in ("一", "one")
        unit, attached = _UNIT.match(right), _ATTACHED.match(right)
        if bare and (_NO_COUNT.search(left) or not (unit or _countable(attached))):
            continue
        kind, about, factor = _kind(left, right, unit, attached)
        if match["share"]:
            kind, about, factor = "percent", "", 1
        yield Count(_value(match) * factor, kind, about, match[0].strip()[:30])


def _countable(attached: re.Match[str] | None) -> bool:
    """`one urgent ticket`, not `one of the tickets`."""
    if attached is None:
        return False
    return _name(attached) == "urgent tickets" or not re.match(r"\s*of\b", attached[0])


def _kind(
    left: str, right: str, unit: re.Match[str] | None, attached: re.Match[str] | None
) -> tuple[str, str, int]:
    """What a number between these texts counts, what that is about, and how many of it one is."""
    before = list(_KIND.finditer(left))
    money = unit if unit and unit.lastgroup in _CURRENCIES else _MONEY_BEFORE.search(left)
    if money:
        return "amount", str(money.lastgroup), 1
    if unit and unit["period"]:
        rest = right[unit.end() :]
        inside = re.search("活跃|active", unit[0], re.IGNORECASE)
        near = _AFTER_DAYS.match(rest) or (before[-1] if before else _KIND.search(rest))
        about = "activity" if inside else _SINCE.get(_name(near), "") if near else ""
        return "days", about, _DAYS_IN[unit["period"].lower()]
    if unit:
        return str(unit.lastgroup), "", 1
    near = attached or (before[-1] if before else _KIND.search(right))
    kind = _name(near) if near else ""
    return ("days", "activity", 1) if kind == "activity" else (kind, "", 1)


def _name(match: re.Match[str]) -> str:
    return str(match.lastgroup).replace("_", " ")


def _value(match: re.Match[str]) -> Decimal:
    if digits := match["digits"]:
        return Decimal(digits.replace(",", "")) * _SCALES.get((match["scale"] or "").lower(), 1)
    if share := match["share"]:
        plain = re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", share)
        return Decimal(share) if plain else Decimal(_zh_number(re.sub("[0-9.]", "", share)))
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
        many = _EN_MULTIPLES.get(word)
        total = (total or 1) * many if many else total + _EN_WORDS[word]
    return total


def _founded(count: Count, record: Record) -> bool:
    """The same number of the same thing is known; what is of no kind may be any."""
    return any(
        known.value == count.value
        and (
            not count.kind
            or (known.kind == count.kind and (known.about == count.about or "" in (known.about, count.about)))
        )
        for known in record.counts
    )  # fmt: skip


def _unfounded(count: Count) -> str:
    what = ", ".join(part for part in (count.kind, count.about) if part) or "of nothing named"
    return f"number {count.text} ({what}) is not in the evidence"


# --- the record ---

_FACT_KINDS = {
    "urgent_ticket_count": ("urgent tickets", ""), "open_ticket_count": ("tickets", ""),
    "login_count_": ("logins", ""), "order_count_": ("orders", ""),
    "paid_order_count_": ("paid orders", ""), "active_days_": ("days", "activity"),
    "days_since_last_active": ("days", "activity"), "days_since_last_paid": ("days", "payment"),
    "oldest_open_ticket_days": ("days", "tickets"), "days_since_signup": ("days", "sign-up"),
}  # fmt: skip
"""What a fact counts, by how its key begins."""


def _record(state: AgentState, verdict: Verdict | None, zone: tzinfo) -> Record:
    evidence = current_evidence(state["evidence"], state["tool_history"])
    calls = [call for call in state["tool_history"] if call["success"]]
    facts, window = facts_of(state), state["parsed_goal"]["window"]
    summaries = [_plain(item["summary"]) for item in evidence]
    read = [_take_dates(summary) for summary in summaries]
    untils = [window["until"], *(call["args"].get("until") for call in calls)]
    moments = [
        moment
        for value in (state["as_of"], *(f["value"] for f in facts.values() if f["unit"] == "time"))
        for moment in _moments(value, zone)
    ]
    looked_back = [window["days"], *(call["args"].get("days") for call in calls)]
    counts = [Count(Decimal(days), "days") for days in looked_back if isinstance(days, int)]
    names = [*state["parsed_goal"]["subjects"], *(item["id"] for item in evidence)]
    writes = [call for call in state["tool_history"] if call["tool_name"] == WRITE_TOOL]
    return Record(
        counts=[*counts, *_known_counts(facts, evidence, [text for *_, text in read], verdict)],
        days=[
            *(day for days, _, _ in read for _, day in days),
            *(day for text in untils for _, day in _take_dates(str(text))[0]),
            *((moment.year, moment.month, moment.day) for moment in moments),
        ],
        times={*(t for _, times, _ in read for t in times), *(f"{m:%H:%M}" for m in moments)},
        words=" ; ".join(
            [
                *summaries,
                *(_plain(str(fact["value"])) for fact in facts.values()),
                *(_plain(str(value)) for call in calls for value in call["args"].values()),
                *(_plain(call["result_summary"]) for call in calls),
            ]
        ),
        names={name.lower() for name in (*names, *(call["call_id"] for call in calls))},
        facts=facts,
        created=any(call["success"] for call in writes),
        unknown=any(call["failure_kind"] == "outcome_unknown" for call in writes),
    )


def _moments(value: object, zone: tzinfo) -> list[datetime]:
    """A time as UTC and as the clock of `zone` has it; none for what is no time."""
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        return []
    return [moment.astimezone(UTC), moment.astimezone(zone)]


def _known_counts(
    facts: Mapping[str, Fact], evidence: Sequence[Evidence], texts: Sequence[str], verdict: Verdict | None
) -> Iterator[Count]:  # fmt: skip
    for text in texts:
        for clause in _CLAUSE_END.split(_CODE.sub(" ", IdPattern().read(text).words)):
            yield from _counts(clause)
    for key, fact in facts.items():
        value, window = fact["value"], fact["window_days"]
        kinds = [kind for begin, kind in _FACT_KINDS.items() if key.startswith(begin)]
        if isinstance(value, dict):
            yield from (Count(Decimal(str(v)), "amount", code) for code, v in value.items())
            yield from [] if value else [Count(Decimal(0), "amount")]
        elif isinstance(value, int | float) and not isinstance(value, bool):
            kind, about = kinds[0] if kinds else ("", "")
            yield Count(Decimal(str(value)), kind, about)
        yield from [Count(Decimal(window), "days")] if window else []
    said = len(verdict["reasons"]) if verdict else 0
    yield from (Count(Decimal(n), "reasons") for n in (len(SOURCES), len(evidence), said))
    if verdict:
        yield Count(Decimal(verdict["score"]), "score")
