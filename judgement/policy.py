"""The policy as typed data, read from `policy.toml`."""

import tomllib
from functools import cache
from importlib import resources
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


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


class Segment(_Closed):
    """What differs in one segment."""

    inactive: Ramp | None = None
    unpaid: Ramp | None = None
    open_tickets: Ramp | None = None


class Policy(_Closed):
    """Weights and thresholds, by version."""

    version: str
    priorities: Priorities
    signals: Signals
    segments: dict[str, Segment] = {}

    def ramp(self, signal: str, segment: str | None) -> Ramp:
        """The ramp of this signal for this segment (any spelling), or the general one."""
        special = self.segments.get((segment or "").lower())
        own: Ramp | None = getattr(special, signal, None)
        general: Ramp = getattr(self.signals, signal)
        return own or general


@cache
def load_policy() -> Policy:
    """The policy shipped with the package."""
    text = resources.files(__package__).joinpath("policy.toml").read_text(encoding="utf-8")
    return Policy.model_validate(tomllib.loads(text))
