"""The prompt of one round, from the state: static part first, then rounds that only ever grow.

    system     instructions, tools and forms: the same for every run of a language
    user       the goal, what was read from it, the time
    assistant  a decision            one pair a round, in the order in which they happened; rounds
    user       what came of it       once sent are sent again byte by byte

So consecutive rounds share a prefix that a server can cache, and two customers share the static
part. What a tool found is framed, escaped, cut, and marked as data; the customers' own words within
it once more. When the rounds would pass the cap, the oldest are folded into their facts.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from functools import cache
from html import escape
from importlib import resources
from string import Template
from typing import Any, NamedTuple, get_args

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from followup_agent.goals.goal import read_answer, read_goal
from followup_agent.goals.ids import IdPattern
from followup_agent.goals.limits import MAX_DAYS, MAX_PROMPT_TOKENS, OutputMethod
from followup_agent.judgement.judge import SOURCES
from followup_agent.planners.forms import Forms, Offer
from followup_agent.service.errors import ConfigurationError
from followup_agent.state import AgentState, Decision, Goal, ToolCallRecord
from followup_agent.tools.outcome import Language

MAX_ROUND_TOKENS = 3_000
"""Of the results of one round, customers' words included; what is cut is marked."""
PLACEHOLDER = "<id from the goal>"
"""Stands for a customer id in the examples. No id may hold a blank or a bracket."""

FIELDS: Mapping[str, frozenset[str]] = {
    "planner": frozenset({"sources", "forms", "reply"}),
    "reply_text": frozenset({"examples"}),
    "reply_call": frozenset({"examples"}),
    "goal": frozenset({"goal", "subjects", "kind", "window", "task", "now", "zone", "max_steps"}),
    "result": frozenset({"step", "max_steps", "results"}),
    "answer": frozenset({"answer", "subjects", "window"}),
    "repair": frozenset({"why"}),
    "too_early": frozenset({"missing"}),
    "narrow": frozenset({"offer"}),
    "last_failure": frozenset({"why"}),
}
"""Every prompt file, in each language, with the fields it must have: no more and no fewer."""

_WORDS: Mapping[str, tuple[str, str]] = {
    "judgement": ("是否需要重点跟进", "does the customer need priority follow-up"),
    "activity": ("活跃情况（get_user_activity）", "activity (get_user_activity)"),
    "orders": ("订单与付费（get_user_orders）", "orders and payments (get_user_orders)"),
    "tickets": ("工单（get_open_tickets）", "tickets (get_open_tickets)"),
    "task": ("创建跟进任务（先查证据）", "create a follow-up task (after the evidence)"),
    "unclear": ("不清楚，需要询问", "unclear: ask"),
    "none": ("没有要求", "not asked for"),
    "if_needed": ("需要时才创建", "only if follow-up is needed"),
    "requested": ("要求创建", "asked for"),
    "no_subject": ("没有（需要询问）", "none (ask)"),
    "window": ("days={days}", "days={days}"),
    "window_until": ("days={days}，until={until}", "days={days}, until={until}"),
    "no_window": ("没有看懂（需要询问）", "not understood (ask)"),
    "left_out": ("… [省略 {count} 个字符]", "… [{count} characters left out]"),
    "folded": ("（较早的步骤，只留事实）", "(earlier steps, facts only)"),
    "forgotten": ("（更早的 {count} 次调用已省略）", "({count} earlier calls left out)"),
}


def tokens_of(text: str) -> int:
    """An upper estimate of a text's tokens: a third of its UTF-8 bytes.

    A Chinese character is three bytes and about one token, English has about four bytes to a token
    (o200k); no tokenizer is needed, which would have to be fetched.
    """
    return -(-len(text.encode()) // 3)


@cache
def template(name: str, language: Language) -> Template:
    """A prompt file; ValueError when its fields are not the ones of `FIELDS`."""
    file = resources.files(__package__).joinpath("prompts", f"{name}.{language}.md")
    text = file.read_text(encoding="utf-8").strip()
    made = Template(text)
    if not made.is_valid() or set(made.get_identifiers()) != FIELDS[name]:
        raise ValueError(
            f"prompt {name}.{language}.md: its fields must be {', '.join(sorted(FIELDS[name]))}"
        )
    return made


def fill(name: str, language: Language, **fields: object) -> str:
    """The prompt with its fields filled; KeyError for a missing field."""
    return template(name, language).substitute(fields)


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request's messages."""

    messages: list[BaseMessage]
    tokens: int
    """By `tokens_of`."""

    def and_then(self, *more: BaseMessage) -> "Prompt":
        """The prompt with more messages at its end."""
        tokens = sum(tokens_of(str(message.content)) for message in more)
        return Prompt([*self.messages, *more], self.tokens + tokens)


class _Round(NamedTuple):
    """One decision with what came of it."""

    messages: list[BaseMessage]
    calls: list[ToolCallRecord]
    tokens: int


class PromptMaker:
    """Makes prompts for any number of runs."""

    def __init__(
        self, forms: Forms, ids: IdPattern, zone: tzinfo, *, max_tokens: int = MAX_PROMPT_TOKENS
    ) -> None:
        """For these forms; `max_tokens` is the cap of a request's messages."""
        self._forms = forms
        self._ids = ids
        self._zone = zone
        self._max_tokens = max_tokens
        self._static: dict[tuple[Language, OutputMethod], tuple[SystemMessage, int, str]] = {}

    def on(self, ids: IdPattern, zone: tzinfo) -> "PromptMaker":
        """The same prompts for a company with other ids, in another time zone."""
        other = PromptMaker(self._forms, ids, zone, max_tokens=self._max_tokens)
        other._static = self._static  # says nothing of either
        return other

    def check(self) -> "PromptMaker":
        """Itself; ConfigurationError when instructions and tools leave too little for a run."""
        for language in get_args(Language):
            tokens = tokens_of(self.instructions(language, "prompt"))
            if 2 * tokens > self._max_tokens:
                raise ConfigurationError(
                    f"instructions and tools alone take {tokens} of the {self._max_tokens} tokens that "
                    "a prompt may have: raise FOLLOWUP_MAX_PROMPT_TOKENS, or register fewer tools"
                )
        return self

    def hash(self, language: Language, method: OutputMethod) -> str:
        """The first 12 hex digits of SHA-256 over the static part: which prompt it was."""
        return self._static_part(language, method)[2]

    def _static_part(
        self, language: Language, method: OutputMethod
    ) -> tuple[SystemMessage, int, str]:
        kind: OutputMethod = "function_calling" if method == "function_calling" else "prompt"
        key = (language, kind)
        if key not in self._static:
            text = self.instructions(language, kind)
            digest = hashlib.sha256(text.encode()).hexdigest()[:12]
            self._static[key] = (SystemMessage(text), tokens_of(text), digest)
        return self._static[key]

    def instructions(self, language: Language, method: OutputMethod) -> str:
        """The static part, as text."""
        sources = [name for name in SOURCES if self._forms.registry.get(name)]
        reply = "reply_call" if method == "function_calling" else "reply_text"
        return fill(
            "planner",
            language,
            sources=", ".join(sources),
            forms=self._forms.described,
            reply=fill(reply, language, examples=_examples(language, method)),
        )

    def make(
        self,
        state: AgentState,
        method: OutputMethod,
        *,
        offer: Offer | None = None,
        why_not: str | None = None,
    ) -> Prompt:
        """The prompt of this round.

        `offer` names what may be chosen (narrow guidance); `why_not` says why the last decision
        could not be used. Both stand at the very end, where they disturb no prefix.
        """
        language = state["language"]
        system, static_tokens, _ = self._static_part(language, method)
        goals = self._goals(state)
        opening = HumanMessage(self._goal_text(state, goals[0]))
        tokens = static_tokens + tokens_of(str(opening.content))
        rounds = [*self._rounds(state, method, goals)]
        folded, kept, used = self._folded(rounds, state, self._max_tokens - tokens)
        if folded:
            opening = HumanMessage(f"{opening.content}\n\n{folded}")
        messages = [system, opening, *(m for one in kept for m in one.messages)]
        tail = []
        if goals[-1] != state["parsed_goal"]:  # a fork has changed it
            tail.append(self._goal_text(state, state["parsed_goal"]))
        if why_not is not None:
            tail.append(fill("last_failure", language, why=why_not))
        if offer is not None:
            tail.append(fill("narrow", language, offer=", ".join(sorted(offer))))
        if tail:
            last = messages[-1]
            text = "\n\n".join([str(last.content), *tail])
            messages[-1] = last.model_copy(update={"content": text})
        return Prompt(messages, tokens + used + sum(map(tokens_of, tail)))

    def repair(self, prompt: Prompt, reply: str, language: Language, why: str) -> Prompt:
        """The prompt with the unusable reply and what was wrong with it, as data."""
        said = _cut(reply.strip(), language, 600) or "…"
        return prompt.and_then(
            AIMessage(said), HumanMessage(fill("repair", language, why=escape(why, quote=False)))
        )

    def too_early(
        self,
        prompt: Prompt,
        method: OutputMethod,
        decision: Decision,
        language: Language,
        missing: Sequence[str],
    ) -> Prompt:
        """The prompt with a finish that came too early, and what is missing."""
        text = fill("too_early", language, missing=", ".join(missing))
        return prompt.and_then(*_pair(decision, text, method, "early"))

    # --- the goal ---

    def _goals(self, state: AgentState) -> list[Goal]:
        """The goal as it was read at first, and after each answer: as it stood in each round."""
        as_of = datetime.fromisoformat(state["as_of"])
        goals = [read_goal(state["user_goal"], self._ids, as_of, self._zone)]
        for one in state["answers"]:
            goals.append(read_answer(goals[-1], one["answer"], self._ids, as_of, self._zone))
        return goals

    def _goal_text(self, state: AgentState, goal: Goal) -> str:
        language = state["language"]
        now = datetime.fromisoformat(state["as_of"]).astimezone(self._zone)
        return fill(
            "goal",
            language,
            goal=state["user_goal"],
            subjects=_subjects(goal, language),
            kind=_say(language, goal["kind"]),
            window=_window(goal, language),
            task=_say(language, goal["task"]),
            now=now.strftime("%Y-%m-%d %H:%M"),
            zone=str(self._zone),
            max_steps=state["max_steps"],
        )

    # --- the rounds ---

    def _rounds(
        self, state: AgentState, method: OutputMethod, goals: Sequence[Goal]
    ) -> Iterator[_Round]:
        language = state["language"]
        answers = {one["step"]: number for number, one in enumerate(state["answers"])}
        for one in state["rounds"]:
            step, decision = one["step"], one["decision"]
            calls = [call for call in state["tool_history"] if call["step"] == step]
            if calls:
                room = MAX_ROUND_TOKENS // len(calls)
                results = "\n".join(self._result(call, state, room) for call in calls)
                text = fill(
                    "result", language, step=step, max_steps=state["max_steps"], results=results
                )
            elif step in answers:
                number = answers[step]
                goal = goals[number + 1]
                text = fill(
                    "answer",
                    language,
                    answer=state["answers"][number]["answer"],
                    subjects=_subjects(goal, language),
                    window=_window(goal, language),
                )
            else:  # nothing came of it: a finish that is being judged, a write that was forked away
                continue
            pair = _pair(decision, text, method, f"call_{step}")
            echo = json.dumps(decision, ensure_ascii=False)
            yield _Round(pair, calls, tokens_of(echo) + tokens_of(text))

    def _result(self, call: ToolCallRecord, state: AgentState, room: int) -> str:
        """What one call came to, framed, in so many tokens. Nothing in it can end the frame."""
        language, own = state["language"], call["call_id"]
        lines = [call["result_summary"]]
        if call["success"]:
            found = [item for item in state["evidence"] if item["call_id"] == own]
            # Not the facts: a later call may replace some, and what was sent may not change.
            lines = [f"[{item['id']}] {item['summary']}" for item in found] or lines
        text = _fit(escape("\n".join(lines), quote=False), language, room)
        for quote in state["quotes"]:
            left = room - tokens_of(text)
            if quote["call_id"] == own and left > 0:
                words = _fit(escape(quote["text"], quote=False), language, left)
                text += f"\n<customer_text>{words}</customer_text>"
        why = f" {call['failure_kind']}" if call["failure_kind"] else ""
        # The name may be one that a model made up.
        name = re.sub(r"[^A-Za-z0-9_]", "_", call["tool_name"])[:64]
        head = f'<tool_result call="{own}" tool="{name}" outcome="{call["outcome"]}{why}">'
        return f"{head}\n{text}\n</tool_result>"

    def _folded(
        self, rounds: Sequence[_Round], state: AgentState, room: int
    ) -> tuple[str, list[_Round], int]:
        """The oldest rounds as their facts, the others whole, and the tokens of both.

        Goes through the rounds as they came, so that it is the same in every later round: when they
        pass the room, the older ones are folded until half of it is free again.
        """
        folded: list[ToolCallRecord] = []
        kept: list[_Round] = []
        for one in rounds:
            kept.append(one)
            text = self._fold_text(folded, state, room // 4)
            used = tokens_of(text) + sum(r.tokens for r in kept)
            if used <= room:
                continue
            while len(kept) > 1 and used > room // 2:
                folded += kept.pop(0).calls
                text = self._fold_text(folded, state, room // 4)
                used = tokens_of(text) + sum(r.tokens for r in kept)
        text = self._fold_text(folded, state, room // 4)
        return text, kept, tokens_of(text) + sum(r.tokens for r in kept)

    def _fold_text(self, calls: Sequence[ToolCallRecord], state: AgentState, room: int) -> str:
        """Calls as one line of facts each, the newest that fit."""
        if not calls:
            return ""
        language, lines, used = state["language"], list[str](), 0
        for call in reversed(calls):
            facts = ", ".join(f"{key}={value}" for key, value in _facts(call, state).items())
            name = re.sub(r"[^A-Za-z0-9_]", "_", call["tool_name"])[:64]
            line = escape(
                _cut(f"{call['call_id']} {name}: {call['outcome']}; {facts}", language, 600),
                quote=False,
            )
            used += tokens_of(line)
            if used > room:
                break
            lines.append(line)
        if left := len(calls) - len(lines):
            lines.append(_say(language, "forgotten", count=left))
        inner = "\n".join(reversed(lines))
        return f"{_say(language, 'folded')}\n<tool_result>\n{inner}\n</tool_result>"


def _pair(decision: Decision, text: str, method: OutputMethod, call_id: str) -> list[BaseMessage]:
    """A decision and what came of it, as the output method has them."""
    if method != "function_calling":
        echo = json.dumps({"decision": decision}, ensure_ascii=False)
        return [AIMessage(echo), HumanMessage(text)]
    name, args = _as_call(decision)
    call = {"name": name, "args": args, "id": call_id, "type": "tool_call"}
    return [AIMessage("", tool_calls=[call]), ToolMessage(text, tool_call_id=call_id)]


def _as_call(decision: Decision) -> tuple[str, dict[str, Any]]:
    """The function call that a decision is."""
    if decision["type"] != "tool":
        return decision["type"], {k: v for k, v in decision.items() if k != "type"}
    extra = {"reason": decision["reason"], "expected_outcome": decision["expected_outcome"]}
    return decision["tool_name"], {**extra, **decision["args"]}


def _examples(language: Language, method: OutputMethod) -> str:
    """A few decisions as they should be, none with an id that could be a customer's."""
    zh = language == "zh"
    decisions: list[dict[str, Any]] = [
        {
            "type": "tool",
            "tool_name": "get_open_tickets",
            "args": {"user_id": PLACEHOLDER},
            "reason": "还没有查工单" if zh else "Tickets have not been looked at",
            "expected_outcome": "未关闭工单的数量" if zh else "The number of open tickets",
        },
        {
            "type": "tool",
            "tool_name": "get_user_activity",
            "args": {"user_id": PLACEHOLDER, "days": 7, "until": None},
            "reason": "还没有查活跃情况" if zh else "Activity has not been looked at",
            "expected_outcome": "活跃天数" if zh else "Active days",
        },
        {
            "type": "ask_user",
            "question": "请问是哪位客户？" if zh else "Which customer is this about?",
            "reason": "目标里没有客户编号" if zh else "The goal names no customer",
        },
        {
            "type": "finish",
            "answer_draft": "三个来源都已查到，证据见上。" if zh else "All sources have answered.",
            "reason": "证据已齐" if zh else "The evidence is complete",
        },
    ]
    if method != "function_calling":
        return "\n".join(json.dumps({"decision": d}, ensure_ascii=False) for d in decisions)
    calls = [_as_call(decision) for decision in decisions]  # type: ignore[arg-type] # Decisions
    return "\n".join(f"{name}({json.dumps(args, ensure_ascii=False)})" for name, args in calls)


def _facts(call: ToolCallRecord, state: AgentState) -> dict[str, Any]:
    """The facts that hold by this call."""
    return {
        key: fact["value"]
        for own in state["facts"].values()
        for key, fact in own.items()
        if fact["call_id"] == call["call_id"]
    }


def _say(language: Language, key: str, **values: object) -> str:
    return _WORDS[key][0 if language == "zh" else 1].format(**values)


def _cut(text: str, language: Language, limit: int) -> str:
    over = len(text) - limit
    return text if over <= 0 else text[:limit] + _say(language, "left_out", count=over)


def _fit(text: str, language: Language, tokens: int) -> str:
    """The text in so many tokens; the cut is marked."""
    raw = text.encode()
    if len(raw) <= 3 * tokens:
        return text
    kept = raw[: 3 * tokens].decode("utf-8", "ignore")
    return kept + _say(language, "left_out", count=len(text) - len(kept))


def _subjects(goal: Goal, language: Language) -> str:
    return ", ".join(goal["subjects"]) or _say(language, "no_subject")


def _window(goal: Goal, language: Language) -> str:
    window = goal["window"]
    if not 1 <= window["days"] <= MAX_DAYS:
        return _say(language, "no_window")
    key = "window_until" if window["until"] else "window"
    return _say(language, key, days=window["days"], until=window["until"])
