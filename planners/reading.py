"""Read a model's reply: exactly one decision, or one named fault. Nothing is guessed or completed.

Accepted besides the plain object: a code fence around the whole reply, an object encoded twice (as
a string, once), and `<think>…</think>` before it. Text that is missing is never invented: what is
cut off is refused, though its beginning may look like a decision.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, NoReturn, get_args

from pydantic import TypeAdapter, ValidationError

from followup_agent.goals.limits import OutputMethod
from followup_agent.planners.forms import ASK, FINISH, Forms, Offer, without_nulls
from followup_agent.state import Decision
from followup_agent.tools.definition import ToolDefinition, explain

Fault = Literal[
    "empty",
    "prose",
    "cut_off",
    "invalid_json",
    "several_decisions",
    "duplicate_keys",
    "extra_keys",
    "not_a_decision",
    "unknown_tool",
    "not_offered",
    "invalid_args",
    "invalid_id",
    "bad_text",
    "refusal",
    "content_filter",
    "unreadable",
]
"""The closed list of what can be wrong with a reply."""
REFUSALS: frozenset[Fault] = frozenset({"refusal", "content_filter"})

_DECISION: TypeAdapter[Decision] = TypeAdapter(Decision)
_FENCE = re.compile(r"```[ \t]*([^\s`]*)[ \t]*\r?\n(.*?)\r?\n?[ \t]*```", re.DOTALL)
_THOUGHT = re.compile(r"\s*<think>.*?</think>\s*", re.DOTALL)
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_MAX_DIGITS = 15
"""Whole numbers up to 999,999,999,999,999: what a float holds exactly, and any argument is under."""


class Misread(Exception):
    """A reply that is no decision."""

    def __init__(self, fault: Fault, message: str, *, tool_name: str | None = None) -> None:
        """`message` says what was wrong, in words a model can go by."""
        super().__init__(message)
        self.fault: Fault = fault
        self.tool_name = tool_name


class Call(NamedTuple):
    """A function call as the server sent it."""

    name: Any
    arguments: Any
    """JSON text, unread."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's reply as the server sent it, uninterpreted."""

    content: Any = None
    """Text, or a list of parts, or nothing."""
    calls: tuple[Call, ...] = ()
    finish_reason: Any = None
    refusal: Any = None
    reasoning: bool = False
    """There is reasoning text beside the content: it is never read."""
    choices: int = 1
    """How many the server sent; one was asked for."""

    @property
    def text(self) -> str:
        """The content as text."""
        if isinstance(self.content, str):
            return self.content
        parts = self.content if isinstance(self.content, list) else []
        texts = [part.get("text") for part in parts if isinstance(part, Mapping)]
        return "".join(text for text in texts if isinstance(text, str))

    @property
    def shown(self) -> str:
        """The whole reply for the record."""
        calls = "".join(f"\n[call {call.name}] {call.arguments}" for call in self.calls)
        return f"{self.text}{calls}"


def read_reply(
    reply: Reply, method: OutputMethod, forms: Forms, offer: Offer | None = None
) -> Decision:
    """The one decision of this reply; Misread for anything else."""
    _refused(reply)
    if method == "function_calling":
        raw = _from_call(reply, forms)
    else:
        if reply.calls:
            raise Misread("not_a_decision", "reply with text, not with a function call")
        raw = _from_text(_without_thoughts(reply.text), reply)
    decision = _validated(raw, forms)
    name = decision["tool_name"] if decision["type"] == "tool" else decision["type"]
    if offer is not None and name not in offer:
        named = name if decision["type"] == "tool" else None
        allowed = ", ".join(sorted(offer))
        raise Misread(
            "not_offered", f"{name} is not open in this round; open are: {allowed}", tool_name=named
        )
    return decision


def _refused(reply: Reply) -> None:
    """Raise for what the server says of the reply itself, before looking into it."""
    if reply.choices > 1:
        raise Misread("several_decisions", f"{reply.choices} replies came: send one")
    if reply.finish_reason == "content_filter":
        raise Misread("content_filter", "the server's content filter stopped the reply")
    if isinstance(reply.refusal, str) and reply.refusal.strip():
        raise Misread("refusal", f"the model refused: {reply.refusal.strip()[:300]}")
    if reply.finish_reason == "length":
        raise Misread("cut_off", "the reply was too long and was cut off: be shorter")


# --- from the reply to one JSON object ---


def _from_call(reply: Reply, forms: Forms) -> dict[str, Any]:
    """The decision of one function call, in the form that the other methods have."""
    if not reply.calls:
        text = _without_thoughts(reply.text)
        if not text.strip():
            raise _empty(reply)
        raise Misread("prose", "call one of the functions; a reply in text is not read")
    if len(reply.calls) > 1:
        raise Misread("several_decisions", f"{len(reply.calls)} functions were called: call one")
    name, arguments = reply.calls[0]
    if not isinstance(name, str):
        raise Misread("not_a_decision", "the function call has no name")
    tool = forms.registry.get(name)
    if tool is None and name not in (ASK, FINISH):
        raise _unknown(name, forms)
    if not isinstance(arguments, str):
        raise Misread("not_a_decision", "the arguments are no JSON text", tool_name=name)
    if not arguments.strip():
        raise Misread("empty", "the function call has no arguments", tool_name=name)
    values = _object_in(arguments)
    if tool is None:
        return {"type": name, **values}
    decision: dict[str, Any] = {"type": "tool", "tool_name": name, "args": values}
    own = tool.input_schema.get("properties") or {}
    for key in ("reason", "expected_outcome"):
        if key in values:
            decision[key] = values[key]
    decision["args"] = {
        key: value
        for key, value in values.items()
        if key != "expected_outcome" and (key != "reason" or key in own)  # type: ignore[operator]
    }
    return decision


def _without_thoughts(text: str) -> str:
    match = _THOUGHT.match(text)
    text = text[match.end() :] if match else text
    if text.lstrip().startswith("<think>"):
        raise Misread("cut_off", "the reasoning does not end, so there is no decision after it")
    return text


def _from_text(text: str, reply: Reply) -> dict[str, Any]:
    text = text.strip()
    if not text:
        raise _empty(reply)
    if text.startswith("```"):
        text = _unfenced(text)
    value = _object_in(text)
    if value.keys() == {"decision"}:
        inner = value["decision"]
        once = isinstance(inner, str) and not text.startswith('"')  # never twice
        value = _object_in(inner) if once else inner
        if not isinstance(value, dict):
            raise Misread("not_a_decision", "`decision` is no object")
    return value


def _unfenced(text: str) -> str:
    """The inside of a fence around the whole of the text."""
    match = _FENCE.fullmatch(text)
    if match is None:
        if "```" not in text[3:]:
            raise Misread("cut_off", "the code fence does not end")
        raise Misread("prose", "there is text beside the code fence: send the object alone")
    if match[1].lower() not in ("", "json"):
        raise Misread("prose", f"a block of {match[1]!r} is no decision: send JSON")
    return match[2].strip()


def _object_in(text: str) -> dict[str, Any]:
    """The JSON object that is the whole text, or that a JSON string which is it holds, once."""
    value = _strict_json(text)
    if isinstance(value, str):
        value = _strict_json(value)
    if isinstance(value, list):
        raise Misread("several_decisions", "a list came: send one object")
    if not isinstance(value, dict):
        raise Misread("prose", "send one JSON object")
    return value


class _BadNumber(Exception):
    pass


def _no_float(text: str) -> float:
    if "e" in text.lower():
        raise _BadNumber(text)
    return float(text)


def _no_huge(text: str) -> int:
    if len(text.lstrip("-")) > _MAX_DIGITS:
        raise _BadNumber(text[:30])
    return int(text)


def _no_constant(text: str) -> NoReturn:
    raise _BadNumber(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [key for key, _ in pairs]
        twice = sorted({key for key in names if names.count(key) > 1})
        raise Misread("duplicate_keys", f"keys that occur twice: {', '.join(twice)}")
    return made


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique,
    parse_float=_no_float,
    parse_int=_no_huge,
    parse_constant=_no_constant,
)


def _strict_json(text: str) -> Any:
    """The JSON value that is the whole text: no duplicate keys, no NaN, no exponents, no half
    characters. Python's own reader takes all of these."""
    text = text.strip()
    if not text:
        raise Misread("empty", "the reply is empty")
    if text[0] not in '{["':
        raise Misread("prose", "send one JSON object and nothing else")
    try:
        value, end = _DECODER.raw_decode(text)
    except _BadNumber as error:
        raise Misread("invalid_args", f"the number {error} is not taken: write it out") from None
    except RecursionError:
        raise Misread("invalid_json", "nested too deeply") from None
    except json.JSONDecodeError as error:
        if _is_cut(text, error):
            raise Misread("cut_off", "the JSON does not end: send all of it") from None
        where = f"at character {error.pos + 1}"
        raise Misread("invalid_json", f"no valid JSON: {error.msg} {where}") from None
    rest = text[end:].strip()
    if rest:
        if rest[0] in "{[":
            raise Misread("several_decisions", "several objects came: send one")
        raise Misread("prose", "there is text after the object: send the object alone")
    return _readable(value)


def _is_cut(text: str, error: json.JSONDecodeError) -> bool:
    """Whether more text might have made it valid: the reader came to the end."""
    rest = text[error.pos :]
    if error.msg.startswith("Unterminated string") or not rest.strip():
        return True
    begun = any(word.startswith(rest) for word in ("true", "false", "null", "-"))
    return begun or (error.msg.startswith("Invalid \\") and len(rest) <= 6)


def _readable(value: Any) -> Any:
    """The value; Misread for text with half a character or a NUL in it, which nothing can store."""
    try:
        text = json.dumps(value, ensure_ascii=False)
        text.encode()
    except (UnicodeEncodeError, RecursionError):
        raise Misread("bad_text", "the text holds half a character") from None
    if _NUL.search(text):
        raise Misread("bad_text", "the text holds a NUL character")
    return value


# --- from the object to the decision ---

_KEYS: Mapping[str, tuple[str, ...]] = {
    "tool": ("tool_name", "args", "reason", "expected_outcome"),
    ASK: ("question", "reason"),
    FINISH: ("answer_draft", "reason"),
}


def _validated(raw: dict[str, Any], forms: Forms) -> Decision:
    kind = raw.get("type")
    if not isinstance(kind, str) or kind not in _KEYS:
        raise Misread("not_a_decision", f"`type` must be one of {', '.join(_KEYS)}")
    name = raw.get("tool_name")
    named = name if kind == "tool" and isinstance(name, str) else None
    if isinstance(raw.get("args"), str):  # encoded twice, by some servers
        raw = {**raw, "args": _object_in(raw["args"])}
    if named is not None:
        raw = {**raw, "args": _fitting_args(named, raw.get("args"), forms)}
    try:
        decision: Decision = _DECISION.validate_python(raw)
    except ValidationError as error:
        raise _explained(error, named) from None
    return decision


def _fitting_args(name: str, args: Any, forms: Forms) -> dict[str, Any]:
    """The arguments in their one canonical form; Misread when the tool would not take them."""
    tool = forms.registry.get(name)
    if tool is None:
        raise _unknown(name, forms)
    if not isinstance(args, dict):
        raise Misread("not_a_decision", "`args` must be an object", tool_name=name)
    try:
        return tool.canonical_args(tool.parse_args(without_nulls(args, tool)))
    except ValidationError as error:
        raise _explained(error, name, tool=tool) from None


def _explained(
    error: ValidationError, name: str | None, *, tool: ToolDefinition | None = None
) -> Misread:
    """The fault that a validation error is."""
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    subject = tool.subject_arg if tool else None
    fault: Fault = "invalid_args" if tool else "not_a_decision"
    if any(problem["type"] == "extra_forbidden" for problem in problems):
        fault = "extra_keys"
    elif any(subject and problem["loc"][:1] == (subject,) for problem in problems):
        fault = "invalid_id"
    return Misread(fault, explain(error), tool_name=name)


def _unknown(name: str, forms: Forms) -> Misread:
    names = ", ".join(forms.registry.names())
    return Misread(
        "unknown_tool",
        f"there is no tool {name[:100]!r}; the tools are: {names}",
        tool_name=name[:100],
    )


def _empty(reply: Reply) -> Misread:
    if reply.reasoning:
        return Misread(
            "empty",
            "the reply is empty, and there is reasoning beside it: the server puts the answer into "
            "its reasoning field (look at its reasoning parser, or switch thinking off)",
        )
    return Misread("empty", "the reply is empty")


FAULTS: tuple[Fault, ...] = get_args(Fault)
