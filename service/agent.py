"""`FollowupAgent`: the agent for Python services, sync or async. Owns the checkpoints' lifetime."""

import asyncio
import sqlite3
import uuid
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import aclosing, asynccontextmanager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphRecursionError
from langgraph.types import Command, StateSnapshot

from followup_agent.answers.conclude import conclude
from followup_agent.goals.limits import MAX_STEPS_CEILING
from followup_agent.goals.text import clean_goal
from followup_agent.goals.times import parse_as_of
from followup_agent.graph.build import Graph, build_graph
from followup_agent.graph.checkpoints import open_sqlite_saver
from followup_agent.graph.context import AgentContext, RunOptions, utc_now
from followup_agent.graph.replies import CANCEL
from followup_agent.graph.routing import recursion_limit
from followup_agent.planners import Planner
from followup_agent.service.errors import (
    ConfigurationError,
    InvalidOption,
    NoAnswer,
    NotWaiting,
    ThreadBusy,
    UnknownThread,
)
from followup_agent.service.events import RunEvent, RunStopped, events_of
from followup_agent.service.home import make_home
from followup_agent.service.index import ThreadEntry, ThreadIndex, runs_path
from followup_agent.service.run import Run
from followup_agent.service.settings import load_settings
from followup_agent.service.timeline import TimelineStep, timeline
from followup_agent.service.wiring import (
    check_thread_id,
    choose_planner,
    make_context,
    open_log,
)
from followup_agent.state import AgentInput, StopReason
from followup_agent.tools.definition import ToolDefinition

T = TypeVar("T")


class FollowupAgent:
    """Asks, answers, approves: one object for any number of threads and runs.

    Made by `open()` (sync methods) or `aopen()` (methods with a leading `a`). Every method raises
    UsageError, ThreadError or ConfigurationError before anything is changed.
    """

    def __init__(self, context: AgentContext, graph: Graph, index: ThreadIndex) -> None:
        """Use `open` or `aopen`."""
        self._context = context
        self._graph = graph
        self._index = index
        self._busy: set[str] = set()
        self._portal: BlockingPortal | None = None

    # --- opening ---

    @classmethod
    @contextmanager
    def open(cls, **options: Any) -> Iterator["FollowupAgent"]:
        """Open for sync use; the same options as `aopen`. Runs on an event loop of its own."""
        with (
            start_blocking_portal() as portal,
            portal.wrap_async_context_manager(cls.aopen(**options)) as agent,
        ):
            agent._portal = portal
            yield agent

    @classmethod
    @asynccontextmanager
    async def aopen(
        cls,
        *,
        tools: Iterable[ToolDefinition] = (),
        planner_object: Planner | None = None,
        clock: Callable[[], datetime] = utc_now,
        log_to_stderr: bool = False,
        **settings: Any,
    ) -> AsyncIterator["FollowupAgent"]:
        """Open for async use.

        `settings` override the environment: home, customers_url, runs_url, timezone, planner,
        max_steps, user, … (see `followup doctor`). `tools` come on top of the built-in ones;
        `planner_object` replaces the planner. ConfigurationError when something cannot be used.
        """
        loaded = load_settings(**settings)
        if planner_object is None:
            choose_planner(loaded)

        def prepare() -> tuple[AgentContext, Callable[[], None], ThreadIndex, Path]:
            make_home(loaded.home)
            log = open_log(loaded, to_stderr=log_to_stderr)
            try:
                context = make_context(
                    loaded, log=log, tools=tools, planner=planner_object, clock=clock
                )
                index = ThreadIndex(runs_path(loaded))
            except BaseException:
                log.close()
                raise
            detach = log.attach()

            def close() -> None:
                detach()
                index.close()
                if context.customers is not None:
                    context.customers.close()
                log.close()

            return context, close, index, runs_path(loaded)

        context, close, index, path = await asyncio.to_thread(prepare)
        try:
            async with open_sqlite_saver(path) as saver:
                yield cls(context, build_graph(context, checkpointer=saver), index)
        except sqlite3.DatabaseError as error:
            raise ConfigurationError(f"the runs database {path}: {error}") from error
        finally:
            close()

    # --- async ---

    async def aask(
        self,
        goal: str,
        *,
        thread_id: str | None = None,
        max_steps: int | None = None,
        as_of: str | None = None,
    ) -> Run:
        """One run on a new or finished thread: to its end, or to its first question or approval."""
        return await _last(
            self.astream(goal, thread_id=thread_id, max_steps=max_steps, as_of=as_of)
        )

    async def astream(
        self,
        goal: str,
        *,
        thread_id: str | None = None,
        max_steps: int | None = None,
        as_of: str | None = None,
    ) -> AsyncGenerator[RunEvent]:
        """The same, step by step. A question that is open on the thread is dropped by a new goal.

        To leave early, close it (`contextlib.aclosing`): the thread is then free at once.
        """
        goal = clean_goal(goal)
        thread_id = check_thread_id(str(uuid.uuid4()) if thread_id is None else thread_id)
        options = self._options(max_steps, as_of)
        async with aclosing(self._run(thread_id, {"user_goal": goal}, options)) as events:
            async for event in events:
                yield event

    async def aanswer(self, thread_id: str, text: str) -> Run:
        """Answer the pending question and go on; NoAnswer for a blank one."""
        return await _last(self.astream_answer(thread_id, text))

    async def astream_answer(self, thread_id: str, text: str) -> AsyncGenerator[RunEvent]:
        """The same, step by step."""
        if not isinstance(text, str) or not text.strip():
            raise NoAnswer("no answer given: the question stays open")
        async with aclosing(self._resume(thread_id, "answer", clean_goal(text))) as events:
            async for event in events:
                yield event

    async def aapprove(self, thread_id: str) -> Run:
        """Approve the pending write, exactly as it was shown, and go on."""
        return await _last(self.astream_decision(thread_id, approve=True))

    async def areject(self, thread_id: str, reason: str = "") -> Run:
        """Reject the pending write and go on without it."""
        return await _last(self.astream_decision(thread_id, approve=False, reason=reason))

    async def astream_decision(
        self, thread_id: str, *, approve: bool, reason: str = ""
    ) -> AsyncGenerator[RunEvent]:
        """Approve or reject, step by step."""
        decision = {"type": "approve"} if approve else {"type": "reject", "message": reason}
        async with aclosing(
            self._resume(thread_id, "approval", {"decisions": [decision]})
        ) as events:
            async for event in events:
                yield event

    async def acancel(self, thread_id: str) -> Run:
        """Drop the pending question or approval; the run ends as cancelled."""
        return await _last(self.astream_cancel(thread_id))

    async def astream_cancel(self, thread_id: str) -> AsyncGenerator[RunEvent]:
        """The same, step by step."""
        async with aclosing(self._resume(thread_id, None, CANCEL)) as events:
            async for event in events:
                yield event

    async def aget(self, thread_id: str) -> Run:
        """The last run of a thread as it stands; UnknownThread."""
        return Run.from_state(thread_id, (await self._snapshot(thread_id)).values)

    async def atimeline(self, thread_id: str) -> list[TimelineStep]:
        """The last run of a thread step by step, from its checkpoints; UnknownThread."""
        await self._snapshot(thread_id)
        history = [s async for s in self._graph.aget_state_history(self._config(thread_id))]
        return timeline(reversed(history))

    # --- sync ---

    def ask(
        self,
        goal: str,
        *,
        thread_id: str | None = None,
        max_steps: int | None = None,
        as_of: str | None = None,
    ) -> Run:
        """Sync form of `aask`."""
        return self._call(
            lambda: self.aask(goal, thread_id=thread_id, max_steps=max_steps, as_of=as_of)
        )

    def stream(
        self,
        goal: str,
        *,
        thread_id: str | None = None,
        max_steps: int | None = None,
        as_of: str | None = None,
    ) -> Iterator[RunEvent]:
        """Sync form of `astream`."""
        events = self.astream(goal, thread_id=thread_id, max_steps=max_steps, as_of=as_of)
        try:
            while (event := self._call(lambda: _next(events))) is not None:
                yield event
        finally:
            self._call(events.aclose)

    def answer(self, thread_id: str, text: str) -> Run:
        """Sync form of `aanswer`."""
        return self._call(lambda: self.aanswer(thread_id, text))

    def approve(self, thread_id: str) -> Run:
        """Sync form of `aapprove`."""
        return self._call(lambda: self.aapprove(thread_id))

    def reject(self, thread_id: str, reason: str = "") -> Run:
        """Sync form of `areject`."""
        return self._call(lambda: self.areject(thread_id, reason))

    def cancel(self, thread_id: str) -> Run:
        """Sync form of `acancel`."""
        return self._call(lambda: self.acancel(thread_id))

    def get(self, thread_id: str) -> Run:
        """Sync form of `aget`."""
        return self._call(lambda: self.aget(thread_id))

    def timeline(self, thread_id: str) -> list[TimelineStep]:
        """Sync form of `atimeline`."""
        return self._call(lambda: self.atimeline(thread_id))

    def _call(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._portal is None:
            raise RuntimeError("opened with aopen(): use the methods with a leading 'a'")
        result: T = self._portal.call(function)
        return result

    # --- one run, or one leg of it ---

    def _options(self, max_steps: int | None, as_of: str | None) -> RunOptions:
        default = self._context.options
        if max_steps is not None and (
            type(max_steps) is not int or not 1 <= max_steps <= MAX_STEPS_CEILING
        ):
            raise InvalidOption(f"max_steps is {max_steps!r}: it must be 1 to {MAX_STEPS_CEILING}")
        if as_of is not None:
            try:
                parse_as_of(as_of, self._context.timezone)
            except ValueError as error:
                raise InvalidOption(str(error)) from error
        return RunOptions(max_steps=max_steps or default.max_steps, as_of=as_of, user=default.user)

    async def _resume(
        self, thread_id: str, waits_for: str | None, reply: Any
    ) -> AsyncGenerator[RunEvent]:
        """Hand a reply to what the thread waits for; `waits_for` None takes whatever it is."""
        snapshot = await self._snapshot(thread_id)
        run = Run.from_state(thread_id, snapshot.values)
        options = self._options(run.max_steps, None)
        if snapshot.next and not snapshot.interrupts and run.waiting_for is not None:
            # The process ended between the question and the pause: go on to the pause first.
            async for _ in self._run(thread_id, None, options):
                pass
            snapshot = await self._snapshot(thread_id)
        if not snapshot.interrupts or run.waiting_for is None:
            if waits_for is None and snapshot.next:
                yield RunStopped(await self._end(thread_id, "cancelled"))
                return
            hint = "; it was cut off: ask again, or cancel it" if snapshot.next else ""
            raise NotWaiting(f"thread {thread_id} waits for nothing{hint}")
        if waits_for not in (None, run.waiting_for):
            raise NotWaiting(
                f"thread {thread_id} waits for an {run.waiting_for}, not for an {waits_for}"
            )
        command: Command[Any] = Command(resume={snapshot.interrupts[0].id: reply})
        async with aclosing(self._run(thread_id, command, options)) as events:
            async for event in events:
                yield event

    async def _run(
        self,
        thread_id: str,
        graph_input: AgentInput | Command[Any] | None,
        options: RunOptions,
    ) -> AsyncGenerator[RunEvent]:
        """Drive the graph and yield its events; the last one is the run as it stands."""
        if thread_id in self._busy:
            raise ThreadBusy(f"thread {thread_id} is being written to by another call")
        self._busy.add(thread_id)
        config = self._config(thread_id, options.max_steps)
        state: Mapping[str, Any] = {}
        just_begun = False
        try:
            try:
                async for part in self._graph.astream(
                    graph_input,
                    config,
                    context=options,
                    stream_mode=["updates", "values"],
                    durability="sync",
                    version="v2",
                ):
                    if part["type"] == "values":
                        state = part["data"]
                        if just_begun:  # listed from the start: a run that is cut off stays on it
                            await self._record(Run.from_state(thread_id, state))
                    if part["type"] != "updates":
                        continue
                    just_begun = "intake" in part["data"]
                    for node, update in part["data"].items():
                        for event in events_of(node, update or {}):
                            yield event
                run = Run.from_state(thread_id, state)
                await self._record(run)
            except GraphRecursionError:
                run = await self._end(thread_id, "recursion_limit")
        finally:
            self._busy.discard(thread_id)
        yield RunStopped(run)

    async def _record(self, run: Run) -> None:
        await self._index.record(
            ThreadEntry(
                thread_id=run.thread_id,
                user_goal=run.user_goal,
                status=run.status,
                stop_reason=run.stop_reason,
                updated_at=self._context.clock(),
                waiting_for=run.waiting_for,
            )
        )

    async def _end(self, thread_id: str, reason: StopReason) -> Run:
        """End a run from outside, as `give_up` would have: its own limit was broken, or it was cut
        off and is cancelled."""
        config = self._config(thread_id)
        state = (await self._graph.aget_state(config)).values
        end = conclude(state, self._context.policy, reason)  # type: ignore[arg-type]
        update = {
            **end,
            "pending_questions": [],
            "approval": None,
            "messages": [AIMessage(end["final_answer"])],
        }
        await self._graph.aupdate_state(config, update, as_node="give_up")
        run = Run.from_state(thread_id, (await self._graph.aget_state(config)).values)
        await self._record(run)
        return run

    async def _snapshot(self, thread_id: str) -> StateSnapshot:
        snapshot = await self._graph.aget_state(self._config(check_thread_id(thread_id)))
        if not snapshot.values.get("run_id"):
            raise UnknownThread(f"there is no thread {thread_id}; `followup threads` lists them")
        return snapshot

    def _config(self, thread_id: str, max_steps: int = MAX_STEPS_CEILING) -> RunnableConfig:
        return {
            "configurable": {"thread_id": thread_id},
            "recursion_limit": recursion_limit(max_steps),
        }


async def _next(events: AsyncIterator[RunEvent]) -> RunEvent | None:
    return await anext(events, None)


async def _last(events: AsyncGenerator[RunEvent]) -> Run:
    """Run to the end and return the run."""
    run: Run | None = None
    async with aclosing(events):
        async for event in events:
            if isinstance(event, RunStopped):
                run = event.run
    if run is None:
        raise RuntimeError("the run ended without a result")
    return run
