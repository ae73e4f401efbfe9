"""Planners: what decides the next action. One method, so that rules and models are exchangeable."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from followup_agent.state import NO_USAGE, AgentState, StopReason, Usage
from followup_agent.tools.outcome import FailureKind


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerFailure:
    """Why a planner has no decision."""

    kind: FailureKind
    message: str
    """For the user: what was wrong, and what to do."""
    fault: str
    """What exactly it was, such as 'cut_off' or 'rate_limited': for logs and counts."""
    tool_name: str | None = None
    """The tool that was named, if one was."""
    raw: str | None = None
    """The reply as it came: kept among the errors, never shown."""
    ends: StopReason | None = None
    """Why the run ends with it; None: the planner is asked once more."""
    cause: BaseException | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What one planner step came to, where it cost something or can fail by name."""

    decision: Mapping[str, Any] | None
    failure: PlannerFailure | None = None
    """Set when `decision` is None."""
    usage: Usage = field(default_factory=lambda: NO_USAGE)
    handed_back: bool = False
    """A finish that came too early was handed back on the way."""
    trace: Mapping[str, Any] = field(default_factory=dict)
    """For the log: model, output method, prompt hash, …"""


class Planner(Protocol):
    """Decides and touches nothing: a planner can be tested and replayed without any tool."""

    @property
    def name(self) -> str:
        """'rules', or the model's name: stands in the run's result."""

    async def decide(self, state: AgentState) -> Mapping[str, Any] | Planned:
        """Exactly one next action, in the form of `state.Decision`; it is validated by the node."""
