"""Which written forms of an argument are taken for which type: one table, for every caller.

    type      taken                               refused
    integer   7   7.0   "7"   "-7"                true  7.5  "7.0"  " 7"  "+7"  "１７"  [7]  null
    number    7   7.5   "7"                       true  "7.5"  NaN  [7]  null
    boolean   true  false                         1  "true"  null
    string    "…"                                 7  true  ["…"]  null
    array, object: each part by this table; null only where the schema has it

A number written with an exponent (1e3) is refused where text is read (`planners/reading.py`): once
read, it cannot be told from 1000.0.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

INTEGER_TEXT = re.compile(r"-?[0-9]{1,15}")
"""ASCII digits alone: no blanks, no sign but minus, no `１７`."""

_READ = (str, bytes, bool, int, float, list, dict, type(None))
"""What can come from outside; anything else (a date) was made by code, and is left to the model."""


class WrongForm(NamedTuple):
    """An argument in a form that is not taken."""

    loc: tuple[str | int, ...]
    value: Any
    wanted: str


class _Refused(Exception):
    pass


def coerced(
    args: Mapping[str, Any], schema: Mapping[str, Any]
) -> tuple[dict[str, Any], list[WrongForm]]:
    """The arguments by the table, and those in a form it does not have.

    Arguments that the schema does not know are left as they are: to forbid them is the model's.
    """
    wrong: list[WrongForm] = []
    taken = _object(args, schema, schema.get("$defs") or {}, (), wrong)
    return taken, wrong


def _object(
    value: Mapping[str, Any],
    schema: Mapping[str, Any],
    defs: Mapping[str, Any],
    loc: tuple[str | int, ...],
    wrong: list[WrongForm],
) -> dict[str, Any]:
    properties = schema.get("properties") or {}
    return {
        name: _value(inner, properties[name], defs, (*loc, name), wrong)
        if name in properties
        else inner
        for name, inner in value.items()
    }


def _value(
    value: Any,
    schema: Mapping[str, Any],
    defs: Mapping[str, Any],
    loc: tuple[str | int, ...],
    wrong: list[WrongForm],
) -> Any:
    if not isinstance(value, _READ):
        return value
    choices = list(_alternatives(schema, defs))
    kinds = [kind for choice in choices for kind in _types(choice)]
    if not kinds:  # an enum, a const, or nothing said: the model knows
        return value
    # As it is before as it could be read: "7" stays text where text is allowed.
    for read in (_exactly, _as_written):
        for choice in choices:
            for kind in _types(choice):
                try:
                    taken = read(value, kind)
                except _Refused:
                    continue
                if kind == "object" and isinstance(taken, dict):
                    return _object(taken, choice, defs, loc, wrong)
                if kind == "array" and isinstance(choice.get("items"), Mapping):
                    return [
                        _value(item, choice["items"], defs, (*loc, number), wrong)
                        for number, item in enumerate(taken)
                    ]
                return taken
    wrong.append(WrongForm(loc, value, " or ".join(dict.fromkeys(kinds))))
    return value


def _alternatives(
    schema: Mapping[str, Any], defs: Mapping[str, Any], depth: int = 0
) -> Iterator[Mapping[str, Any]]:
    """The schema itself, or what `$ref`, `anyOf`, `oneOf` and `allOf` stand for."""
    reference = schema.get("$ref")
    if reference and depth < 10:
        yield from _alternatives(defs.get(str(reference).rsplit("/", 1)[-1], {}), defs, depth + 1)
        return
    inner = [i for key in ("anyOf", "oneOf", "allOf") for i in schema.get(key, ())]
    if not inner or depth >= 10:
        yield schema
    for alternative in inner:
        yield from _alternatives(alternative, defs, depth + 1)


def _types(schema: Mapping[str, Any]) -> list[str]:
    kinds = schema.get("type") or []
    return [kinds] if isinstance(kinds, str) else list(kinds)


def _exactly(value: Any, kind: str) -> Any:
    """The value when it is of this type as JSON has it."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = {
        "integer": number and isinstance(value, int),
        "number": number,
        "boolean": isinstance(value, bool),
        "string": isinstance(value, str),
        "array": isinstance(value, list),
        "object": isinstance(value, dict),
        "null": value is None,
    }
    if not fits.get(kind, True):
        raise _Refused
    return value


def _as_written(value: Any, kind: str) -> Any:
    """The value as the table reads it."""
    if kind in ("integer", "number") and isinstance(value, str) and INTEGER_TEXT.fullmatch(value):
        return int(value)
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    raise _Refused
