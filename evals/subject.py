"""Run one case: a company of its own, the real graph, every turn; what came of it is an `Episode`.

Nothing of the user's settings is read: an eval can never write to anybody's task system.
"""

import asyncio
import json
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import tzinfo
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import BaseModel, JsonValue, ValidationError
from sqlalchemy import inspect, select

from followup_agent.customers.database import CustomerDatabase
from followup_agent.customers.load import replace_all
from followup_agent.customers.tables import followup_tasks
from followup_agent.evals.cases import Case, Turn
from followup_agent.evals.worlds import World
from followup_agent.goals.ids import IdPattern, learn_pattern
from followup_agent.graph.build import build_graph
from followup_agent.graph.checkpoints import strict_serializer
from followup_agent.graph.context import AgentContext, RunOptions
from followup_agent.graph.replies import CANCEL
from followup_agent.judgement.policy import Policy, load_policy
from followup_agent.planners import Planned, Planner
from followup_agent.planners.rules import RulePlanner
from followup_agent.runs.database import RunsDatabase
from followup_agent.runs.ledger import SqlLedger
from followup_agent.service.logs import JsonLog
from followup_agent.service.run import Run
from followup_agent.state import AgentState
from followup_agent.tasks.table import TaskTable
from followup_agent.tools import BUILT_IN
from followup_agent.tools.definition import ToolDefinition
from followup_agent.tools.registry import ToolRegistry
from followup_agent.tools.runner import ToolRunner

BUSY_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""HTTP statuses that say something of the server's load, nothing of the answer's quality."""


_OWN_IDS = re.compile(r"(error |task_)[0-9a-f]{8,12}")


CASE_LIMIT_S = 300.0
"""A case that takes longer hangs: it is ended as unfinished, and the others go on."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is being judged: a planner, with this policy and these tools."""

    planner: Planner | None = None
    """None: the built-in rules."""
    policy: Policy = field(default_factory=load_policy)
    tools: tuple[ToolDefinition, ...] = BUILT_IN

    @property
    def name(self) -> str:
        """Of the planner."""
        return "rules" if self.planner is None else self.planner.name

    def planner_for(self, ids: IdPattern, zone: tzinfo) -> Planner:
        """The planner of one run, for a company with such ids in this time zone."""
        if self.planner is None:
            return RulePlanner(self.policy, [tool.name for tool in self.tools], ids.example)
        own = getattr(self.planner, "on", None)  # a model is told of both
        return own(ids, zone) if own is not None else self.planner

    async def aclose(self) -> None:
        """Close what the planner holds open on this event loop."""
        aclose = getattr(self.planner, "aclose", None)
        if aclose is not None:
            await aclose()


class Crash(BaseModel):
    """Why an episode has no result that could be right."""

    kind: Literal["infrastructure", "crash", "unfinished"]
    """infrastructure: a model or server was busy or away. crash: something raised. unfinished: the
    turns and the run did not fit together."""
    message: str


class Decided(BaseModel):
    """One decision."""

    type: str
    tool_name: str | None = None
    args: dict[str, JsonValue] = {}
    reason: str = ""


class Episode(BaseModel):
    """What one case came to, once."""

    case: str
    attempt: int = 1
    run: Run | None = None
    """The last run, as it stood after the last turn."""
    decisions: list[Decided] = []
    questions: list[str] = []
    approvals: list[dict[str, Any]] = []
    """Writes that were put before a person, in order."""
    tasks: list[dict[str, Any]] = []
    """`followup_tasks` at the end."""
    seconds: float = 0.0
    """Of work; waiting for a turn or for a busy model is not in it."""
    crash: Crash | None = None
    states: list[dict[str, Any]] = []
    """What the planner saw, decision by decision; kept only when asked for."""

    @property
    def trajectory(self) -> list[str]:
        """The decisions, one line each."""
        return [
            f"{d.tool_name}({', '.join(f'{k}={v}' for k, v in d.args.items())})"
            if d.type == "tool"
            else f"{d.type}: {d.reason}"
            for d in self.decisions
        ]


class PlannerBroke(Exception):
    """The planner gave no usable decision, twice in a row."""


class Observed:
    """A planner whose decisions, and whose own errors, are noted."""

    def __init__(self, planner: Planner, *, keep_states: bool) -> None:
        """Watch this planner."""
        self.name = planner.name
        self.decisions: list[Decided] = []
        self.states: list[dict[str, Any]] = []
        self.error: BaseException | None = None
        """Of the last decision, when it raised."""
        self._planner = planner
        self._keep_states = keep_states

    async def decide(self, state: AgentState) -> Mapping[str, Any] | Planned:
        """What the planner decides."""
        if self._keep_states:
            self.states.append(recorded_state(state))
        try:
            planned = await self._planner.decide(state)
        except BaseException as error:
            self.error = error
            if self._keep_states:
                self.states.pop()  # a state in which nothing was decided
            raise
        self.error = None  # it has recovered
        if isinstance(planned, Planned) and planned.failure is not None:
            self.error = planned.failure.cause or PlannerBroke(planned.failure.message)
            if self._keep_states:
                self.states.pop()
            return planned
        decision = planned.decision if isinstance(planned, Planned) else planned
        self.decisions.append(_decided(decision))
        return planned


def _decided(decision: object) -> Decided:
    try:
        return Decided.model_validate(decision)
    except ValidationError:  # the planner node will say what is wrong with it
        return Decided(type="unusable", reason=repr(decision)[:200])


def recorded_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """A state as a planner sees it, as plain JSON, without what differs from run to run."""
    left_out = {"messages", "remaining_steps", "observations"}
    plain = {key: value for key, value in state.items() if key not in left_out}
    plain |= {"session_id": "recorded", "run_id": "recorded"}
    plain["counters"] = {**state["counters"], "planner_ms": 0}
    plain["tool_history"] = [{**call, "duration_ms": 0} for call in state["tool_history"]]
    text = _OWN_IDS.sub(r"\g<1>0", json.dumps(plain))
    copied: dict[str, Any] = json.loads(text)
    return copied


class Bench:
    """Where cases are run: a folder with the companies' databases, gone when it is closed."""

    def __init__(self, folder: Path) -> None:
        """Use this folder."""
        self._folder = folder
        self._templates: dict[str, Path] = {}
        self._companies = 0
        self._log = JsonLog(folder / "eval.jsonl")

    @classmethod
    @contextmanager
    def temporary(cls) -> Iterator["Bench"]:
        """A bench in a folder of its own."""
        with tempfile.TemporaryDirectory(prefix="followup-eval-") as folder:
            bench = cls(Path(folder))
            try:
                yield bench
            finally:
                bench.close()

    @cached_property
    def _runs(self) -> RunsDatabase:
        return RunsDatabase(f"sqlite:///{self._folder / 'runs.db'}")

    def close(self) -> None:
        """Close the log and the ledger."""
        self._log.close()
        self._runs.close()

    def _company(self, world: World) -> Path:
        """A copy of the world's database: what a case writes, no other case sees."""
        key = world.model_dump_json()
        if key not in self._templates:
            path = self._folder / f"world-{len(self._templates)}.db"
            database = CustomerDatabase(f"sqlite:///{path}")
            replace_all(database, world.rows(), is_sample=True)
            database.close()
            self._templates[key] = path
        self._companies += 1
        own = self._folder / f"company-{self._companies}.db"
        shutil.copy(self._templates[key], own)
        return own

    async def run(
        self,
        case: Case,
        subject: Subject,
        *,
        attempt: int = 1,
        keep_states: bool = False,
        limit_s: float = CASE_LIMIT_S,
    ) -> Episode:
        """Run a case through all its turns. Never raises for what the subject did."""
        episode = Episode(case=case.name, attempt=attempt)
        try:
            world = case.company()
            tools = world.tools({tool.name: tool for tool in subject.tools})
            path = self._company(world)
        except Exception as error:  # the case itself is wrong
            episode.crash = crash_of(error)
            return episode
        database = CustomerDatabase(f"sqlite:///{path}")
        ids = learn_pattern(world.customers)
        planner = Observed(subject.planner_for(ids, world.zone), keep_states=keep_states)
        context = AgentContext(
            planner=planner,
            tools=ToolRunner(ToolRegistry(tools), self._log.error),
            customers=database,
            policy=subject.policy,
            ids=ids,
            log=self._log,
            timezone=world.zone,
            clock=lambda: world.as_of,
            ledger=SqlLedger(self._runs),
            tasks=TaskTable(database),
            tenant=f"{case.name} {attempt} {path.stem}",  # no case meets another's tasks
            options=RunOptions(max_steps=case.max_steps, as_of=case.as_of),
        )
        started = time.perf_counter()
        limit = asyncio.timeout(limit_s)
        try:
            async with limit:
                await self._play(case, context, planner, episode)
        except Exception as error:
            episode.crash = crash_of(error)
            if limit.expired():
                why = f"not done after {limit_s:g} s"
                episode.crash = Crash(kind="unfinished", message=why)
        episode.seconds = time.perf_counter() - started
        episode.decisions, episode.states = planner.decisions, planner.states
        episode.tasks = _tasks(database)
        database.close()
        path.unlink()
        return episode

    async def _play(
        self, case: Case, context: AgentContext, planner: Observed, episode: Episode
    ) -> None:
        graph = build_graph(context, checkpointer=InMemorySaver(serde=strict_serializer()))
        config: Any = {"configurable": {"thread_id": case.name}}
        graph_input: Any = {"user_goal": case.input}
        for turn in [*case.turns, None]:
            run = Run.from_state(case.name, await graph.ainvoke(graph_input, config))
            episode.run = run
            if run.stop_reason == "planner_failed":  # in whichever run of the thread
                why = run.last_error["message"] if run.last_error else "no usable decision"
                episode.crash = crash_of(planner.error or PlannerBroke(why))
                return
            if run.waiting_for == "answer":
                episode.questions.append(run.answer or "")
            elif run.approval is not None:
                episode.approvals.append(dict(run.approval))
            if turn is None:
                return
            wrong = _does_not_fit(turn, run)
            if wrong:
                episode.crash = Crash(kind="unfinished", message=wrong)
                return
            graph_input = (
                {"user_goal": turn.goal}
                if turn.goal is not None
                else Command(resume=_reply(turn, run))
            )


def _does_not_fit(turn: Turn, run: Run) -> str | None:
    """Why this turn cannot be taken now, or None."""
    wanted = {"answer": "answer", "approve": "approval", "edit": "approval", "reject": "approval"}
    waits = run.waiting_for or "nothing"
    if turn.kind == "goal" or waits == wanted.get(turn.kind):
        return None
    if turn.kind == "cancel" and run.waiting_for:
        return None
    return f"the turn is to {turn.kind}, but the run waits for {waits} ({run.status})"


def _reply(turn: Turn, run: Run) -> Any:
    if turn.answer is not None:
        return turn.answer
    if turn.cancel:
        return CANCEL
    if turn.approve:
        return {"decisions": [{"type": "approve"}]}
    if turn.reject is not None:
        return {"decisions": [{"type": "reject", "message": turn.reject}]}
    approval = run.approval
    args = {**(approval["args"] if approval else {}), **(turn.edit or {})}
    action = {
        "name": approval["tool_name"] if approval else "",
        "args": {key: value for key, value in args.items() if value is not None},
    }
    return {"decisions": [{"type": "edit", "edited_action": action}]}


def _tasks(database: CustomerDatabase) -> list[dict[str, Any]]:
    with database.engine.connect() as connection:
        if not inspect(connection).has_table(followup_tasks.name):
            return []
        rows = connection.execute(select(followup_tasks).order_by(followup_tasks.c.created_at))
        return [dict(row._mapping) for row in rows]


def crash_of(error: BaseException) -> Crash:
    """An error as a crash; busy and unreachable servers are told from everything else.

    Looks through the error's causes for an HTTP status (`status_code`, as httpx and the OpenAI and
    LangSmith clients have it) or a connection that failed.
    """
    seen: BaseException | None = error
    while seen is not None:
        status = getattr(seen, "status_code", None) or getattr(
            getattr(seen, "response", None), "status_code", None
        )
        away = isinstance(seen, ConnectionError | TimeoutError) or type(seen).__name__ in (
            "APIConnectionError", "APITimeoutError", "ConnectError", "ConnectTimeout", "ReadError",
            "ReadTimeout", "RemoteProtocolError", "PoolTimeout",
        )  # fmt: skip
        if status in BUSY_STATUSES or away:
            shown = f"{type(seen).__name__}: {seen}"[:300]
            return Crash(kind="infrastructure", message=shown)
        seen = seen.__cause__  # not what was merely being handled: that may be a bug of its own
    return Crash(kind="crash", message=f"{type(error).__name__}: {error}"[:300])
