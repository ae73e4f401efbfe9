"""The same judgement, three tool calls and a finish, done by four machines.

Planner and tools take no time, so that what is measured is what the machine itself costs.
"""

import copy
import dataclasses
import json
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.graph import START, StateGraph
from langgraph.types import Command
from pydantic import Field, TypeAdapter

from followup_agent import FollowupAgent, UnknownThread
from followup_agent.goals.ids import IdPattern
from followup_agent.goals.limits import MAX_STEPS_CEILING
from followup_agent.graph.build import PICTURE, build_graph
from followup_agent.graph.checkpoints import HeldEvents, open_sqlite_saver
from followup_agent.graph.context import AgentContext, RunOptions
from followup_agent.graph.routing import after_start
from followup_agent.graph.step import destinations
from followup_agent.judgement.policy import load_policy
from followup_agent.planners import Planner
from followup_agent.runs.database import RunsDatabase
from followup_agent.runs.ledger import SqlLedger
from followup_agent.service.logs import JsonLog
from followup_agent.service.writer import Leg, ThreadWriter, entry_of
from followup_agent.state import AgentInput, AgentState, Decision
from followup_agent.tools.definition import ToolArgs, ToolDefinition, ToolResult
from followup_agent.tools.outcome import EvidenceDraft, FactDraft
from followup_agent.tools.registry import ToolRegistry
from followup_agent.tools.runner import ToolRunner

GOAL = "帮我判断 user_123 最近是否需要重点跟进"
NAMES = ("get_user_activity", "get_user_orders", "get_open_tickets")
Judge = Callable[[str], Awaitable[Any]]
"""Judges once, on the thread of this name."""


# --- ours ---


class Args(ToolArgs):
    """Whose data, over how many days."""

    user_id: str = Field(description="Customer id.")
    days: int = Field(ge=1, le=365, description="Lookback in days.")


class Result(ToolResult):
    """Two numbers."""

    first: int
    second: int


async def _run(args: Args) -> Result:
    return Result(first=2, second=1)


def _tool(name: str) -> ToolDefinition:
    return ToolDefinition(
        name=name,
        description="Return two numbers about a customer.",
        args=Args,
        result=Result,
        run=_run,
        facts=lambda args, result: {
            f"first_{name}_{args.days}d": FactDraft(result.first, "days", args.days),
            f"second_{name}_{args.days}d": FactDraft(result.second, "days", args.days),
        },
        evidence=lambda args, result, language: (
            EvidenceDraft(f"近 {args.days} 天 {result.first}，{result.second}", 0.9),
        ),
        effect="read",
    )


def registry() -> ToolRegistry:
    """The three tools."""
    return ToolRegistry(map(_tool, NAMES))


class Scripted:
    """Calls so many tools, then finishes. No two calls are the same."""

    name = "scripted"

    def __init__(self, calls: int) -> None:
        """Plan this many tool calls."""
        self._calls = calls

    async def decide(self, state: AgentState) -> Mapping[str, Any]:
        """The next call."""
        step = state["current_step"]
        if step >= self._calls:
            return {"type": "finish", "reason": "enough", "answer_draft": ""}
        return {
            "type": "tool",
            "tool_name": NAMES[step % 3],
            "args": {"user_id": "user_123", "days": 7 + step // 3},
            "reason": "evidence is still missing",
            "expected_outcome": "two numbers",
        }


def ours(log_path: Path, calls: int = 3, planner: Planner | None = None) -> tuple[Any, JsonLog]:
    """Our graph with scripted planner and tools, logging to a file as in production."""
    log = JsonLog(log_path)
    context = AgentContext(
        planner=planner or Scripted(calls),
        tools=ToolRunner(registry(), log.error),
        customers=None,
        policy=load_policy(),
        ids=IdPattern(),
        log=log,
        ledger=SqlLedger(RunsDatabase(f"sqlite:///{log_path.with_suffix('.db')}")),
        options=RunOptions(max_steps=min(calls + 1, MAX_STEPS_CEILING)),
    )
    return lambda checkpointer=None: build_graph(context, checkpointer=checkpointer), log


# --- a bare graph of the same shape: our recorded updates, nothing else ---


async def record(graph: Any) -> list[tuple[str, dict[str, Any]]]:
    """The updates of one run of ours, node by node."""
    updates = []
    async for part in graph.astream({"user_goal": GOAL}, stream_mode="updates"):
        updates += list(part.items())
    return updates


def bare(
    updates: list[tuple[str, dict[str, Any]]],
    checkpointer: Any = None,
    *,
    command: bool = False,
    planning: Callable[[int], Awaitable[Any]] | None = None,
) -> Any:
    """The same nodes, edges, channels and updates, without validation, logging or any logic.

    `planning`, if given, is awaited by the planner node, with the number of calls made so far.

    Branches are LangGraph's conditional edges with async routers; with `command`, as in ours, the
    nodes return `Command(goto)` themselves.
    """
    builder = StateGraph(AgentState, input_schema=AgentInput, output_schema=AgentState)
    by_step = {
        (node, sum(n == node for n, _ in updates[:i])): u for i, (node, u) in enumerate(updates)
    }
    rounds = sum(node == "updater" for node, _ in updates)

    def after(name: str, done: int) -> str:
        if name == "planner":
            return "synthesizer" if done >= rounds else "tool_executor"
        return "planner"

    def node(name: str, branches: bool) -> Callable[[AgentState], Awaitable[Any]]:
        async def run(state: AgentState) -> Any:
            done = 0 if name in ("intake", "synthesizer") else len(state["tool_history"])
            if planning is not None and name == "planner":
                await planning(done)
            update = by_step[name, done]
            return Command(update=update, goto=after(name, done)) if branches else update

        return run

    def router(name: str) -> Callable[[AgentState], Awaitable[str]]:
        async def run(state: AgentState) -> str:
            return after(name, len(state["tool_history"]))

        return run

    builder.add_conditional_edges(START, after_start, ["intake"])
    for ours, then in PICTURE:
        name = ours.__name__
        if isinstance(then, str):
            builder.add_node(name, node(name, False))
            builder.add_edge(name, then)
        elif command:
            builder.add_node(name, node(name, True), destinations=destinations(then))
        else:
            builder.add_node(name, node(name, False))
            builder.add_conditional_edges(name, router(name), list(destinations(then)))
    return builder.compile(checkpointer=checkpointer).with_config(recursion_limit=500)


# --- the seed's plain loop ---


async def plain_loop(log_file: TextIO) -> dict[str, Any]:
    """The seed document's `runAgent`, call by call, with what its section 9.2 asks for.

    `planNextAction` is given the state and the tools as a prompt object, and its decision and the
    tool's arguments are validated; the state is cloned before each update; every event is one JSON
    line, written at once, as `console.log` does.
    """

    def log(event_name: str, **payload: Any) -> None:
        record = {"timestamp": datetime.now(UTC).isoformat(), "eventName": event_name, **payload}
        log_file.write(json.dumps(record, ensure_ascii=False) + "\n")
        log_file.flush()

    state: dict[str, Any] = {
        "sessionId": str(uuid.uuid4()),
        "userGoal": GOAL,
        "currentStep": 0,
        "maxSteps": 6,
        "status": "running",
        "facts": {},
        "evidence": [],
        "toolHistory": [],
        "pendingQuestions": [],
    }
    session = state["sessionId"]
    while state["status"] == "running" and state["currentStep"] < state["maxSteps"]:
        state["currentStep"] += 1
        step = state["currentStep"]
        log("agent.step.started", sessionId=session, step=step, goal=GOAL)
        decision = _DECISION.validate_python(_plan_next_action(state))
        log("agent.decision.made", sessionId=session, step=step, decision=decision)
        if decision["type"] == "finish":
            state["finalAnswer"] = "\n".join(f"- {item['summary']}" for item in state["evidence"])
            state["status"] = "completed"
            break
        if decision["type"] == "ask_user":
            break
        tool = _TOOLS[decision["tool_name"]]
        started = time.monotonic()
        result = await tool.run(tool.parse_args(decision["args"]))
        duration_ms = round((time.monotonic() - started) * 1000)
        state = _update_state(state, tool.name, decision["args"], result, duration_ms)
        log(
            "agent.tool.succeeded",
            sessionId=session,
            step=step,
            toolName=tool.name,
            durationMs=duration_ms,
        )
    return state


_DECISION: TypeAdapter[Decision] = TypeAdapter(Decision)
_TOOLS = {name: _tool(name) for name in NAMES}


def _plan_next_action(state: dict[str, Any]) -> dict[str, Any]:
    prompt = {
        "userGoal": state["userGoal"],
        "currentStep": state["currentStep"],
        "maxSteps": state["maxSteps"],
        "facts": state["facts"],
        "evidence": state["evidence"],
        "toolHistory": state["toolHistory"],
        "availableTools": [
            {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}
            for tool in _TOOLS.values()
        ],
        "instruction": "Choose exactly one next action. Finish when evidence is enough.",
    }
    step = len(prompt["toolHistory"])
    if step >= len(NAMES):
        return {"type": "finish", "reason": "enough", "answer_draft": ""}
    return {
        "type": "tool",
        "tool_name": NAMES[step],
        "args": {"user_id": "user_123", "days": 7},
        "reason": "evidence is still missing",
        "expected_outcome": "two numbers",
    }


def _update_state(
    state: dict[str, Any], tool_name: str, args: dict[str, Any], result: Any, duration_ms: int
) -> dict[str, Any]:
    following = copy.deepcopy(state)
    summary = f"近 7 天 {result.first}，{result.second}"
    following["toolHistory"].append(
        {
            "step": state["currentStep"],
            "toolName": tool_name,
            "args": args,
            "resultSummary": summary,
            "success": True,
            "durationMs": duration_ms,
        }
    )
    following["facts"][f"first_{tool_name}"] = result.first
    following["facts"][f"second_{tool_name}"] = result.second
    following["evidence"].append({"source": tool_name, "summary": summary, "confidence": 0.9})
    return following


# --- LangChain's create_agent ---


def langchain_agent(checkpointer: Any = None) -> Any:
    """`create_agent` with a scripted chat model and three tools, one call a round."""
    from langchain.agents import create_agent
    from langchain_core.language_models import BaseChatModel
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.tools import tool

    class Model(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "scripted"

        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            return self

        def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
            return ChatResult(generations=[ChatGeneration(message=self._next(messages))])

        async def _agenerate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
            return self._generate(messages)

        def _next(self, messages: list[AnyMessage]) -> AIMessage:
            since = next(i for i, m in enumerate(reversed(messages)) if m.type == "human")
            done = sum(m.type == "tool" for m in messages[len(messages) - since :])
            if done >= 3:
                return AIMessage("enough")
            call = {
                "name": NAMES[done],
                "args": {"user_id": "user_123", "days": 7},
                "id": f"c{done}",
            }
            return AIMessage("", tool_calls=[call])

    def make(name: str) -> Any:
        async def run(user_id: str, days: int) -> dict[str, int]:
            """Return two numbers about a customer."""
            return {"first": 2, "second": 1}

        run.__name__ = name
        return tool(run)

    return create_agent(Model(), [make(name) for name in NAMES], checkpointer=checkpointer)


class Unleased(ThreadWriter):
    """Writes without leases: the same list of threads, the same calls."""

    @asynccontextmanager
    async def lease(
        self, thread_id: str, goal: str | None = None, *, known: bool = False
    ) -> AsyncIterator[Leg]:
        if known:
            with suppress(UnknownThread):
                await self.snapshot(thread_id)
        leg = Leg(thread_id)
        await self._runs.call(lambda: self._list(thread_id, goal, None))
        yield leg
        await self._runs.call(lambda: self._list(thread_id, goal, leg.run))

    def _list(self, thread_id: str, goal: str | None, run: Any) -> None:
        now = self._context.clock()
        with self._runs.writing() as connection:
            if run is None:
                self.index.mark_running(thread_id, goal, now, connection)
            else:
                self.index.record(entry_of(run, now), connection)


@asynccontextmanager
async def unleased(home: Path) -> AsyncIterator[FollowupAgent]:
    """An agent on a runs database of its own, with LangGraph's saver as it comes."""
    database = home / "unleased.db"
    async with (
        FollowupAgent.aopen(home=home, runs_url=f"sqlite:///{database}", planner="rules") as agent,
        open_sqlite_saver(database) as saver,
    ):
        context = dataclasses.replace(agent._context, outbox=None)
        graph = build_graph(context, checkpointer=saver)
        runs, leases = agent._runs, agent._writer._leases
        writer = Unleased(context, graph, runs, leases, HeldEvents(context.log.write))
        yield FollowupAgent(context, writer, runs)
