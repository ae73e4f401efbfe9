"""What a tool call can come to: the words shared by tools, state and logs.

    Outcome = Found | Empty | Failed        (tag: kind)

A business-empty result and a technical failure are different shapes, so neither can be read as
the other. This module imports nothing heavy: `followup tools` runs without LangGraph.
"""

from typing import Literal, NamedTuple

from pydantic import ConfigDict, JsonValue, with_config
from typing_extensions import TypedDict

PLAIN = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
"""Checkpointed values: no undeclared key, no coercion, no NaN."""

Language = Literal["zh", "en"]
Effect = Literal["read", "write"]
OutcomeKind = Literal["found", "empty", "failed"]
FailureKind = Literal[
    "unknown_tool",
    "invalid_args",
    "timeout",
    "unavailable",
    "refused",
    "not_found",
    "out_of_scope",
    "not_approved",
    "outcome_unknown",
    "internal",
]
"""The closed list. `not_found`: the customer does not exist, which is not the same as `empty`."""

FactValue = str | int | float | bool | None | dict[str, float]
"""A scalar, or amounts by currency. Times are ISO 8601 text in UTC."""


@with_config(PLAIN)
class Fact(TypedDict):
    """One structured finding about a customer. The updater is its only writer."""

    value: FactValue
    unit: str
    """'logins', 'days', 'orders', 'tickets', 'time', 'amount', 'text'."""
    window_days: int | None
    """Calendar days looked back over; None for a fact without a window."""
    call_id: str
    as_of: str


class FactDraft(NamedTuple):
    """What a tool file says of one fact; the updater adds the call and the time."""

    value: FactValue
    unit: str
    window_days: int | None = None


class EvidenceDraft(NamedTuple):
    """What a tool file says in words; the updater adds the ids."""

    summary: str
    confidence: float
    """0 to 1: how far the source can be trusted for this statement."""


class Found(NamedTuple):
    """The tool answered and there was something."""

    result: dict[str, JsonValue]
    kind: Literal["found"] = "found"


class Empty(NamedTuple):
    """The tool answered and there was nothing: a finding, not a fault."""

    result: dict[str, JsonValue]
    kind: Literal["empty"] = "empty"


class Failed(NamedTuple):
    """No usable answer."""

    failure_kind: FailureKind
    message: str
    kind: Literal["failed"] = "failed"


Outcome = Found | Empty | Failed
