"""What a run depends on beside its state: planner, tools, clock, policy. What a test may replace."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Annotated, Any, Protocol

from pydantic import Field
from pydantic.dataclasses import dataclass as checked_dataclass

from followup_agent.customers.database import CustomerDatabase
from followup_agent.goals.ids import IdPattern
from followup_agent.goals.limits import DEFAULT_MAX_STEPS, MAX_STEPS_CEILING
from followup_agent.judgement.policy import Policy
from followup_agent.planners import Planner
from followup_agent.runs.ledger import Ledger
from followup_agent.state import NO_LIMITS, Limits
from followup_agent.tasks.system import TaskSystem
from followup_agent.tools.runner import ToolRunner


@checked_dataclass(frozen=True)
class RunOptions:
    """What a caller may set for one run. LangGraph's `context`: Studio shows it as a form."""

    max_steps: Annotated[
        int,
        Field(
            ge=1,
            le=MAX_STEPS_CEILING,
            description="Decisions the run may take before it must conclude.",
        ),
    ] = DEFAULT_MAX_STEPS
    as_of: Annotated[
        str | None,
        Field(description="Judge as of this ISO 8601 time; nothing later is seen. Default: now."),
    ] = None
    user: Annotated[str, Field(description="Who asks, and who is recorded as approving.")] = "user"
    deadline_s: Annotated[
        float | None,
        Field(gt=0, description="Seconds the run may work; waiting for a person does not count."),
    ] = None


Event = Mapping[str, Any]
"""One event as it will be written."""


class EventLog(Protocol):
    """Where a run's events go. Never raises: a broken log does not break a run."""

    def emit(self, event_name: str, /, **fields: Any) -> None:
        """Write one event with the fields bound to this run."""

    def hold(self) -> Sequence[Event]:
        """From now on keep what this task emits in this list, for `write`."""

    def write(self, events: Iterable[Event]) -> None:
        """Write events."""

    def bind(self, fields: Mapping[str, Any]) -> None:
        """Set fields that every later event of this task carries, those of tools included."""

    def error(self, error_id: str, error: BaseException) -> None:
        """Keep the details of an error that the user only sees the id of."""


class Outbox(Protocol):
    """Where a node's events wait until its result is stored, so that a step which is run again
    after a crash is not told twice."""

    def hold(self, thread_id: str, events: Sequence[Event]) -> None:
        """Keep the events of a node that has just ended."""


def utc_now() -> datetime:
    """The default clock."""
    return datetime.now(UTC)


@dataclass(frozen=True, kw_only=True)
class AgentContext:
    """The dependencies of every node. One object serves any number of runs at once."""

    planner: Planner
    tools: ToolRunner
    customers: CustomerDatabase | None
    policy: Policy
    ids: IdPattern
    log: EventLog
    timezone: tzinfo = UTC
    clock: Callable[[], datetime] = utc_now
    """Aware, UTC."""
    monotonic: Callable[[], float] = time.monotonic
    approval_lifetime: timedelta = timedelta(hours=24)
    """How long an approval may be given after it was asked for."""
    approver: str | None = None
    """Who may approve a write; None: whoever uses the agent."""
    ledger: Ledger
    """What was done downstream."""
    tasks: TaskSystem | None = None
    tenant: str = "default"
    """The company, where several share one task system."""
    budget: Limits = field(default_factory=lambda: NO_LIMITS)
    """What any run may use; a run's own deadline replaces the one named here."""
    outbox: Outbox | None = None
    """Holds a node's events until its result is stored; None: they are written at once."""
    options: RunOptions = field(default_factory=RunOptions)
    """Of the run at hand; filled in from LangGraph's context."""


ContextFactory = Callable[[], AgentContext]
"""Called in a thread, at the first step of the first run: it may open files and databases."""
