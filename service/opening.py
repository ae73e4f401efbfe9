"""Open what an agent owns: log, runs database, leases, dependencies, saver; and close it again."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from followup_agent.graph.checkpoints import HeldEvents, open_saver
from followup_agent.graph.context import AgentContext
from followup_agent.planners import Planner
from followup_agent.runs.database import RunsDatabase, runs_url, short
from followup_agent.runs.leases import Leases
from followup_agent.service.errors import ConfigurationError
from followup_agent.service.home import make_home
from followup_agent.service.logs import JsonLog
from followup_agent.service.settings import Settings
from followup_agent.service.storage import is_storage_error
from followup_agent.service.wiring import make_context, open_log
from followup_agent.tasks.table import TaskTable
from followup_agent.tools.definition import ToolDefinition


@dataclass(frozen=True)
class Parts:
    """What an open agent owns beside its graph."""

    context: AgentContext
    runs: RunsDatabase
    leases: Leases
    log: JsonLog

    def close(self) -> None:
        """Give everything back."""
        self.leases.close()
        self.runs.close()
        if self.context.customers is not None:
            self.context.customers.close()
        if isinstance(self.context.tasks, TaskTable):
            self.context.tasks.close()
        self.log.close()


def open_parts(
    settings: Settings,
    *,
    log_to_stderr: bool,
    lease_s: float,
    tools: Iterable[ToolDefinition],
    planner: Planner | None,
    clock: Callable[[], datetime],
) -> Parts:
    """Open everything but the saver. Blocks: not for the event loop."""
    make_home(settings.home)
    with ExitStack() as opened:  # closed again when a later part cannot be opened
        log = opened.enter_context(closing(open_log(settings, to_stderr=log_to_stderr)))
        runs = opened.enter_context(closing(RunsDatabase(runs_url(settings))))
        leases = opened.enter_context(closing(Leases(runs, lease_s=lease_s)))
        context = make_context(
            settings, log=log, tools=tools, planner=planner, clock=clock, runs=runs, leases=leases
        )
        opened.pop_all()
    return Parts(context, runs, leases, log)


@asynccontextmanager
async def opened_saver(parts: Parts) -> AsyncIterator[tuple[BaseCheckpointSaver[Any], HeldEvents]]:
    """The saver; ConfigurationError when it cannot be opened, and no other error is touched."""
    async with AsyncExitStack() as opened:
        try:
            opening = open_saver(parts.runs, parts.leases, parts.log.write)
            saver, events = await opened.enter_async_context(opening)
        except Exception as error:
            if not is_storage_error(error):
                raise
            raise ConfigurationError(
                f"the runs database {parts.runs.name}: {short(error)}"
            ) from error
        yield saver, events
