"""Whatever a model replies is exactly one decision, or one named fault."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from followup_agent.planners.forms import Forms
from followup_agent.planners.reading import FAULTS, Call, Misread, Reply, read_reply
from followup_agent.state import Decision
from followup_agent.tools import BUILT_IN
from followup_agent.tools.registry import ToolRegistry

DECISION: TypeAdapter[Decision] = TypeAdapter(Decision)
TOOL = {
    "type": "tool",
    "tool_name": "get_user_activity",
    "args": {"user_id": "user_123", "days": 7},
    "reason": "还没有查活跃情况",
    "expected_outcome": "活跃天数",
}
ASK = {"type": "ask_user", "question": "哪位客户？", "reason": "没有编号"}
FINISH = {"type": "finish", "answer_draft": "", "reason": "enough"}
SEND = {
    "type": "tool",
    "tool_name": "send_followup_task",
    "args": {"user_id": "user_123", "reason": "urgent", "priority": "high", "due_in_days": 1},
    "reason": "asked for",
    "expected_outcome": "a task",
}
TEXT = json.dumps(TOOL, ensure_ascii=False)


def text(value: Any) -> str:
    """JSON as a model writes it."""
    return json.dumps(value, ensure_ascii=False)


def read(content: Any, forms: Forms, **more: Any) -> Decision:
    """The decision in a reply of the text methods."""
    return read_reply(Reply(content=content, **more), "json_schema", forms)


def fault(content: Any, forms: Forms, **more: Any) -> Misread:
    """What is wrong with a reply of the text methods."""
    with pytest.raises(Misread) as caught:
        read(content, forms, **more)
    return caught.value


def args(**changes: Any) -> str:
    """A call of `get_user_activity` with these arguments beside the right ones."""
    return text({**TOOL, "args": {**TOOL["args"], **changes}})  # type: ignore[dict-item]


@pytest.mark.parametrize("decision", [TOOL, ASK, FINISH, SEND])
@pytest.mark.parametrize(
    "wrapped",
    [
        text,
        lambda d: text({"decision": d}),
        lambda d: f"  \n{text(d)}\n ",
        lambda d: f"```json\n{text(d)}\n```",
        lambda d: f"```\n{text(d)}\n```",
        lambda d: f"```JSON\r\n{text(d)}\r\n```\n",
        lambda d: text(text(d)),
        lambda d: text({"decision": text(d)}),
        lambda d: f"<think>perhaps {{}} or ```\n```</think>\n\n{text(d)}",
        lambda d: f"<think></think>```json\n{text(d)}\n```",
        lambda d: json.dumps(d),
        lambda d: json.dumps(d, indent=2),
    ],
)
def test_an_object_is_read_in_each_wrapping_that_is_taken(
    decision: Any, wrapped: Any, forms: Forms
) -> None:
    assert read(wrapped(decision), forms) == decision


def test_content_in_parts_is_one_text(forms: Forms) -> None:
    parts = [{"type": "text", "text": TEXT[:20]}, {"type": "text", "text": TEXT[20:]}]
    assert read(parts, forms) == TOOL


def test_backticks_in_a_reason_survive(forms: Forms) -> None:
    decision = {**TOOL, "reason": "see ```code``` here"}
    assert read(text(decision), forms) == decision
    assert read(f"```json\n{text(decision)}\n```", forms) == decision


def test_a_note_that_looks_like_json_reaches_the_tool_as_text(forms: Forms) -> None:
    """B69."""
    decision = {**SEND, "args": {**SEND["args"], "note": '{"a":1}'}}  # type: ignore[dict-item]
    assert read(text(decision), forms) == decision


def test_arguments_encoded_twice_are_decoded_once(forms: Forms) -> None:
    """B69."""
    assert read(text({**TOOL, "args": text(TOOL["args"])}), forms) == TOOL
    twice = text(text({**TOOL, "args": text(TOOL["args"])}))
    assert read(twice, forms) == TOOL  # each of the two once


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ("", "empty"),
        ("   \n", "empty"),
        (None, "empty"),
        ([], "empty"),
        ("我认为应该跟进", "prose"),
        (f"Here you are: {TEXT}", "prose"),
        (f"{TEXT} — done", "prose"),
        (f"```python\n{TEXT}\n```", "prose"),
        (f"```json5\n{TEXT}\n```", "prose"),
        (f"```json\n{TEXT}\n``` as asked", "prose"),
        (f"as asked ```json\n{TEXT}\n```", "prose"),
        ("42", "prose"),
        ("true", "prose"),
        ('"finish"', "prose"),
        (f"```json\n{TEXT}", "cut_off"),
        (f"<think>hm {TEXT}", "cut_off"),
        (TEXT[:-1], "cut_off"),
        (TEXT[:40], "cut_off"),
        ('{"decision":{"type":"tool","tool_name":"send_followup_task","reason":"r","args":{"user_id":"user_12', "cut_off"),
        ('{"type": "finish", "reason": "r", "answer_draft": "a \\u12', "cut_off"),
        ("{'type': 'finish'}", "invalid_json"),
        ('{"type": "finish",}', "invalid_json"),
        ("[" * 50_000, "invalid_json"),
        (f"{TEXT}\n{TEXT}", "several_decisions"),
        (f"[{TEXT}]", "several_decisions"),
        ('{"type": "finish", "type": "tool", "reason": "r", "answer_draft": ""}', "duplicate_keys"),
        (TEXT.replace('"days": 7', '"days": 7, "days": 30'), "duplicate_keys"),
        (text({**FINISH, "confidence": 1}), "extra_keys"),
        (text({"decision": FINISH, "thought": "x"}), "not_a_decision"),
        (text({**TOOL, "toolName": "get_user_activity"}), "extra_keys"),
        (args(limit=3), "extra_keys"),
        (args(limit=None), "extra_keys"),
        (text({"type": "plan"}), "not_a_decision"),
        (text({"type": ["tool"]}), "not_a_decision"),
        (text({k: v for k, v in TOOL.items() if k != "reason"}), "not_a_decision"),
        (text({k: v for k, v in TOOL.items() if k != "args"}), "not_a_decision"),
        (text({**TOOL, "args": [1]}), "not_a_decision"),
        (text({**FINISH, "reason": "   "}), "not_a_decision"),
        (text({**ASK, "question": "x" * 5000}), "not_a_decision"),
        (text({**TOOL, "tool_name": "query_db"}), "unknown_tool"),
        (text({**TOOL, "tool_name": "get_user_order"}), "unknown_tool"),
        (text({**TOOL, "tool_name": "get_user_activity "}), "unknown_tool"),
        (text({**TOOL, "tool_name": "Get_User_Activity"}), "unknown_tool"),
        (text({**TOOL, "tool_name": "functions.get_user_activity"}), "unknown_tool"),
        (args(user_id="user 123"), "invalid_id"),
        (args(user_id="user_123; drop"), "invalid_id"),
        (args(user_id=" user_123"), "invalid_id"),
        (args(user_id=""), "invalid_id"),
        (args(user_id=123), "invalid_id"),
        (args(user_id="<id from the goal>"), "invalid_id"),
        (args(days=0), "invalid_args"),
        (args(days=-5), "invalid_args"),
        (args(days=100_000), "invalid_args"),
        (args(until="tomorrow"), "invalid_args"),
        (TEXT.replace("还没有", "\\ud800"), "bad_text"),
        (TEXT.replace("还没有", "\\u0000"), "bad_text"),
    ],
)  # fmt: skip
def test_each_unusable_reply_has_its_own_fault(content: Any, kind: str, forms: Forms) -> None:
    assert fault(content, forms).fault == kind


COERCIONS = {
    "7": 7, '"7"': 7, "7.0": 7, '"007"': 7, '"365"': 365,
    '"7.0"': None, "true": None, "7.5": None, "1e1": None, "1E1": None, "NaN": None,
    "Infinity": None, "-Infinity": None, '"１７"': None, '"七"': None, "[7]": None,
    '{"days": 7}': None, "null": None, '" 7"': None, '"+7"': None, '"1_0"': None, '""': None,
    '"last week"': None, "1" * 400: None, "1e309": None,
}  # fmt: skip
"""The table of `tools/coerce.py`: what is taken for a number of days, and what for none."""


@pytest.mark.parametrize(("written", "days"), COERCIONS.items())
def test_a_number_is_taken_by_the_written_table(
    written: str, days: int | None, forms: Forms
) -> None:
    content = TEXT.replace('"days": 7', f'"days": {written}')
    if days is None:
        assert fault(content, forms).fault == "invalid_args"
    else:
        assert read(content, forms)["args"]["days"] == days  # type: ignore[typeddict-item]


def test_the_name_of_an_unknown_tool_is_kept(forms: Forms) -> None:
    """B73: and the valid names are told."""
    misread = fault(text({**TOOL, "tool_name": "query_db"}), forms)
    assert misread.tool_name == "query_db"
    assert "get_open_tickets" in str(misread)


@pytest.mark.parametrize("content", [TEXT, TEXT[:30], "", None])
def test_what_the_server_says_of_the_reply_goes_first(content: Any, forms: Forms) -> None:
    """B49: a reply at the token limit is not read, though its JSON may be whole."""
    assert fault(content, forms, finish_reason="length").fault == "cut_off"
    assert fault(content, forms, finish_reason="content_filter").fault == "content_filter"
    assert fault(content, forms, refusal="I cannot help with that").fault == "refusal"


def test_reasoning_is_never_read_and_the_server_setting_is_named(forms: Forms) -> None:
    """B66."""
    misread = fault(None, forms, reasoning=True)
    assert misread.fault == "empty"
    assert "reasoning parser" in str(misread)


def test_null_leaves_an_optional_argument_out(forms: Forms) -> None:
    assert read(args(until=None), forms) == TOOL


# --- function calls ---


def called(name: Any, arguments: Any, forms: Forms, **more: Any) -> Decision:
    """The decision in a reply of one function call."""
    return read_reply(Reply(calls=(Call(name, arguments),), **more), "function_calling", forms)


def test_a_call_is_the_decision_of_its_name(forms: Forms) -> None:
    call = {**TOOL["args"], "reason": TOOL["reason"], "expected_outcome": TOOL["expected_outcome"]}  # type: ignore[dict-item]
    assert called("get_user_activity", text(call), forms) == TOOL
    assert called("ask_user", text({"question": "哪位客户？", "reason": "没有编号"}), forms) == ASK
    assert called("finish", text({"answer_draft": "", "reason": "enough"}), forms) == FINISH


def test_a_tools_own_reason_is_the_decisions_as_well(forms: Forms) -> None:
    call = {**SEND["args"], "expected_outcome": "a task"}  # type: ignore[dict-item]
    decision = called("send_followup_task", text(call), forms)
    assert decision == {**SEND, "reason": "urgent"}


@pytest.mark.parametrize(
    ("name", "arguments", "kind"),
    [
        ("get_user_activity", "", "empty"),
        ("get_user_activity", '{"decision":', "cut_off"),
        ("get_user_activity", None, "not_a_decision"),
        ("get_user_activity", {"user_id": "user_123"}, "not_a_decision"),
        ("get_user_activity", "```json\n{}\n```", "prose"),
        ("get_user_activity", '{"user_id": "user_123", "days": 7}', "not_a_decision"),
        ("get_user_activity", '{"user_id": "a", "user_id": "b"}', "duplicate_keys"),
        ("query_db", "{}", "unknown_tool"),
        (None, "{}", "not_a_decision"),
        (7, "{}", "not_a_decision"),
        ("finish", '{"answer_draft": "x", "reason": "r", "tool_name": "x"}', "extra_keys"),
    ],
)
def test_each_unusable_call_has_its_own_fault(
    name: Any, arguments: Any, kind: str, forms: Forms
) -> None:
    """B16: none of these is an empty result without a word, and none is a finish."""
    with pytest.raises(Misread) as caught:
        called(name, arguments, forms)
    assert caught.value.fault == kind


def test_text_in_place_of_a_call_is_not_read(forms: Forms) -> None:
    for content, kind in (
        ("我认为应该跟进", "prose"),
        (TEXT, "prose"),
        ("", "empty"),
        (None, "empty"),
    ):
        with pytest.raises(Misread) as caught:
            read_reply(Reply(content=content), "function_calling", forms)
        assert caught.value.fault == kind


def test_two_calls_at_once_are_refused(forms: Forms) -> None:
    call = Call("finish", '{"answer_draft": "", "reason": "r"}')
    with pytest.raises(Misread) as caught:
        read_reply(Reply(calls=(call, call)), "function_calling", forms)
    assert caught.value.fault == "several_decisions"


def test_a_call_where_text_is_asked_for_is_refused(forms: Forms) -> None:
    assert fault(TEXT, forms, calls=(Call("finish", "{}"),)).fault == "not_a_decision"


def test_what_is_not_open_in_the_round_is_refused(forms: Forms) -> None:
    with pytest.raises(Misread) as caught:
        read_reply(Reply(content=text(FINISH)), "prompt", forms, frozenset({"ask_user"}))
    assert caught.value.fault == "not_offered"


# --- laws ---

FORMS = Forms(ToolRegistry(BUILT_IN))
METHODS = st.sampled_from(["json_schema", "json_object", "prompt", "function_calling"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
WORDS = st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=40
).filter(lambda s: s.strip())
DECISIONS = st.one_of(
    st.builds(
        lambda user, days, reason, expected: {
            "type": "tool",
            "tool_name": "get_user_orders",
            "args": {"user_id": user, "days": days},
            "reason": reason,
            "expected_outcome": expected,
        },
        st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_\-]{0,20}", fullmatch=True),
        st.integers(1, 365),
        WORDS,
        WORDS,
    ),
    st.builds(lambda q, r: {"type": "ask_user", "question": q, "reason": r}, WORDS, WORDS),
    st.builds(lambda d, r: {"type": "finish", "answer_draft": d, "reason": r}, WORDS, WORDS),
)


def outcome(reply: Reply, method: Any) -> Decision | Misread:
    """A decision that the state would take, or a fault of the closed list; nothing else."""
    try:
        decision = read_reply(reply, method, FORMS)
    except Misread as error:
        misread = error
    else:
        DECISION.validate_python(decision)
        return decision
    assert misread.fault in FAULTS
    assert str(misread)
    return misread


@given(content=st.text() | JSON.map(json.dumps) | JSON, method=METHODS)
def test_any_reply_is_a_decision_or_a_named_fault(content: Any, method: Any) -> None:
    outcome(Reply(content=content), method)
    outcome(Reply(calls=(Call("get_user_activity", content),)), method)
    outcome(Reply(content=content, finish_reason="stop", reasoning=True), method)


@given(decision=DECISIONS, data=st.data())
def test_a_mutated_reply_is_a_decision_or_a_named_fault(decision: Any, data: st.DataObject) -> None:
    written = text(decision)
    at = data.draw(st.integers(0, len(written)))
    to = data.draw(st.integers(at, min(len(written), at + 8)))
    put = data.draw(st.text(max_size=6) | st.sampled_from(['"', "{", "}", ",", "\\", "```", "NaN"]))
    outcome(Reply(content=written[:at] + put + written[to:]), "prompt")


@settings(max_examples=60)
@given(decision=DECISIONS, data=st.data())
def test_no_beginning_of_a_reply_is_taken_for_a_whole_one(
    decision: Any, data: st.DataObject
) -> None:
    """B36: `user_12`, cut from `user_123`, is nobody."""
    written = text({"decision": decision})
    at = data.draw(st.integers(0, len(written) - 1))
    assert outcome(Reply(content=written), "prompt") == decision
    cut = outcome(Reply(content=written[:at]), "prompt")
    assert isinstance(cut, Misread)
    assert cut.fault == ("cut_off" if at else "empty")


@given(decision=DECISIONS)
def test_what_was_read_is_read_again_as_the_same(decision: Any) -> None:
    once = read_reply(Reply(content=text(decision)), "prompt", FORMS)
    assert read_reply(Reply(content=text(once)), "prompt", FORMS) == once
