"""What a tool is: one declaration, and the errors it may raise.

ToolError                     why, retryable
├── ToolUnavailable           unavailable, retryable: the backend is down or busy
├── ToolRefused               refused: the backend declined
└── CustomerNotFound          not_found: no such customer, which is not "nothing there"

DefinitionError               a tool that may not be registered, and why
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from followup_agent.tools.coerce import coerced
from followup_agent.tools.outcome import Effect, EvidenceDraft, FactDraft, FailureKind, Language

if TYPE_CHECKING:
    from followup_agent.customers.database import CustomerDatabase
    from followup_agent.tasks.system import TaskSystem


class ToolError(Exception):
    """A tool's own word for why it has no answer."""

    why: ClassVar[FailureKind] = "internal"
    retryable: ClassVar[bool] = False


class ToolUnavailable(ToolError):
    """The backend is down, busy or unreachable: a second try may help."""

    why = "unavailable"
    retryable = True


class ToolRefused(ToolError):
    """The backend declined this request: a second try would not help."""

    why = "refused"


class CustomerNotFound(ToolError):
    """The customer does not exist in the business data."""

    why = "not_found"


class DefinitionError(ValueError):
    """A tool that may not be registered; the message says what to change."""


class ToolArgs(BaseModel):
    """Base of a tool's arguments: closed, stripped of nothing, bounded by its fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ToolResult(BaseModel):
    """Base of a tool's result: closed and strict, so that a wrong type is a failure of the tool."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What the agent hands a tool beside its arguments."""

    as_of: datetime
    """Aware, UTC. Nothing later may be seen."""
    timezone: tzinfo
    """In which day windows are computed."""
    now: datetime
    """Aware, UTC: the clock, for what is written; what is read goes by `as_of`."""
    customers: "CustomerDatabase | None" = None
    thread_id: str = ""
    run_id: str = ""
    tasks: "TaskSystem | None" = None
    """Where follow-up tasks are kept."""
    idempotency_key: str | None = None
    """Set for a write: the same key for every attempt at the same action of the business."""
    mine: bool = True
    """Of a write: False when another run has carried out this very action."""
    approved_by: str | None = None
    evidence_ids: tuple[str, ...] = ()

    @property
    def database(self) -> "CustomerDatabase":
        """The customer database; ToolUnavailable when this agent has none."""
        if self.customers is None:
            raise ToolUnavailable("no customer database is connected")
        return self.customers

    @property
    def task_system(self) -> "TaskSystem":
        """Where follow-up tasks are kept; ToolUnavailable when this agent has no such place."""
        if self.tasks is None:
            raise ToolUnavailable("no task system is connected")
        return self.tasks


def _no_facts(args: Any, result: Any) -> Mapping[str, FactDraft]:
    return {}


def _no_quotes(args: Any, result: Any) -> Sequence[str]:
    return ()


def _never_empty(result: Any) -> bool:
    return False


def _plain_evidence(args: Any, result: Any, language: Language) -> Sequence[EvidenceDraft]:
    text = result.model_dump_json()
    return (EvidenceDraft(text if len(text) <= 300 else text[:299] + "…", 0.5),)


@dataclass(frozen=True, kw_only=True)
class ToolDefinition:
    """Everything the agent knows about one tool, said once.

    `run(args)` or `run(args, context)`, sync or async. A sync `run` is called in a thread of its
    own. `timeout_s` bounds one attempt; a write keeps `max_attempts=1`.

    A write is carried out once a day for a customer and what `once_per` says. With `find` it can be
    carried out again under the same key after a crash; without, an attempt whose outcome is unknown
    stops the run for a person.
    """

    name: str
    description: str
    args: type[BaseModel]
    result: type[BaseModel]
    run: Callable[..., Any | Awaitable[Any]]
    is_empty: Callable[[Any], bool] = _never_empty
    facts: Callable[[Any, Any], Mapping[str, FactDraft]] = _no_facts
    evidence: Callable[[Any, Any, Language], Sequence[EvidenceDraft]] = _plain_evidence
    quotes: Callable[[Any, Any], Sequence[str]] = _no_quotes
    """What customers wrote, of `args` and `result`: a model reads it as data that nobody vouches
    for. Never facts, never evidence; cut to ten of 800 characters."""
    effect: Effect
    once_per: Literal["arguments", "reason"] = "arguments"
    """Of a write: whether other words for the same reason are another action."""
    find: Callable[..., Any | Awaitable[Any]] | None = None
    """Of a write, `find(args, context)`: the result of the action of `context.idempotency_key` as
    it stands downstream, None when it is not there. Having it promises that downstream takes one
    effect for one key."""
    timeout_s: float = 3.0
    max_attempts: int = 2
    subject_arg: str | None = "user_id"
    """The argument that names the customer; None for a tool that concerns none."""
    schema: Mapping[str, Any] | None = field(default=None, repr=False)
    """JSON Schema of a foreign tool; ours comes from `args`."""

    @cached_property
    def input_schema(self) -> dict[str, JsonValue]:
        """The JSON Schema that a planner is shown."""
        return dict(self.schema or self.args.model_json_schema())

    @cached_property
    def takes_context(self) -> bool:
        """Whether `run` wants the `ToolContext` as its second argument."""
        positional = (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        )
        needed = [
            parameter
            for parameter in inspect.signature(self.run).parameters.values()
            if parameter.kind in positional and parameter.default is inspect.Parameter.empty
        ]
        return len(needed) > 1

    @cached_property
    def is_async(self) -> bool:
        """Whether `run` is a coroutine function; a sync one gets a thread of its own."""
        return inspect.iscoroutinefunction(self.run)

    def parse_args(self, raw: Mapping[str, Any]) -> BaseModel:
        """Validate raw arguments; ValidationError when they do not fit.

        Which forms are taken for which type is one table, in `tools/coerce.py`.
        """
        args, wrong = coerced(raw, self.input_schema)
        if wrong:
            raise ValidationError.from_exception_data(
                self.name,
                [
                    InitErrorDetails(
                        type=PydanticCustomError(
                            "wrong_form", "must be {wanted}", {"wanted": w.wanted}
                        ),
                        loc=w.loc,
                        input=w.value,
                    )
                    for w in wrong
                ],
            )
        return self.args.model_validate(args)

    def canonical_args(self, args: BaseModel) -> dict[str, JsonValue]:
        """The one JSON form of these arguments: what is compared, shown, approved and stored.

        `{"days": 7}` and `{"days": "7"}` come to the same.
        """
        plain: dict[str, JsonValue] = args.model_dump(mode="json", exclude_none=True)
        return plain

    def subject_of(self, args: Mapping[str, Any]) -> str | None:
        """The customer these arguments are about."""
        subject = args.get(self.subject_arg) if self.subject_arg else None
        return subject if isinstance(subject, str) else None


# --- what may be registered ---

VERBS = frozenset(
    [
        "add",
        "analyze",
        "assign",
        "calculate",
        "cancel",
        "check",
        "close",
        "compare",
        "compute",
        "convert",
        "count",
        "create",
        "delete",
        "describe",
        "detect",
        "draft",
        "estimate",
        "export",
        "extract",
        "fetch",
        "find",
        "forecast",
        "get",
        "import",
        "inspect",
        "list",
        "load",
        "lookup",
        "mark",
        "measure",
        "notify",
        "open",
        "predict",
        "read",
        "record",
        "remove",
        "rename",
        "reopen",
        "schedule",
        "score",
        "search",
        "send",
        "set",
        "show",
        "sort",
        "start",
        "stop",
        "submit",
        "summarize",
        "translate",
        "update",
        "validate",
        "verify",
        "write",
    ]
)
"""First words of a tool name. `query`, `call`, `do`, `run` and `execute` are left out on purpose:
they say nothing of the object (seed document, section 5)."""


def check_definition(tool: ToolDefinition) -> None:
    """Raise DefinitionError for a tool a planner could not choose well."""
    words = tool.name.split("_")
    if not re.fullmatch(r"[a-z]+(_[a-z0-9]+)+", tool.name) or words[0] not in VERBS:
        raise DefinitionError(
            f"tool {tool.name!r}: name it verb_object in snake_case, such as get_user_activity; "
            "the first word must be a verb that says what is done (not query, call, do or run)"
        )
    if len(tool.description.strip()) < 10:
        raise DefinitionError(f"tool {tool.name!r}: describe in a sentence what it returns or does")
    if tool.effect not in get_args(Effect):
        raise DefinitionError(
            f"tool {tool.name!r}: effect is {tool.effect!r}; it must be 'read' or 'write'"
        )
    if tool.timeout_s <= 0 or tool.max_attempts < 1:
        raise DefinitionError(f"tool {tool.name!r}: timeout_s and max_attempts must be positive")
    if tool.effect == "write" and tool.max_attempts != 1:
        raise DefinitionError(
            f"tool {tool.name!r}: a write keeps max_attempts=1; "
            "an attempt without an answer may have happened"
        )
    if tool.effect == "read" and tool.find is not None:
        raise DefinitionError(f"tool {tool.name!r}: only a write has `find`")
    for problem in _vague(tool.input_schema, tool.input_schema.get("$defs")):
        raise DefinitionError(f"tool {tool.name!r}: {problem}")
    properties = tool.input_schema.get("properties")
    if tool.subject_arg and isinstance(properties, dict) and tool.subject_arg not in properties:
        raise DefinitionError(
            f"tool {tool.name!r}: no argument {tool.subject_arg!r} names the customer; "
            "set subject_arg to the one that does, or to None"
        )


MAX_DEPTH = 8
"""Levels of objects in objects: what a strict server, and a planner, can still follow."""


def _vague(schema: Any, defs: Any, path: str = "", depth: int = 0) -> Iterator[str]:
    """Yield what is vague in an argument schema: open objects, parameters without description."""
    if not isinstance(schema, Mapping):
        return
    if depth > 3 * MAX_DEPTH:  # each level may be a reference and an alternative as well
        yield f"{path.split('.')[0]} refers to itself, or is nested deeper than {MAX_DEPTH}"
        return
    depth += 1
    if reference := schema.get("$ref"):
        yield from _vague((defs or {}).get(str(reference).rsplit("/", 1)[-1]), defs, path, depth)
    properties = schema.get("properties")
    is_object = schema.get("type") == "object" or properties is not None
    if is_object and (schema.get("additionalProperties") is not False or properties is None):
        yield f"{path or 'its arguments'}: an open object; declare each field and forbid others"
    for name, inner in (properties or {}).items():
        where = f"{path}.{name}" if path else f"parameter {name!r}"
        if not str(inner.get("description", "")).strip():
            yield f"{where} has no description"
        if not inner.keys() & {"type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const"}:
            yield f"{where} has no type"
        yield from _vague(inner, defs, where, depth)
    for key in ("anyOf", "oneOf", "allOf"):
        for inner in schema.get(key, ()):
            yield from _vague(inner, defs, path, depth)
    yield from _vague(schema.get("items"), defs, path, depth)


def explain(error: ValidationError) -> str:
    """One line that names each wrong field and why, in the order of the fields."""
    return "; ".join(
        f"{'.'.join(str(part) for part in problem['loc']) or 'arguments'}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_input=False, include_context=False)
    )
