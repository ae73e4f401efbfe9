"""May a model's own words stand in the answer? Only where the record bears them out.

A draft is read for what can be checked: ids, dates, numbers and what they count, what there is none
of, what was done, whether follow-up is needed. Each must stand in the evidence, the facts or the
record of calls, and none may contradict the verdict. Draft and evidence are read by the same code.
In doubt a draft is turned down: the answer that is made of the record is always at hand.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from typing import NamedTuple

from followup_agent.answers.claims import (
    ADJECTIVE,
    KIND,
    KINDS,
    MARKUP,
    NONE_FACTS,
    TICKET,
    Count,
    Day,
    Reading,
    kind_of,
    plain_text,
    read_claims,
)
from followup_agent.goals.ids import IdPattern
from followup_agent.goals.text import language_of, normal_form
from followup_agent.judgement.judge import SOURCES, WRITE_TOOL, current_evidence, number
from followup_agent.state import AgentState, ModelView, Verdict, facts_of
from followup_agent.tools.outcome import Fact

KEPT_CHARS = 4000
USED_CHARS = 2000
"""A longer draft is kept, cut to `KEPT_CHARS`, and not used."""


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
    created: int
    """Follow-up tasks."""
    unknown: bool
    """Whether one more was created is unknown."""


def view_draft(
    draft: str, state: AgentState, verdict: Verdict | None, ids: IdPattern, zone: tzinfo
) -> ModelView:
    """What the draft says, and whether the answer may say it; raises for no text."""
    kept = draft[:KEPT_CHARS]
    text = plain_text(kept)
    reading, record = read_claims(text, ids), _record(state, verdict, ids, zone)
    needs, stance = _stance(reading.words, verdict)
    problems = [
        *_form(draft, text, state),
        *_strangers(reading, record),
        *_wrong_counts(reading, record),
        *_actions(reading.words, record),
        *stance,
        *_priorities(reading.words, verdict),
    ]
    return ModelView(
        draft=kept,
        needs_followup=needs,
        used=bool(text) and not problems,
        disagreements=list(dict.fromkeys(problems)),
    )


def _form(draft: str, text: str, state: AgentState) -> list[str]:
    foreign = any(char.isalpha() for char in text) and language_of(draft) != state["language"]
    found = {
        f"it is longer than {USED_CHARS} characters": len(draft) > USED_CHARS,
        "it holds markup": MARKUP.search(normal_form(draft[:KEPT_CHARS])) is not None,
        f"it is not in the language of the run ({state['language']})": foreign,
    }
    return [problem for problem, holds in found.items() if holds]


def _strangers(reading: Reading, record: Record) -> list[str]:
    """What is named that the run does not know."""

    def known(word: str) -> bool:
        whole = rf"(?<![A-Za-z0-9_-]){re.escape(word)}(?![A-Za-z0-9_-])"
        return re.search(whole, record.words, re.IGNORECASE) is not None

    def seen(one: Day) -> bool:
        pairs = (zip(one, other, strict=True) for other in record.days)
        return any(all(a is None or b is None or a == b for a, b in pair) for pair in pairs)

    names = record.names
    return [
        *(f"customer {c[:60]} was not asked about" for c in reading.customers if c.lower() not in names),
        *(f"reference {r} is not in the evidence" for r in reading.references if r not in names),
        *(f"id {word[:60]} is not in the evidence" for word in reading.others if not known(word)),
        *(f"date {text} is not in the evidence" for text, day in reading.days if not seen(day)),
        *(f"time {time} is not in the evidence" for time in reading.times if time not in record.times),
    ]  # fmt: skip


_FACT_KINDS = {
    "urgent_ticket_count": ("urgent tickets", ""), "open_ticket_count": ("tickets", ""),
    "login_count_": ("logins", ""), "order_count_": ("orders", ""),
    "paid_order_count_": ("paid orders", ""), "active_days_": ("days", "active"),
    "days_since_last_active": ("days", "last activity"), "days_since_last_paid": ("days", "last payment"),
    "oldest_open_ticket_days": ("days", "open"), "days_since_signup": ("days", "since sign-up"),
}  # fmt: skip
"""What a fact counts, by how its key begins."""


def _known_counts(facts: Mapping[str, Fact]) -> Iterator[Count]:
    for key, fact in facts.items():
        value, window = fact["value"], fact["window_days"]
        if isinstance(value, dict):
            yield from (Count(Decimal(str(v)), "amount", code) for code, v in value.items())
            yield from [] if value else [Count(Decimal(0), "amount")]
        elif isinstance(value, int | float) and not isinstance(value, bool):
            kinds = [kind for begin, kind in _FACT_KINDS.items() if key.startswith(begin)]
            yield Count(Decimal(str(value)), *(kinds[0] if kinds else ("", "")))
        yield from [Count(Decimal(window), "days", "window")] if window else []


def _record(state: AgentState, verdict: Verdict | None, ids: IdPattern, zone: tzinfo) -> Record:
    evidence = current_evidence(state["evidence"], state["tool_history"])
    calls = [call for call in state["tool_history"] if call["success"]]
    writes = [call for call in state["tool_history"] if call["tool_name"] == WRITE_TOOL]
    facts, goal = facts_of(state), state["parsed_goal"]
    read = [read_claims(plain_text(item["summary"]), ids) for item in evidence]
    times = [str(fact["value"]) for fact in facts.values() if fact["unit"] == "time"]
    moments = [moment for time in (state["as_of"], *times) for moment in _moments(time, zone)]
    args = [goal["window"], *(call["args"] for call in calls)]
    untils = [read_claims(str(arg.get("until")), ids).days for arg in args]
    windows = [Decimal(days) for arg in args if isinstance(days := arg.get("days"), int)]
    created = sum(call["success"] for call in writes)
    reasons = [len(SOURCES), len(evidence), *([len(verdict["reasons"])] if verdict else [])]
    texts = [
        *(item["summary"] for item in evidence),
        *(str(fact["value"]) for fact in facts.values()),
        *(str(value) for call in calls for value in call["args"].values()),
        *(call["result_summary"] for call in calls),
    ]
    names = [*goal["subjects"], *(e["id"] for e in evidence), *(call["call_id"] for call in calls)]
    return Record(
        counts=[
            *(count for reading in read for _, counts in reading.counts for count in counts),
            *_known_counts(facts),
            *(Count(days, "days", "window") for days in windows),
            *(Count(Decimal(many), "reasons") for many in reasons),
            *([Count(Decimal(verdict["score"]), "score")] if verdict else []),
            *([Count(Decimal(created), "tasks")] if created else []),
        ],
        days=[day for days in (*untils, *(r.days for r in read)) for _, day in days]
        + [(moment.year, moment.month, moment.day) for moment in moments],
        times={*(t for r in read for t in r.times), *(f"{moment:%H:%M}" for moment in moments)},
        words=" ; ".join(plain_text(text) for text in texts),
        names={name.lower() for name in names},
        facts=facts,
        created=created,
        unknown=any(call["failure_kind"] == "outcome_unknown" for call in writes),
    )


def _moments(text: str, zone: tzinfo) -> list[datetime]:
    """A time as UTC and as the clock of `zone` has it; none for what is no time."""
    try:
        moment = datetime.fromisoformat(text)
        return [moment.astimezone(UTC), moment.astimezone(zone)]
    except (ValueError, OverflowError):
        return []


# --- how many, and whether there is any ---

_AND = r"(?:[和或及与、]|(?:or|and|nor)(?![A-Za-z]))"
_ANY = re.sub(r"\?P<\w+>", "?:", KIND)
_THING = rf"(?:(?:{ADJECTIVE}|{_AND}|任何|any(?![A-Za-z]))\s*){{0,4}}(?:{_ANY})"
_THINGS = rf"(?P<things>{_THING}(?:\s*(?:[和或及与、]|(?:or|nor)(?![A-Za-z]))\s*{_THING}){{0,3}})"
_NOTHING = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?!未(?:付费|支付|付款)的?订单)"
        r"(?:(?P<never>从未|从没|从来没有?|从不|(?<![A-Za-z])never)|没有?|无(?!法)|[未不]"
        r"|(?:(?<![A-Za-z])(?:no|none|not|without)|n't)(?![A-Za-z]))"
        r"(?:\s*(?:过|再|曾|有|发现|出现|查到|一[个笔张次]"
        r"|(?:been|yet|currently|made?|make|had|have|has|any|an?|of|them|once)(?![A-Za-z])))*"
        rf"\s*{_THINGS}(?!\s*(?:数据|信息|情况|(?:data|information|details)\b))",
        rf"{_THINGS}\s*(?::|都|也|均)\s*(?:[为是]\s*)?(?:无(?![法需])|没有\s*$|none\b)",
    )
]
"""从未付费, 没有未关闭或紧急工单, no urgent tickets, not logged in, 紧急工单:无."""
_SOMETHING = re.compile(
    r"(?:(?<![没所如若否未果只])有|存在|(?<!if there )(?<![A-Za-z])(?:has|have|with|is|are)(?![A-Za-z]))\s*"
    r"(?P<many>[多数][个张]|好?几[个张]|若干|(?:several|multiple|many|a\s+few|a\s+couple\s+of)\b)?"
    rf"(?:\s*(?:一些|(?:an?|some)\b))?\s*{_THINGS}",
    re.IGNORECASE,
)
"""有紧急工单, has several open tickets."""


def _wrong_counts(reading: Reading, record: Record) -> Iterator[str]:
    """What is said of how many there are, and the record does not have."""
    for clause, counts in reading.counts:
        for count in counts:
            if not any(_agree(count, known) for known in record.counts):
                what = ", ".join(part for part in count[1:3] if part) or "of nothing named"
                yield f"number {count.text} ({what}) is not in the evidence"
        days = max((count.value for count in counts if count.kind == "days"), default=None)
        denied = []
        for match in (m for pattern in _NOTHING for m in pattern.finditer(clause)):
            never = bool(match.groupdict().get("never"))
            denied += (kinds := _kinds_of(match))
            for kind in kinds:
                if not _is_none(kind, never, days, record.facts):
                    yield f"'{match[0].strip()[:60]}' (no {kind}) is not what the facts say"
        for match in _SOMETHING.finditer(clause):
            least = 2 if match["many"] else 1
            for kind in _kinds_of(match):
                asked = kind.endswith("tickets") and kind not in denied
                if asked and (number(record.facts, NONE_FACTS[kind][0]) or 0) < least:
                    yield f"'{match[0].strip()[:60]}' ({kind}) is not what the facts say"


def _kinds_of(match: re.Match[str]) -> list[str]:
    """The things that are said to be there, or not, as far as facts can say so."""
    return [kind for kind in map(kind_of, KINDS.finditer(match["things"])) if kind in NONE_FACTS]


def _agree(count: Count, known: Count) -> bool:
    """The same number of the same thing; what is of no kind may be any."""
    about = count.about in (known.about, "", "window") or not known.about
    return count.value == known.value and (not count.kind or (count.kind == known.kind and about))


def _is_none(kind: str, never: bool, days: Decimal | None, facts: Mapping[str, Fact]) -> bool:
    """Whether the facts say that there was none: at all, in so many days, or in every window."""
    how_many, since = NONE_FACTS[kind]
    if since in facts and facts[since]["value"] is None:
        return True
    last = number(facts, since)
    if never or (days is not None and last is not None and last >= days):
        return not never
    found = [fact for key, fact in facts.items() if key.startswith(how_many)]
    if days is not None and kind in ("logins", "orders", "paid orders", "activity"):
        exact = [fact for fact in found if fact["window_days"] == days]
        found = exact or [fact for fact in found if (fact["window_days"] or 0) >= days]
    return bool(found) and all(fact["value"] == 0 for fact in found)


# --- what was done ---

_ZH_DO = (
    r"(?:创建|新建|建立|生成|发送|发出|安排|派发|派出|下发|分配|指派|通知|联系|致电|拨打|回访|跟进|升级|关闭|处理|解决|退款"
    r"|补偿|提醒|(?<![录用费单])记录|提交|转交|转接|预约|沟通|告知|上门|拜访|登记|[派开]单|打电话|发(?:邮件|短信|消息))"
)
_ZH_GAP = r"(?:(?![未没不待需应请可若尚]|建议|[0-9一二两三四五六七八九十]\s*天).){0,16}?"
"""Between 已 and what was done. 已打开 3 天, 需处理: nothing was."""
_EN_DID = (
    r"(?:created|sent|assigned|scheduled|contacted|notified|closed|escalated|refunded|called|phoned"
    r"|e-?mailed|informed|alerted|resolved|submitted|arranged|recorded|forwarded|dispatched|filed"
    r"|booked|issued|reminded|messaged|credited|fixed|handled|queued|spoken?|dealt"
    r"|(?:set|followed)\s+up|reached\s+out)(?![A-Za-z])"
)
_EN_DO = (
    r"(?:create|send|assign|schedule|contact|notify|close|escalate|refund|call|phone|e-?mail|inform"
    r"|alert|resolve|submit|arrange|reach\s+out|follow\s+up|message|remind|handle|visit|set\s+up)(?![A-Za-z])"
)
_SOON = r"(?:(?:already|now|just|successfully|also|since|then|soon|shortly|be|been|being|all)\s+)*"
_DONE = re.compile(
    rf"(?:已|刚刚|成功|正在){_ZH_GAP}{_ZH_DO}|{_ZH_DO}(?:[完好到过]|成功)?了(?!解)|{_ZH_DO}(?:成功|完毕)(?!后)"
    r"|[打发做建开]了[^,;。]{0,6}(?:电话|邮件|短信|消息|回访|任务|工单)|我们?\s*(?:已|会|将|正在|马上|这就)"
    rf"|(?:\b(?:has|have|had|was|were|is|are|been|being|got|I|we)|'s|'ve)\s+{_SOON}{_EN_DID}"
    rf"|(?:^|[:,]|\b(?:and|then|task|follow-?up|team|support|agent|manager|success|they))\s*{_SOON}{_EN_DID}"
    r"|\b(?:created|opened|scheduled|sent|raised|filed|assigned)\s+(?:an?|the|one|this)\b",
    re.IGNORECASE,
)
_WILL = re.compile(
    rf"(?:将会?|(?<![机社不])会(?!员|议)|即将|马上|稍后){_ZH_GAP}{_ZH_DO}"
    rf"|(?:\b(?:will|shall|going\s+to)|'ll)\s+{_SOON}(?:{_EN_DO}|{_EN_DID})",
    re.IGNORECASE,
)
_ADVICE = re.compile(
    r"建议|应|需|可|请|必须|如|若|否则|\b(?:should|recommend|suggest|if)\b", re.IGNORECASE
)
_UNDONE = re.compile(
    rf"(?P<none>没有?|未能?|尚未|并未)(?:(?![已但而就故]).){{0,8}}?{_ZH_DO}(?:[^,;。]{{0,6}}?(?P<zh_task>任务))?"
    rf"|(?:无法|不会|不能|无需|不必|不需要?|不用|暂不)(?:(?![已但而就故]).){{0,8}}?{_ZH_DO}"
    r"|(?:\b(?:no|not|never|nothing|nobody|none|without|cannot)\b(?!\s+only)|n't\b)"
    rf"(?:(?!\b(?:and|but|so|then|yet)\b)[^:]){{0,40}}?\b(?:{_EN_DID}|{_EN_DO})",
    re.IGNORECASE,
)
_CREATED = re.compile(
    r"(?:创建|新建|建立|生成|提交)(?:好|成功|完成)?了?[^,;。:]{0,12}?任务"
    r"|任务[^,;。]{0,12}?(?:创建|新建|建立|生成|提交)(?:好|成功|完成|完毕)?了?"
    r"|\btask\b[^,;.]{0,40}?\b(?:created|set\s+up|submitted)\b"
    r"|\b(?:created|set\s+up|submitted)\b[^,;.]{0,30}?\btask\b",
    re.IGNORECASE,
)
_STEP_END = re.compile(r"[;。!?]|\.(?=\s|$)|,(?!\s*(?:并|同时|随后|然后|and\b|then\b))")
"""`…, and notified the team` goes on with what was said to be done."""


def _actions(words: str, record: Record) -> Iterator[str]:
    """Claims that something was done, or will be: of all actions a run may create a task, no more."""
    for clause in _STEP_END.split(words):
        for match in _UNDONE.finditer(clause):
            denied = (match["none"] and match["zh_task"]) or re.search(r"\btask\b.*ed\b", match[0])
            if denied and (record.created or record.unknown):
                yield f"'{match[0].strip()[:60]}' denies an action of the record"
        told = _UNDONE.sub(" ", clause)
        if record.created:
            told = _CREATED.sub(" ", told)
        claims = [match[0] for match in _DONE.finditer(told)]
        claims += [m[0] for m in _WILL.finditer(told) if not _ADVICE.search(told[: m.start()])]
        for claim in claims:
            yield f"'{claim.strip()[:60]}' claims an action that is not in the record"


# --- the verdict ---

_FOLLOW = r"(?:跟进(?!任务)|介入|回访|人工联系|联系(?:该?客户|用户))"
_FOLLOW_UP = r"follow(?:ed|ing)?[ -]?ups?\b(?!\s+tasks?)"
_FAR = r"[^.,;!?]{0,40}?\b"
_ANSWERED = re.compile(
    r"(?:跟进[^,;。]{0,4}|follow[ -]?up(?:\s+(?:is\s+)?(?:needed|required))?)\s*[:?]\s*"
    r"(?:(?P<yes>是的?|需要|yes)|否|[不无](?:需要?)?|no)\s*(?=$|[,;.。!?()])",
    re.IGNORECASE,
)
_UNSAID = re.compile(
    r"(?:是否|要不要|需不需要|(?<!例)如(?![下此上图何])|若(?!干)|假如|一旦)[^,;。!?:]*"
    r"|\b(?:whether|if|unless)\b[^,;.!?:]*",
    re.IGNORECASE,
)
"""Questions and conditions say neither."""
_NOT_NEEDED = re.compile(
    r"(?:不(?:太|再)?(?:需要?|必|用|建议|应当?|应该|值得|列[为入]|纳入)|无(?:需|须|必要)|没有?(?:什么)?必要|暂[不缓])"
    rf"(?:(?![并而但且]|建议|需|应)[^,;。!?]){{0,14}}?{_FOLLOW}"
    rf"|不(?:再|重点|予)?{_FOLLOW}(?![就会将则可的])|没有?[^,;。!?]{{0,6}}?{_FOLLOW}的?(?:必要|需[要求])"
    r"|\b(?:no|without)\s+(?:(?:priority|immediate|urgent|manual|further|special|additional|need|reason"
    rf"|for|to|any|a)\s+)*{_FOLLOW_UP}|{_FOLLOW_UP}\s+(?:is|seems)\s+un(?:need|necess|warrant)"
    r"|(?:\bnot|n't|\bno\s+longer)\s+(?:\w+\s+){0,2}?(?:(?:need|require|warrant|merit|justify|recommend)\w*"
    rf"\s+(?:\w+\s+){{0,4}}?|(?:be|get)\s+){_FOLLOW_UP}"
    rf"|{_FOLLOW_UP}\s+(?:\w+n't|(?:\w+\s+)?not)\s+(?:\w+\s+)?(?:need|requir|necess|warrant)"
    r"|\bno\s+(?:person|human|one)\s+is\s+needed",
    re.IGNORECASE,
)
_NEEDED = re.compile(
    r"(?:需要?|建议|(?<![响相反对适])应|必须|务必|值得|有必要|要重点|要|尽快|优先|立即|安排|请|推荐|列[为入]|纳入|结论|判断)"
    rf"[^,;。!?]{{0,14}}?{_FOLLOW}"
    r"|\b(?:needs?|requires?|warrants?|merits?|deserves?|should|must|recommend\w*|advis\w+|suggest\w*)\b"
    rf"{_FAR}{_FOLLOW_UP}|{_FOLLOW_UP}\s+(?:(?:is|seems)\s+)?(?:\w+\s+)?(?:need|requir|necess|warrant|recommend)"
    r"|\bshould\s+be\s+(?:called|contacted)\b|\bhave\s+a\s+person\s+call\b"
    r"|\bplease\s+follow\b|\bfollow[ -]up\s+(?:with|on|today|now|soon)\b",
    re.IGNORECASE,
)
_UNDETERMINED = re.compile(
    r"不足以(?:判断|说明|确定)|[无不难][法能以](?:判断|确定)|未作判断|undetermined|inconclusive"
    r"|(?:can(?:not|'t)|unable\s+to|not\s+(?:enough|sufficient)\s+to|insufficient\s+to)\s+(?:be\s+)?"
    r"(?:judge|determine|tell|say|decide)|(?:not\s+enough|insufficient)\s+(?:data|evidence|information)",
    re.IGNORECASE,
)
_LEVEL = re.compile(
    r"优先级别?\s*(?:被?[评定判]定?为|应?[为是]|:)?\s*(?P<a>最高|极高|[高中低无]|紧急)"
    r"|(?P<zh_not>不是|非)?(?P<b>[高中低])(?:优先级|危)(?!的?(?:未\w\w)?的?工单)"
    r"|(?P<en_not>\bnot\s+(?:an?\s+)?)?\b(?P<c>high(?:est)?|top|medium|low(?:est)?|critical)[ -]priority\b"
    rf"(?!\s+(?:\w+\s+)?{TICKET})"
    r"|\bpriority(?:\s+(?:level|is|of|as|at))*\s*[:=]?\s*(?P<d>high|medium|low|none|critical|urgent)\b",
    re.IGNORECASE,
)
_LEVELS = {"最": "high", "极": "high", "高": "high", "中": "medium", "低": "low", "无": "none"}
_LEVELS |= {"hi": "high", "to": "high", "me": "medium", "lo": "low", "no": "none"}


def _stance(words: str, verdict: Verdict | None) -> tuple[bool | None, list[str]]:
    """Whether the draft says that follow-up is needed, and how that contradicts the verdict."""
    said = {bool(match["yes"]) for match in _ANSWERED.finditer(words)}
    left = _UNSAID.sub(" ", _ANSWERED.sub(" ", words))
    said |= {False} if _NOT_NEEDED.search(left) else set()
    said |= {True} if _NEEDED.search(_NOT_NEEDED.sub(" ", left)) else set()
    known = verdict["needs_followup"] if verdict else None
    if len(said) == 2:
        return None, ["it says both that follow-up is needed and that it is not"]
    if not said:
        left_open = known is not None and _UNDETERMINED.search(words)
        return None, ["that it cannot be judged contradicts the verdict"] if left_open else []
    (needs,) = said
    if needs == known:
        return needs, []
    says = "is" if needs else "is not"
    return needs, [f"that follow-up {says} needed contradicts the verdict ({known})"]


def _priorities(words: str, verdict: Verdict | None) -> Iterator[str]:
    known = verdict["priority"] if verdict else None
    for match in _LEVEL.finditer(words):
        word = next(match[name] for name in "abcd" if match[name]).lower()
        level = _LEVELS.get(word[:1]) or _LEVELS.get(word[:2]) or word
        denied = bool(match["zh_not"] or match["en_not"])
        if (level == known) == denied:
            yield f"priority '{match[0].strip()}' contradicts the verdict ({known})"
