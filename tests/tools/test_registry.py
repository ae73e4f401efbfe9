"""What may be registered."""

from typing import Any

import pytest
from pydantic import BaseModel, Field

from followup_agent.tools import BUILT_IN
from followup_agent.tools.definition import DefinitionError, ToolArgs, ToolDefinition, ToolResult
from followup_agent.tools.registry import ToolRegistry


class Args(ToolArgs):
    """Fine."""

    user_id: str = Field(description="Whose.")


class Result(ToolResult):
    """Fine."""

    x: int


def made(**changes: Any) -> ToolDefinition:
    """A tool that is fine but for the changes."""
    values: dict[str, Any] = {
        "name": "get_user_score",
        "description": "Return the score of one customer.",
        "args": Args,
        "result": Result,
        "run": lambda args: {"x": 1},
        "effect": "read",
    }
    return ToolDefinition(**{**values, **changes})


def test_the_built_in_tools_are_fine() -> None:
    assert ToolRegistry(BUILT_IN).names() == [
        "get_user_activity",
        "get_user_orders",
        "get_open_tickets",
        "send_followup_task",
    ]
    assert ToolRegistry(BUILT_IN).names("write") == ["send_followup_task"]


def test_a_name_is_registered_once() -> None:
    registry = ToolRegistry([made()])
    with pytest.raises(DefinitionError, match="registered already"):
        registry.register(made())


@pytest.mark.parametrize(
    "name",
    [
        "activity",
        "user_activity",
        "getActivity",
        "GetUserScore",
        "query_db",
        "call_backend",
        "do_anything",
        "get",
        "get_",
        "",
    ],
)
def test_a_name_must_be_verb_and_object(name: str) -> None:
    with pytest.raises(DefinitionError, match="verb_object"):
        ToolRegistry([made(name=name)])


class NoDescription(ToolArgs):
    """A parameter without description."""

    user_id: str


class OpenMap(ToolArgs):
    """A free-form object."""

    user_id: str = Field(description="Whose.")
    filters: dict[str, Any] = Field(description="Anything.")


class OpenModel(BaseModel):
    """Takes unknown fields."""

    user_id: str = Field(description="Whose.")


class Inner(BaseModel):
    """Open as well."""

    x: int = Field(description="A number.")


class OpenInside(ToolArgs):
    """Closed outside, open inside."""

    user_id: str = Field(description="Whose.")
    inner: Inner = Field(description="Details.")


class Anything(ToolArgs):
    """A parameter of any type."""

    user_id: str = Field(description="Whose.")
    value: Any = Field(description="Anything.")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (NoDescription, "no description"),
        (OpenMap, "open object"),
        (OpenModel, "open object"),
        (OpenInside, "open object"),
        (Anything, "no type"),
    ],
)
def test_a_vague_schema_is_refused(args: type[BaseModel], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        ToolRegistry([made(args=args)])


@pytest.mark.parametrize(
    "changes",
    [
        {"effect": "Write"},
        {"effect": "rd"},
        {"timeout_s": 0},
        {"max_attempts": 0},
        {"description": "x"},
        {"subject_arg": "customer"},
    ],
)
def test_what_else_would_mislead_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        ToolRegistry([made(**changes)])


def test_no_schema_of_ours_is_open() -> None:
    """B17: every object that a model is shown is closed."""

    def walk(schema: Any) -> None:
        if isinstance(schema, dict):
            if schema.get("type") == "object":
                assert schema.get("additionalProperties") is False
            for inner in schema.values():
                walk(inner)
        elif isinstance(schema, list):
            for inner in schema:
                walk(inner)

    for tool in BUILT_IN:
        walk(tool.input_schema)


def test_what_is_no_definition_is_refused() -> None:
    with pytest.raises(DefinitionError, match="from_langchain"):
        ToolRegistry([print])  # type: ignore[list-item]
