"""What a model may reply, as schemas: made once from the registry, for each output method.

One closed object for each tool with its own typed arguments, one to ask and one to finish:

    json_schema        one object with the key `decision`, any of these
    function_calling   one function each; exactly one must be called
    json_object        the server is asked for JSON; the forms stand in the prompt only
    prompt             nothing is asked of the server

Strict servers take no `oneOf`, no `discriminator`, no open object, no optional property and no
lengths of texts: what is optional becomes nullable, what they do not know is left out. Whatever a
server makes of a schema, the reply is read as strictly (`planners/reading.py`).
"""

import json
import re
from collections.abc import Collection, Mapping
from functools import cached_property, lru_cache
from typing import Any

from followup_agent.goals.limits import OutputMethod
from followup_agent.service.errors import ConfigurationError
from followup_agent.tools.definition import ToolDefinition
from followup_agent.tools.registry import ToolRegistry

ASK, FINISH = "ask_user", "finish"
Offer = frozenset[str]
"""The tools, `ask_user` and `finish` that may be chosen in a round."""

KEPT_REQUESTS = 256
"""Ready-made requests that are kept: one for each method, and for narrow guidance one for each
customer and stage of those under way."""

_KEPT = frozenset(
    {"type", "enum", "const", "description", "minimum", "maximum", "exclusiveMinimum"}
    | {"exclusiveMaximum", "multipleOf", "minItems", "maxItems"}
)
"""Keywords of a value that strict servers know. OpenAI's list of structured outputs."""
_FORMATS: frozenset[object] = frozenset(
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"]
)
_TEXT = {"type": "string"}
_REASON = {"type": "string", "description": "Why this is the right next step, in a sentence."}
_EXPECTED = {"type": "string", "description": "What this step is expected to bring."}
_QUESTION = {"type": "string", "description": "The question, in the language of the goal."}
_DRAFT = {"type": "string", "description": "A draft of the answer, in the language of the goal."}


class Forms:
    """The forms of one registry. Nothing in them depends on a run."""

    def __init__(self, registry: ToolRegistry) -> None:
        """Make the forms; ConfigurationError for a tool whose words are a decision's own."""
        self.registry = registry
        self.all: Offer = frozenset({*registry.names(), ASK, FINISH})
        self._args = {tool.name: closed(tool) for tool in registry}
        self._made = lru_cache(maxsize=KEPT_REQUESTS)(self._make)

    def request(
        self, method: OutputMethod, offer: Offer | None = None, subject: str | None = None
    ) -> dict[str, Any]:
        """What goes into a request beside its messages, ready-made; not to be changed.

        With an offer (narrow guidance) only that is in it, and `subject` is the one customer id
        that its tools take.
        """
        if offer is None:
            return self._made(method, self.all, None)
        return self._made(method, offer, subject)

    def _make(self, method: OutputMethod, offer: Offer, subject: str | None) -> dict[str, Any]:
        match method:
            case "json_schema":
                form = {"name": "decision", "strict": True, "schema": self.schema(offer, subject)}
                return {"response_format": {"type": "json_schema", "json_schema": form}}
            case "function_calling":
                return {
                    "tools": self.functions(offer, subject),
                    "tool_choice": "required",
                    "parallel_tool_calls": False,
                }
            case "json_object":
                return {"response_format": {"type": "json_object"}}
            case "prompt":
                return {}

    def _args_of(self, tool: ToolDefinition, subject: str | None) -> dict[str, Any]:
        """The arguments' schema; with a subject, that customer is the only one it takes."""
        args = self._args[tool.name]
        if subject is None or tool.subject_arg not in args["properties"]:
            return args
        only = {"type": "string", "enum": [subject]}
        return {**args, "properties": {**args["properties"], tool.subject_arg: only}}

    def schema(self, offer: Offer, subject: str | None = None) -> dict[str, Any]:
        """The one object of `json_schema`: `{"decision": …}`, any form on offer."""
        forms = self._decisions(offer, subject)
        return _object({"decision": {"anyOf": [form for _, form in forms]}})

    def _decisions(self, offer: Offer, subject: str | None) -> list[tuple[str, dict[str, Any]]]:
        forms = [
            (
                tool.name,
                _object(
                    {
                        "type": {"type": "string", "enum": ["tool"]},
                        "tool_name": {"type": "string", "enum": [tool.name]},
                        "args": self._args_of(tool, subject),
                        "reason": _TEXT,
                        "expected_outcome": _TEXT,
                    }
                ),
            )
            for tool in self.registry
        ]
        ask = {"type": {"type": "string", "enum": [ASK]}, "question": _TEXT, "reason": _TEXT}
        end = {"type": {"type": "string", "enum": [FINISH]}, "answer_draft": _TEXT, "reason": _TEXT}
        forms += [(ASK, _object(ask)), (FINISH, _object(end))]
        return [(name, form) for name, form in forms if name in offer]

    def functions(self, offer: Offer, subject: str | None = None) -> list[dict[str, Any]]:
        """The functions of `function_calling`.

        A tool's own argument `reason` is the decision's reason as well: it stands there once.
        """
        made = [
            _function(
                tool.name,
                tool.description,
                {"reason": _REASON, **self._args_of(tool, subject)["properties"]}
                | {"expected_outcome": _EXPECTED},
            )
            for tool in self.registry
        ]
        made += [
            _function(
                ASK,
                "Ask the user for what only the user knows.",
                {"question": _QUESTION, "reason": _REASON},
            ),
            _function(
                FINISH,
                "Finish, because the evidence is enough.",
                {"answer_draft": _DRAFT, "reason": _REASON},
            ),
        ]
        return [one for one in made if one["function"]["name"] in offer]

    @cached_property
    def described(self) -> str:
        """The forms in words and in JSON, for the prompt of every output method."""
        lines = []
        for tool in self.registry:
            args = ", ".join(
                f'"{name}": {_in_words(schema)}'
                for name, schema in self._args[tool.name]["properties"].items()
            )
            notes = [
                f"  - {name}: {schema['description']}"
                for name, schema in self._args[tool.name]["properties"].items()
                if schema.get("description")
            ]
            lines += [
                f"### {tool.name} ({tool.effect})",
                tool.description,
                f'{{"type": "tool", "tool_name": "{tool.name}", "args": {{{args}}}, '
                '"reason": "…", "expected_outcome": "…"}',
                *notes,
                "",
            ]
        return "\n".join(lines).strip()


def closed(tool: ToolDefinition) -> dict[str, Any]:
    """A tool's arguments as a strict server takes them: closed, every property required.

    ConfigurationError for an argument that is a word of the decision.
    """
    schema = tool.input_schema
    properties: Collection[str] = schema.get("properties") or ()  # type: ignore[assignment]
    if "expected_outcome" in properties or tool.name in (ASK, FINISH):
        raise ConfigurationError(
            f"tool {tool.name!r}: `expected_outcome`, `{ASK}` and `{FINISH}` are words of a "
            "decision; rename the argument or the tool to let a model plan with it"
        )
    return _strict(schema, schema.get("$defs") or {})  # type: ignore[arg-type]


def _strict(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> dict[str, Any]:
    """The registry takes no schema that refers to itself, so this comes to an end."""

    def inner(part: Mapping[str, Any]) -> dict[str, Any]:
        return _strict(part, defs)

    if reference := schema.get("$ref"):
        made = inner(defs.get(str(reference).rsplit("/", 1)[-1], {}))
        return made | ({"description": schema["description"]} if "description" in schema else {})
    made = {key: value for key, value in schema.items() if key in _KEPT}
    if schema.get("format") in _FORMATS:
        made["format"] = schema["format"]
    if (pattern := schema.get("pattern")) and not re.search(r"\(\?(?!:)", pattern):
        made["pattern"] = pattern  # no lookaround, no flags: strict servers know neither
    alternatives = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    if len(schema.get("allOf", ())) == 1:
        made = inner(schema["allOf"][0]) | made
    if alternatives:
        made["anyOf"] = [inner(part) for part in alternatives]
    if (properties := schema.get("properties")) is not None:
        required = schema.get("required") or ()
        made |= _object(
            {
                name: inner(part) if name in required else _nullable(inner(part))
                for name, part in properties.items()
            }
        )
    if schema.get("items"):
        made["items"] = inner(schema["items"])
    return made


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema, or null: how a strict schema says that something may be left out."""
    if any(part.get("type") == "null" for part in schema.get("anyOf", ())):
        return schema
    description = {"description": schema.pop("description")} if "description" in schema else {}
    alternatives = schema.get("anyOf") or [schema]
    return {"anyOf": [*alternatives, {"type": "null"}], **description}


def _function(name: str, description: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    parameters = _object(properties)
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "strict": True,
            "parameters": parameters,
        },
    }


def _in_words(schema: Mapping[str, Any]) -> str:
    """A value's type as a short note: `integer 1-365`, `"high" or "medium"`, `date or null`."""
    if "enum" in schema:
        return " or ".join(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"], ensure_ascii=False)
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_in_words(part) for part in schema["anyOf"]))
    kind = schema.get("type", "value")
    if kind == "object":
        inner = ", ".join(f'"{k}": {_in_words(v)}' for k, v in schema["properties"].items())
        return f"{{{inner}}}"
    if kind == "array":
        return f"[{_in_words(schema.get('items') or {})}, …]"
    words = f"{kind} {schema['format']}" if "format" in schema else str(kind)
    if "minimum" in schema or "maximum" in schema:
        words += f" {schema.get('minimum', '')}-{schema.get('maximum', '')}"
    return words


def without_nulls(args: Mapping[str, Any], tool: ToolDefinition) -> dict[str, Any]:
    """The arguments without the nulls by which a strict schema leaves something out."""
    required: Collection[str] = tool.input_schema.get("required") or ()  # type: ignore[assignment]
    known: Collection[str] = tool.input_schema.get("properties") or ()  # type: ignore[assignment]
    optional = set(known) - set(required)
    return {key: value for key, value in args.items() if value is not None or key not in optional}
