"""One table says which written forms are taken for which type; for every tool, whoever calls it."""

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, ValidationError

from followup_agent.tools import BUILT_IN
from followup_agent.tools.coerce import coerced
from followup_agent.tools.definition import ToolArgs, ToolDefinition, ToolResult


class Inner(BaseModel):
    """A part."""

    count: int = Field(description="c")


class Args(ToolArgs):
    """Every type."""

    whole: int = Field(0, description="w")
    number: float = Field(0.0, description="n")
    flag: bool = Field(False, description="f")
    text: str = Field("", description="t")
    maybe: int | None = Field(None, description="m")
    either: int | str = Field(0, description="e")
    many: list[int] = Field([], description="l")
    part: Inner | None = Field(None, description="p")
    level: Literal["low", "high"] = Field("low", description="v")


class Result(ToolResult):
    """Nothing."""


TOOL = ToolDefinition(
    name="get_every_type",
    description="Take every type of argument.",
    args=Args,
    result=Result,
    run=lambda args: {},
    effect="read",
    subject_arg=None,
)


def taken(**raw: Any) -> Any:
    """The one argument as it is taken; the ValidationError's first place when it is not."""
    (name,) = raw
    try:
        return getattr(TOOL.parse_args(raw), name)
    except ValidationError as error:
        return ("refused", error.errors()[0]["loc"])


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ({"whole": 7}, 7), ({"whole": 7.0}, 7), ({"whole": "7"}, 7), ({"whole": "-7"}, -7),
        ({"number": 7}, 7.0), ({"number": 7.5}, 7.5), ({"number": "7"}, 7.0),
        ({"flag": True}, True), ({"text": "7"}, "7"), ({"maybe": None}, None), ({"maybe": "7"}, 7),
        ({"either": "7"}, "7"), ({"either": 7}, 7),
        ({"many": ["1", 2, 3.0]}, [1, 2, 3]), ({"part": {"count": "3"}}, Inner(count=3)),
        ({"level": "high"}, "high"),
    ],
)  # fmt: skip
def test_the_forms_of_the_table_are_taken(raw: dict[str, Any], value: Any) -> None:
    assert taken(**raw) == value


@pytest.mark.parametrize(
    ("raw", "where"),
    [
        ({"whole": True}, ("whole",)), ({"whole": 7.5}, ("whole",)), ({"whole": "7.0"}, ("whole",)),
        ({"whole": " 7"}, ("whole",)), ({"whole": "+7"}, ("whole",)), ({"whole": "１７"}, ("whole",)),
        ({"whole": [7]}, ("whole",)), ({"whole": None}, ("whole",)), ({"whole": b"7"}, ("whole",)),
        ({"whole": float("nan")}, ("whole",)), ({"whole": "9" * 16}, ("whole",)),
        ({"number": True}, ("number",)), ({"number": "7.5"}, ("number",)), ({"number": [1]}, ("number",)),
        ({"flag": 1}, ("flag",)), ({"flag": "true"}, ("flag",)), ({"flag": None}, ("flag",)),
        ({"text": 7}, ("text",)), ({"text": True}, ("text",)), ({"text": ["x"]}, ("text",)),
        ({"either": True}, ("either",)),
        ({"many": "1"}, ("many",)), ({"many": [1, "x"]}, ("many", 1)), ({"many": [[1]]}, ("many", 0)),
        ({"part": {"count": "x"}}, ("part", "count")), ({"part": "x"}, ("part",)),
        ({"level": "HIGH"}, ("level",)), ({"level": 1}, ("level",)),
    ],
)  # fmt: skip
def test_every_other_form_is_refused_where_it_stands(raw: dict[str, Any], where: Any) -> None:
    """B18."""
    assert taken(**raw) == ("refused", where)


def test_a_due_date_is_no_boolean_and_no_decimal_text() -> None:
    send = next(tool for tool in BUILT_IN if tool.effect == "write")
    args = {"user_id": "user_123", "reason": "r", "priority": "high"}
    assert send.canonical_args(send.parse_args({**args, "due_in_days": "3"}))["due_in_days"] == 3
    for wrong in (True, "3.0", "３", [3], None):
        with pytest.raises(ValidationError, match="due_in_days"):
            send.parse_args({**args, "due_in_days": wrong})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(raw=st.dictionaries(st.sampled_from([*Args.model_fields, "other"]), JSON))
def test_any_arguments_are_taken_or_refused_and_taking_them_again_changes_nothing(
    raw: dict[str, Any],
) -> None:
    try:
        args = TOOL.parse_args(raw)
    except ValidationError:
        return
    once = TOOL.canonical_args(args)
    assert TOOL.canonical_args(TOOL.parse_args(once)) == once
    again, wrong = coerced(once, TOOL.input_schema)
    assert again == once
    assert not wrong
