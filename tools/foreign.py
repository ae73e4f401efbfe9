"""Register tools that exist already: LangChain's `BaseTool`, and MCP tools loaded as such.

What they lack is declared here: the effect (nothing is taken for a read), what counts as empty, and
which argument names the customer. Their answers are kept as text; they bring no facts.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, create_model

from followup_agent.tools.definition import (
    DefinitionError,
    ToolDefinition,
    ToolError,
    ToolRefused,
    ToolResult,
)
from followup_agent.tools.outcome import Effect, EvidenceDraft, Language

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

MAX_ANSWER_CHARS = 8_000
"""Kept of a foreign tool's answer; the rest is cut, and the cut is marked."""


class TextResult(ToolResult):
    """A foreign tool's answer as text."""

    text: str
    cut_chars: int = 0
    """How many characters were left out."""


class ForeignArgs(BaseModel):
    """Arguments of a tool with a JSON Schema of its own: checked against that."""

    model_config = ConfigDict(extra="allow", frozen=True)


def from_langchain(
    tool: "BaseTool",
    *,
    effect: Effect,
    name: str | None = None,
    subject_arg: str | None = None,
    timeout_s: float = 10.0,
    confidence: float = 0.5,
) -> ToolDefinition:
    """A definition that calls this LangChain or MCP tool.

    `effect` has no default: only you know whether it changes something. `name` renames it where its
    own name is not verb_object. DefinitionError when its schema is vague, as for any tool.
    """
    schema = tool.args_schema
    own_name = name or tool.name
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        closed = create_model(schema.__name__, __base__=(_Closed, schema))
        arguments: type[BaseModel] = closed
        input_schema: Mapping[str, Any] = closed.model_json_schema()
    elif isinstance(schema, Mapping):
        input_schema = {**schema, "additionalProperties": False}
        arguments = _checked_by(input_schema, own_name)
    else:
        raise DefinitionError(f"tool {tool.name!r} declares no argument schema")

    def request(args: BaseModel) -> dict[str, Any]:
        plain = args.model_dump(mode="json", exclude_unset=True, by_alias=True)
        return {"type": "tool_call", "id": "followup", "name": tool.name, "args": plain}

    async def call(args: BaseModel) -> TextResult:
        return _as_text(await tool.ainvoke(request(args)))

    def call_in_thread(args: BaseModel) -> TextResult:
        return _as_text(tool.invoke(request(args)))

    def evidence(args: Any, result: TextResult, language: Language) -> tuple[EvidenceDraft, ...]:
        words = " ".join(result.text.split())
        return (EvidenceDraft(words if len(words) <= 300 else words[:299] + "…", confidence),)

    return ToolDefinition(
        name=own_name,
        description=tool.description,
        args=arguments,
        result=TextResult,
        # A tool without a coroutine would take a thread of the event loop's own pool.
        run=call if _is_async(tool) else call_in_thread,
        is_empty=lambda result: not result.text.strip(),
        evidence=evidence,
        effect=effect,
        timeout_s=timeout_s,
        max_attempts=1 if effect == "write" else 2,
        subject_arg=subject_arg,
        schema=input_schema,
    )


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")


def _is_async(tool: "BaseTool") -> bool:
    from langchain_core.tools import BaseTool

    if hasattr(tool, "coroutine"):
        return tool.coroutine is not None
    return type(tool)._arun is not BaseTool._arun


def _checked_by(schema: Mapping[str, Any], tool_name: str) -> type[BaseModel]:
    """A model that accepts exactly what the JSON Schema does."""
    try:
        from jsonschema import Draft202012Validator
    except ImportError as error:
        raise DefinitionError(
            f"tool {tool_name!r} needs the package jsonschema: pip install 'followup-agent[mcp]'"
        ) from error
    from pydantic import model_validator

    validator = Draft202012Validator(dict(schema))

    class Checked(ForeignArgs):
        @model_validator(mode="before")
        @classmethod
        def _fits(cls, raw: Any) -> Any:
            problems = sorted(validator.iter_errors(raw), key=lambda problem: list(problem.path))
            if problems:
                raise ValueError("; ".join(problem.message for problem in problems))
            return raw

    return Checked


def _as_text(message: Any) -> TextResult:
    """A tool message's text. LangChain marks an error that a tool handled itself; it is one here."""
    text = str(message.text)
    if message.status == "error":
        raise ToolRefused(text[:500] or "the tool reported an error")
    if text in ("None", "null"):
        raise ToolError("the tool answered nothing")
    return TextResult(text=text[:MAX_ANSWER_CHARS], cut_chars=max(0, len(text) - MAX_ANSWER_CHARS))
