"""What whole-run tests share: the clock, the company, tools that misbehave, a scripted planner."""

import asyncio
import dataclasses
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from followup_agent.customers.database import CustomerDatabase
from followup_agent.customers.load import replace_all
from followup_agent.customers.sample import make_company
from followup_agent.goals.ids import IdPattern
from followup_agent.graph.build import build_graph
from followup_agent.graph.checkpoints import strict_serializer
from followup_agent.graph.context import AgentContext, RunOptions
from followup_agent.judgement.policy import load_policy
from followup_agent.planners.rules import RulePlanner
from followup_agent.runs.database import RunsDatabase
from followup_agent.runs.ledger import Intent, Ledger, SqlLedger, Standing
from followup_agent.state import AgentState
from followup_agent.tasks.table import TaskTable
from followup_agent.tools import BUILT_IN
from followup_agent.tools.definition import ToolDefinition
from followup_agent.tools.registry import ToolRegistry
from followup_agent.tools.runner import ToolRunner

NOW = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)
"""Monday 2026-03-02 07:30 in Shanghai."""
SHANGHAI = ZoneInfo("Asia/Shanghai")


def fill(path: Path, customers: int = 3, as_of: datetime = NOW) -> CustomerDatabase:
    """A company as of a time; the first three customers are user_123, user_456 and user_789."""
    database = CustomerDatabase(f"sqlite:///{path}")
    replace_all(database, make_company(customers, 1, as_of), is_sample=True)
    return database


TASK_GOAL = "请为 user_123 创建一个跟进任务"
APPROVE = {"decisions": [{"type": "approve"}]}
SEND = {"user_id": "user_123", "reason": "urgent ticket", "priority": "high", "due_in_days": 1}


def tasks(database: CustomerDatabase) -> list[Any]:
    """The follow-up tasks that were written."""
    with database.engine.connect() as connection:
        return list(connection.exec_driver_sql("SELECT * FROM followup_tasks").mappings())


def tool(reason: str = "r", /, tool_name: str = "get_open_tickets", **args: Any) -> dict[str, Any]:
    """A tool decision."""
    return {
        "type": "tool",
        "tool_name": tool_name,
        "args": args,
        "reason": reason,
        "expected_outcome": "x",
    }


def ask(question: str = "Which customer?") -> dict[str, Any]:
    """An ask_user decision."""
    return {"type": "ask_user", "question": question, "reason": "it is missing"}


def finish(draft: str = "") -> dict[str, Any]:
    """A finish decision."""
    return {"type": "finish", "reason": "enough", "answer_draft": draft}


class Scripted:
    """Answers in order, records the states it saw, and fails on a round that was not scripted."""

    name = "scripted"

    def __init__(self, *decisions: Any) -> None:
        """A decision is a mapping, a function of the state, or an exception to raise."""
        self.left = list(decisions)
        self.seen: list[AgentState] = []

    async def decide(self, state: AgentState) -> Mapping[str, Any]:
        """The next scripted decision."""
        self.seen.append(state)
        assert self.left, "the planner was asked once more than was scripted"
        decision = self.left.pop(0)
        if isinstance(decision, Exception):
            raise decision
        return decision(state) if callable(decision) else decision


class Endless(Scripted):
    """Answers every round by one function of the state."""

    def __init__(self, decide: Callable[[AgentState], Any]) -> None:
        """Never runs out."""
        super().__init__()
        self._decide = decide

    async def decide(self, state: AgentState) -> Mapping[str, Any]:
        """What the function says."""
        self.seen.append(state)
        return self._decide(state)


class Recorder:
    """An event log that keeps the events in memory, with the fields bound to the run."""

    def __init__(self) -> None:
        """Start empty."""
        self.events: list[dict[str, Any]] = []
        self.errors: list[tuple[str, BaseException]] = []
        self._bound: dict[str, Any] = {}
        self._held: ContextVar[list[dict[str, Any]] | None] = ContextVar("held", default=None)

    def bind(self, fields: Mapping[str, Any]) -> None:
        """Keep them for what follows."""
        self._bound = {**self._bound, **fields}

    def emit(self, event_name: str, /, **fields: Any) -> None:
        """Keep it."""
        event = {"eventName": event_name, **self._bound, **fields}
        held = self._held.get()
        self.events.append(event) if held is None else held.append(event)

    def hold(self) -> list[dict[str, Any]]:
        """Keep what this task emits for `write`."""
        held: list[dict[str, Any]] = []
        self._held.set(held)
        return held

    def write(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Keep them."""
        self.events.extend(map(dict, events))

    def error(self, error_id: str, error: BaseException) -> None:
        """Keep it."""
        self.errors.append((error_id, error))

    def names(self) -> list[str]:
        """Event names in order."""
        return [event["eventName"] for event in self.events]


def replaced(name: str, run: Callable[..., Any], **changes: Any) -> ToolDefinition:
    """A built-in tool with another `run`."""
    original = next(tool for tool in BUILT_IN if tool.name == name)
    return dataclasses.replace(original, run=run, **changes)


def counted(definition: ToolDefinition, calls: list[dict[str, Any]]) -> ToolDefinition:
    """The same tool, noting the arguments of each real run."""

    async def run(args: Any, context: Any) -> Any:
        calls.append(args.model_dump(exclude_none=True))
        return await definition.run(args, context)

    return dataclasses.replace(definition, run=run)


class LazyLedger(Ledger):
    """A real ledger in a file of its own, made by the first run that writes."""

    @cached_property
    def own(self) -> SqlLedger:
        """The ledger itself."""
        return SqlLedger(RunsDatabase(f"sqlite:///{tempfile.mkdtemp()}/runs.db"))

    async def begin(self, intent: Intent) -> Standing:
        """As the ledger does."""
        return await self.own.begin(intent)

    async def adopt(self, intent: Intent) -> None:
        """As the ledger does."""
        await self.own.adopt(intent)

    async def receipt(self, intent: Intent, result: Mapping[str, Any], *, found: bool) -> None:
        """As the ledger does."""
        await self.own.receipt(intent, result, found=found)

    async def not_done(self, intent: Intent) -> None:
        """As the ledger does."""
        await self.own.not_done(intent)

    def of_thread(self, thread_id: str) -> list[dict[str, Any]]:
        """As the ledger does."""
        return self.own.of_thread(thread_id)


class Harness:
    """The real graph on an in-memory saver, driven thread by thread."""

    def __init__(
        self,
        database: CustomerDatabase | None,
        planner: Any = None,
        tools: Iterable[ToolDefinition] = (),
        **changes: Any,
    ) -> None:
        """`tools` replace the built-in ones of the same name, or come on top."""
        own = {definition.name: definition for definition in (*BUILT_IN, *tools)}
        registry = ToolRegistry(own.values())
        self.log = Recorder()
        policy = load_policy()
        self.planner = planner or RulePlanner(policy, registry.names(), "user_123")
        options = {"max_steps": changes.pop("max_steps", 8)}
        self.context = AgentContext(
            planner=self.planner,
            tools=ToolRunner(registry, self.log.error),
            customers=database,
            policy=policy,
            ids=IdPattern(),
            log=self.log,
            timezone=SHANGHAI,
            clock=changes.pop("clock", lambda: NOW),
            options=RunOptions(**options),
            ledger=changes.pop("ledger", None) or LazyLedger(),
            tasks=TaskTable(database) if database is not None else None,
            **changes,
        )
        self.graph = build_graph(
            self.context, checkpointer=InMemorySaver(serde=strict_serializer())
        )

    def config(self, thread: str = "t") -> dict[str, Any]:
        """LangGraph's configuration of one thread."""
        return {"configurable": {"thread_id": thread}}

    async def ask(self, goal: Any, thread: str = "t") -> dict[str, Any]:
        """One run; the final state."""
        graph_input = goal if isinstance(goal, dict) else {"user_goal": goal}
        return await self.graph.ainvoke(graph_input, self.config(thread))

    async def resume(self, reply: Any, thread: str = "t") -> dict[str, Any]:
        """Go on with a reply."""
        return await self.graph.ainvoke(Command(resume=reply), self.config(thread))


def read_log(path: Path) -> list[dict[str, Any]]:
    """The events of a JSON log, each line read by a parser that takes no NaN."""

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is no JSON")

    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line, parse_constant=refuse) for line in lines]


async def eventually(condition: Callable[[], bool], within_s: float = 5.0) -> None:
    """Wait, without a fixed sleep, until a condition of another thread holds."""
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0)
