"""The policy as typed data: `policy.toml`, with what a company's own file puts in its place."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from followup_agent.service.errors import PolicyError


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Ramp(_Closed):
    """Days from which a signal counts, and at which it counts fully."""

    start: float = Field(ge=0)
    full: float = Field(gt=0)

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if self.full <= self.start:
            raise ValueError("full must be over start")
        return self

    def share(self, days: float) -> float:
        """0 to 1, never falling with `days`."""
        return min(1.0, max(0.0, (days - self.start) / (self.full - self.start)))


class RampSignal(Ramp):
    """A signal that grows with days."""

    tool: str
    points: float = Field(ge=0)


class CountSignal(_Closed):
    """A signal that grows with a number of things."""

    tool: str
    points: float = Field(ge=0)
    """The most it can come to."""
    first: float = Field(ge=0)
    each_more: float = Field(ge=0)

    def score(self, count: int) -> float:
        """Points for so many, never falling with `count`."""
        return min(self.points, self.first + self.each_more * (count - 1)) if count > 0 else 0.0


class Signals(_Closed):
    """All signals; every one names the tool its fact comes from."""

    inactive: RampSignal
    unpaid: RampSignal
    urgent_tickets: CountSignal
    open_tickets: RampSignal


class Priorities(_Closed):
    """Score from which each priority holds."""

    high: float
    medium: float
    low: float

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not 0 < self.low < self.medium < self.high <= 100:
            raise ValueError("0 < low < medium < high <= 100 must hold")
        return self


class SegmentRamps(_Closed):
    """What differs in one segment. What is not named is as for everybody."""

    inactive: Ramp | None = None
    unpaid: Ramp | None = None
    open_tickets: Ramp | None = None
    priorities: Priorities | None = None


class Sources(_Closed):
    """Days without any new row, from any customer, after which a source counts as broken."""

    activity_events: int = Field(ge=1, le=3650)
    orders: int = Field(ge=1, le=3650)
    tickets: int = Field(ge=1, le=3650)


class Policy(_Closed):
    """Weights and thresholds, by version."""

    version: str = Field(min_length=1, max_length=100)
    priorities: Priorities
    signals: Signals
    sources: Sources
    segments: dict[str, SegmentRamps] = {}

    def ramp(self, signal: str, segment: str | None) -> Ramp:
        """The ramp of this signal for this segment (any spelling), or the general one."""
        own: Ramp | None = getattr(self._special(segment), signal, None)
        general: Ramp = getattr(self.signals, signal)
        return own or general

    def lines(self, segment: str | None) -> Priorities:
        """The scores from which each priority holds, for this segment."""
        special = self._special(segment)
        return (special and special.priorities) or self.priorities

    def _special(self, segment: str | None) -> SegmentRamps | None:
        return self.segments.get((segment or "").strip().lower())


def load_policy(path: Path | None = None) -> Policy:
    """The policy shipped with the package, with what a company's own file says in its place.

    Only what differs stands in that file, and a `version` of its own. PolicyError names the key
    that is wrong.
    """
    return _shipped() if path is None else _own(path)


@cache
def _shipped() -> Policy:
    return Policy.model_validate(_document())


def _document() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("policy.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _own(path: Path) -> Policy:
    try:
        own = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise PolicyError(f"cannot read policy {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PolicyError(f"policy {path} is not TOML text: {error}") from error
    if "version" not in own:
        raise PolicyError(
            f"policy {path} has no version: name it, so that a verdict says what it went by"
        )
    own["segments"] = {name.strip().lower(): v for name, v in _table(own, "segments").items()}
    try:
        return Policy.model_validate(_merged(_document(), own))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(map(str, problem["loc"]))
        message = problem["msg"].removeprefix("Value error, ")
        raise PolicyError(f"policy {path}, {where}: {message}") from error


def _table(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    inner = document.get(name, {})
    return inner if isinstance(inner, dict) else {}


def _merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `own` in their places, table by table."""
    merged = dict(base)
    for key, value in own.items():
        inner = merged.get(key)
        is_table = isinstance(inner, dict) and isinstance(value, dict)
        merged[key] = _merged(inner, value) if is_table else value  # type: ignore[arg-type] # is_table
    return merged
