"""What OpenAI's strict structured outputs refuse in a JSON Schema or a request, as far as it is
documented: for tests that a request passes, and for the strict mode of `testing/openai_server.py`."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

REFUSED = frozenset(
    {"oneOf", "discriminator", "allOf", "not", "if", "then", "else", "dependentRequired"}
    | {"dependentSchemas", "patternProperties", "propertyNames", "unevaluatedProperties"}
    | {"minLength", "maxLength", "minProperties", "maxProperties", "uniqueItems", "contains"}
    | {"default"}
)
FORMATS = frozenset(
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"]
)
MAX_PROPERTIES, MAX_DEPTH, MAX_ENUM_VALUES = 5000, 10, 1000
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LOOKAROUND = re.compile(r"\(\?(?:[=!]|<[=!])")


def problems(schema: Mapping[str, Any]) -> list[str]:
    """What would be refused, each with its path; empty when the schema passes."""
    found = list(_walk(schema, schema.get("$defs") or {}, "$", 1))
    if schema.get("type") != "object":
        found.insert(0, "$: the top must be an object")
    every = list(_parts(schema))
    if sum(len(part.get("properties") or ()) for part in every) > MAX_PROPERTIES:
        found.append(f"$: more than {MAX_PROPERTIES} properties")
    if sum(len(part.get("enum") or ()) for part in every) > MAX_ENUM_VALUES:
        found.append(f"$: more than {MAX_ENUM_VALUES} enum values")
    return found


def _parts(schema: Any) -> Iterator[Mapping[str, Any]]:
    """The schema and every schema in it."""
    if not isinstance(schema, Mapping):
        return
    yield schema
    for key in ("properties", "$defs"):
        for inner in (schema.get(key) or {}).values():
            yield from _parts(inner)
    for inner in (*(schema.get("anyOf") or ()), schema.get("items")):
        yield from _parts(inner)


def _walk(schema: Any, defs: Mapping[str, Any], path: str, depth: int) -> Iterator[str]:
    if not isinstance(schema, Mapping):
        yield f"{path}: no schema"
        return
    if depth > 2 * MAX_DEPTH:
        yield f"{path}: nested deeper than {MAX_DEPTH}"
        return
    for keyword in sorted(REFUSED & schema.keys()):
        yield f"{path}: {keyword} is not permitted"
    if reference := schema.get("$ref"):
        if str(reference).removeprefix("#/$defs/") not in defs:
            yield f"{path}: {reference} is not there"
        return
    if not schema.keys() & {"type", "anyOf", "enum", "const"}:
        yield f"{path}: has no type"
    if "format" in schema and schema["format"] not in FORMATS:
        yield f"{path}: format {schema['format']!r} is not supported"
    yield from _pattern(schema, path)
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds or []
    if "object" in kinds or "properties" in schema:
        yield from _object(schema, defs, path, depth)
    if "array" in kinds:
        if "items" not in schema:
            yield f"{path}: an array needs items"
        else:
            yield from _walk(schema["items"], defs, f"{path}[]", depth + 1)
    for number, inner in enumerate(schema.get("anyOf") or ()):
        yield from _walk(inner, defs, f"{path}.anyOf[{number}]", depth)
    for name, inner in (schema.get("$defs") or {}).items():
        yield from _walk(inner, defs, f"{path}.$defs.{name}", depth)


def _object(
    schema: Mapping[str, Any], defs: Mapping[str, Any], path: str, depth: int
) -> Iterator[str]:
    properties = schema.get("properties")
    if schema.get("additionalProperties") is not False:
        yield f"{path}: additionalProperties must be false"
    if not isinstance(properties, Mapping):
        yield f"{path}: an object without properties"
        return
    left_out = sorted(properties.keys() - set(schema.get("required") or ()))
    if left_out:
        yield f"{path}: required must list every property; missing: {', '.join(left_out)}"
    if depth > MAX_DEPTH:
        yield f"{path}: nested deeper than {MAX_DEPTH}"
        return
    for name, inner in properties.items():
        yield from _walk(inner, defs, f"{path}.{name}", depth + 1)


def _pattern(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    pattern = schema.get("pattern")
    if pattern is None:
        return
    try:
        re.compile(pattern)
    except (re.error, TypeError):
        yield f"{path}: pattern is no regular expression"
        return
    if _LOOKAROUND.search(pattern):
        yield f"{path}: pattern has a lookaround"


def request_problems(body: Mapping[str, Any]) -> list[str]:
    """What would be refused in a whole chat-completions request."""
    return [
        *_message_problems(body.get("messages")),
        *_format_problems(body),
        *_tool_problems(body),
    ]


def _format_problems(body: Mapping[str, Any]) -> Iterator[str]:
    form = body.get("response_format")
    if not isinstance(form, Mapping):
        return
    if form.get("type") == "json_schema":
        inner = form.get("json_schema") or {}
        if not NAME.fullmatch(str(inner.get("name", ""))):
            yield f"response_format: {inner.get('name')!r} is no name"
        if inner.get("strict"):
            yield from (f"response_format: {what}" for what in problems(inner.get("schema") or {}))
    elif form.get("type") == "json_object":
        texts = [str(message.get("content")) for message in body.get("messages") or ()]
        if not any("json" in text.lower() for text in texts):
            yield "messages must contain the word 'json' in some form, to use json_object"
    elif form.get("type") != "text":
        yield f"response_format: type {form.get('type')!r}"


def _tool_problems(body: Mapping[str, Any]) -> Iterator[str]:
    functions = [tool.get("function") or {} for tool in body.get("tools") or ()]
    names = [function.get("name") for function in functions]
    for function in functions:
        name = function.get("name")
        if not NAME.fullmatch(str(name)):
            yield f"tools: {name!r} is no name"
        if function.get("strict"):
            schema = function.get("parameters") or {}
            yield from (f"tools.{name}: {what}" for what in problems(schema))
    if any(f.get("strict") for f in functions) and body.get("parallel_tool_calls") is not False:
        yield "parallel_tool_calls must be false with strict functions"
    choice = body.get("tool_choice")
    if isinstance(choice, Mapping):
        if (choice.get("function") or {}).get("name") not in names:
            yield "tool_choice names no function of the request"
    elif choice not in (None, "none", "auto", "required"):
        yield f"tool_choice: {choice!r}"
    elif choice is not None and not functions:
        yield "tool_choice is only allowed with tools"


def _message_problems(messages: Any) -> Iterator[str]:
    if not isinstance(messages, list) or not messages:
        yield "messages: none"
        return
    open_calls: set[str] = set()
    for number, message in enumerate(messages):
        role = message.get("role")
        if role not in ("system", "developer", "user", "assistant", "tool"):
            yield f"messages[{number}]: role {role!r}"
        if role == "tool":
            if message.get("tool_call_id") not in open_calls:
                yield f"messages[{number}]: answers no call"
            open_calls.discard(str(message.get("tool_call_id")))
            continue
        if open_calls:
            yield f"messages[{number}]: calls without an answer: {', '.join(sorted(open_calls))}"
        open_calls = {str(call.get("id")) for call in message.get("tool_calls") or ()}
    if open_calls:
        yield f"messages: calls without an answer: {', '.join(sorted(open_calls))}"
