"""What a model may reply, as schemas: held against the rules of strict servers, walked whole."""

import json
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from followup_agent.planners.forms import KEPT_REQUESTS, Forms
from followup_agent.service.errors import ConfigurationError
from followup_agent.testing.strict_schema import problems, request_problems
from followup_agent.tools import BUILT_IN
from followup_agent.tools.definition import (
    DefinitionError,
    ToolArgs,
    ToolDefinition,
    ToolResult,
)
from followup_agent.tools.registry import ToolRegistry


class Result(ToolResult):
    """Nothing."""


class Period(BaseModel):
    """A part of the arguments."""

    model_config = {"extra": "forbid", "regex_engine": "python-re"}

    start: str = Field(description="First day.", pattern=r"^(?=2)[0-9-]+$", min_length=10)
    end: str | None = Field(None, description="Last day.")


class Everything(ToolArgs):
    """Every kind of argument that a tool may have."""

    user_id: str = Field(description="Whose.", min_length=1, max_length=64)
    limit: int = Field(10, ge=1, le=50, description="How many.")
    level: Literal["low", "high"] = Field("low", description="How urgent.")
    words: list[str] = Field([], max_length=5, description="Words.")
    period: Period | None = Field(None, description="When.")
    either: int | str = Field(description="Number or name.")
    share: float = Field(0.5, ge=0, le=1, description="Share.")
    sure: bool = Field(description="Whether.")


EVERYTHING = ToolDefinition(
    name="get_everything",
    description="Take every kind of argument.",
    args=Everything,
    result=Result,
    run=lambda args: {},
    effect="read",
)


def walk(schema: Any, path: str = "$") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema in a schema."""
    if isinstance(schema, dict):
        yield path, schema
        for key, inner in schema.items():
            yield from walk(inner, f"{path}.{key}")
    elif isinstance(schema, list):
        for number, inner in enumerate(schema):
            yield from walk(inner, f"{path}[{number}]")


@pytest.fixture(scope="module")
def wide() -> Forms:
    """The forms with a tool that has every kind of argument."""
    return Forms(ToolRegistry([*BUILT_IN, EVERYTHING]))


MESSAGES = [{"role": "system", "content": "reply with JSON"}, {"role": "user", "content": "x"}]


@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_object", "prompt"])
@pytest.mark.parametrize("subject", [None, "user_123"])
def test_what_is_sent_passes_the_strict_rules(
    method: Any, subject: str | None, wide: Forms
) -> None:
    """B17, B29: by each method, whole and narrowed."""
    offers = [None, wide.all, frozenset({"get_everything", "finish"}), frozenset({"ask_user"})]
    for offer in offers:
        body = {"messages": MESSAGES, **wide.request(method, offer, subject)}
        assert request_problems(body) == []


def test_the_schema_is_one_closed_object_without_a_union_at_the_top(wide: Forms) -> None:
    schema = wide.schema(wide.all)
    assert problems(schema) == []
    assert schema["type"] == "object"
    assert "$ref" not in json.dumps(schema)
    for path, part in walk(schema):
        assert not part.keys() & {"oneOf", "discriminator", "allOf", "default", "title"}, path
        if part.get("type") == "object":
            assert part["additionalProperties"] is False, path
            assert part["required"] == list(part["properties"]), path


def test_there_is_one_form_a_tool_and_two_more(forms: Forms) -> None:
    decisions = forms.schema(forms.all)["properties"]["decision"]["anyOf"]
    named = [
        form["properties"].get("tool_name", form["properties"]["type"])["enum"][0]
        for form in decisions
    ]
    assert named == [*forms.registry.names(), "ask_user", "finish"]
    functions = forms.request("function_calling")
    assert [tool["function"]["name"] for tool in functions["tools"]] == named
    assert functions["tool_choice"] == "required"
    assert functions["parallel_tool_calls"] is False


def test_what_is_optional_becomes_nullable_and_what_is_bounded_stays_so(wide: Forms) -> None:
    args = next(
        form["properties"]["args"]["properties"]
        for form in wide.schema(wide.all)["properties"]["decision"]["anyOf"]
        if form["properties"].get("tool_name", {}).get("enum") == ["get_everything"]
    )
    assert args["limit"]["anyOf"][0] == {"minimum": 1, "maximum": 50, "type": "integer"}
    assert args["limit"]["anyOf"][1] == {"type": "null"}
    assert args["limit"]["description"] == "How many."
    assert args["user_id"] == {"description": "Whose.", "type": "string"}
    period = args["period"]["anyOf"][0]
    assert "pattern" not in period["properties"]["start"]  # a lookaround: strict servers refuse it
    assert period["required"] == ["start", "end"]


def test_a_request_is_made_once(forms: Forms) -> None:
    first = forms.request("json_schema")
    assert forms.request("json_schema") is first
    narrowed = forms.request("json_schema", frozenset({"finish"}), "user_1")
    assert forms.request("json_schema", frozenset({"finish"}), "user_1") is narrowed
    for number in range(2 * KEPT_REQUESTS):
        forms.request("prompt", frozenset({"finish"}), f"user_{number}")
    assert forms._made.cache_info().currsize <= KEPT_REQUESTS


def test_a_narrow_form_takes_the_one_customer_only(forms: Forms) -> None:
    schema = forms.schema(frozenset({"get_open_tickets"}), "user_9")
    (form,) = schema["properties"]["decision"]["anyOf"]
    assert form["properties"]["args"]["properties"]["user_id"] == {
        "type": "string",
        "enum": ["user_9"],
    }
    assert "user_9" not in json.dumps(forms.schema(forms.all))


class Again(BaseModel):
    """Refers to itself."""

    model_config = {"extra": "forbid"}

    inner: "Again | None" = Field(None, description="Once more.")


class Endless(ToolArgs):
    """Arguments without an end."""

    part: Again = Field(description="A part.")


class Reserved(ToolArgs):
    """An argument with a word of the decision."""

    expected_outcome: str = Field(description="x")


def named(name: str, args: type[ToolArgs]) -> ToolDefinition:
    """A tool with these arguments."""
    return ToolDefinition(
        name=name, description="Cannot be put so.", args=args, result=Result, run=lambda a: {},
        effect="read", subject_arg=None,
    )  # fmt: skip


def test_arguments_without_an_end_are_no_tools() -> None:
    with pytest.raises(DefinitionError, match=r"'get_endless': .*refers to itself"):
        ToolRegistry([named("get_endless", Endless)])


def test_an_argument_with_a_word_of_the_decision_is_refused_by_its_tools_name() -> None:
    with pytest.raises(ConfigurationError, match="'get_reserved': `expected_outcome`"):
        Forms(ToolRegistry([named("get_reserved", Reserved)]))


def test_the_walker_itself_finds_what_is_wrong() -> None:
    """Each rule has a schema that breaks it."""
    good = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert problems(good) == []
    broken: dict[str, dict[str, Any]] = {
        "top": {"anyOf": [good]},
        "additionalProperties": {**good, "additionalProperties": True},
        "required": {**good, "required": []},
        "oneOf": {**good, "properties": {"a": {"oneOf": [{"type": "string"}], "type": "string"}}},
        "no type": {**good, "properties": {"a": {"description": "x"}}},
        "maxLength": {**good, "properties": {"a": {"type": "string", "maxLength": 3}}},
        "format": {**good, "properties": {"a": {"type": "string", "format": "uri"}}},
        "lookaround": {**good, "properties": {"a": {"type": "string", "pattern": "(?=x)"}}},
        "items": {**good, "properties": {"a": {"type": "array"}}},
        "not there": {**good, "properties": {"a": {"$ref": "#/$defs/B"}}},
        "without properties": {
            **good,
            "properties": {"a": {"type": "object", "additionalProperties": False}},
        },
        "default": {**good, "properties": {"a": {"type": "string", "default": "x"}}},
    }
    for word, schema in broken.items():
        assert any(word in problem for problem in problems(schema)), word
