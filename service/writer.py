"""`ThreadWriter`: the one way in which a thread is read and written to. Knows leases, not people.

A call takes the lease of its thread, drives the graph for one leg (to the end, or to a pause), and
gives the lease back with how the run then stands. What may be asked of a thread, and by whom, is
`service/agent.py`'s.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from anyio import CancelScope
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained, GraphRecursionError
from langgraph.runtime import RunControl
from langgraph.types import Command, StateSnapshot
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from followup_agent.answers.conclude import conclude
from followup_agent.goals.limits import MAX_STEPS_CEILING
from followup_agent.graph.build import Graph
from followup_agent.graph.checkpoints import HeldEvents
from followup_agent.graph.context import AgentContext, RunOptions
from followup_agent.graph.routing import recursion_limit
from followup_agent.graph.step import LeftAsItIs, check_version, log_fields
from followup_agent.runs.database import RunsDatabase
from followup_agent.runs.index import ThreadEntry, ThreadIndex
from followup_agent.runs.leases import Leases
from followup_agent.service.errors import FollowupError, ShuttingDown, ThreadBusy, UnknownThread
from followup_agent.service.events import RunEvent, events_of
from followup_agent.service.run import Run
from followup_agent.service.storage import storage_errors, unreadable
from followup_agent.service.wiring import check_thread_id
from followup_agent.state import AgentInput, StopReason

CLOSING = "the agent is being closed: ask again elsewhere, or later"


@dataclass
class Leg:
    """One stretch of writing to a thread."""

    thread_id: str
    run: Run | None = None
    """How the run stands, as far as it is known; when the stretch ends, that is put on the list."""
    has_written: bool = False
    """Whether anything of the run has changed: else the list keeps its time."""

    @property
    def stopped(self) -> Run:
        """The run, which has stopped."""
        if self.run is None:
            raise RuntimeError("the run ended without a result")
        return self.run


class ThreadWriter:
    """Reads threads, and writes to each as the only one. One object for any number of threads."""

    def __init__(
        self,
        context: AgentContext,
        graph: Graph,
        runs: RunsDatabase,
        leases: Leases,
        events: HeldEvents,
    ) -> None:
        """`graph` stores its runs in `runs`, fenced by `leases`, and holds its log in `events`."""
        self.graph = graph
        self.index = ThreadIndex(runs)
        self._context = context
        self._runs = runs
        self._leases = leases
        self._events = events
        self._controls: set[RunControl] = set()
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = False

    # --- the lease ---

    @asynccontextmanager
    async def lease(
        self, thread_id: str, goal: str | None = None, *, known: bool = False
    ) -> AsyncIterator[Leg]:
        """Be the one writer of this thread: ThreadBusy at once when somebody else is.

        The transaction that takes the lease lists the thread as running, with a new `goal` if there
        is one; the one that gives it back, as the run then stands. So a thread whose writer was
        killed stays listed as running, and is looked at again, however far he came. A thread that
        may be `known` is read first, to be refused before anything is written.
        """
        check_thread_id(thread_id)
        if self._draining:
            raise ShuttingDown(CLOSING)
        self._enter()
        leg = Leg(thread_id)
        try:
            with storage_errors(thread_id):
                if known:
                    with suppress(UnknownThread):
                        await self.snapshot(thread_id)
                await self._acquire(leg, goal)
                try:
                    yield leg
                finally:
                    self._events.discard(thread_id)
                    with CancelScope(shield=True):
                        await self._runs.call(lambda: self._release(leg))
        finally:
            self._leave()

    async def _acquire(self, leg: Leg, goal: str | None) -> None:
        def mark(thread_id: str, connection: Connection) -> None:
            self.index.mark_running(thread_id, goal, self._context.clock(), connection)

        taking = asyncio.ensure_future(
            self._runs.call(lambda: self._leases.acquire(leg.thread_id, mark))
        )
        try:
            await asyncio.shield(taking)
        except asyncio.CancelledError:  # the caller has gone, but the thread may have the lease yet
            with CancelScope(shield=True), suppress(FollowupError, SQLAlchemyError):
                await taking
                await self._runs.call(lambda: self._release(leg))
            raise

    def _release(self, leg: Leg) -> None:
        with self._leases.releasing(leg.thread_id) as (connection, was_ours):
            if was_ours and leg.run is not None:
                entry = entry_of(leg.run, self._context.clock())
                self.index.record(entry, connection, keep_time=not leg.has_written)

    async def renew_leases(self) -> None:
        """Until cancelled, put off the end of every lease that is held."""
        while True:
            await asyncio.sleep(self._leases.lease_s / 3)
            try:
                await self._runs.call(self._leases.renew)
            except Exception as error:  # tried again; until then the fence protects the thread
                self._context.log.error("renewal", error)

    # --- one leg of a run ---

    async def drive(
        self, leg: Leg, graph_input: AgentInput | Command[Any] | None, options: RunOptions
    ) -> AsyncGenerator[RunEvent]:
        """Drive the graph and yield its events; then `leg.run` is the run as it stands."""
        leg.run, leg.has_written = None, True  # the list says running, until it is known better
        thread_id, control = leg.thread_id, RunControl()
        self._controls.add(control)
        if self._draining:
            control.request_drain()
        state: Mapping[str, Any] = {}
        try:
            async for part in self.graph.astream(
                graph_input,
                self.config(thread_id, options.max_steps),
                context=options,
                stream_mode=["updates", "values"],
                durability="sync",
                control=control,
                version="v2",
            ):
                if part["type"] == "values":
                    state = part["data"]
                if part["type"] != "updates":
                    continue
                for node, update in part["data"].items():
                    for event in events_of(node, update or {}):
                        self._leave()  # nobody waits for a consumer that never comes back
                        try:
                            yield event
                        finally:
                            self._enter()
            leg.run = Run.from_state(thread_id, state)
        except GraphRecursionError:
            await self.end(leg, "recursion_limit")
        except GraphDrained as drained:
            snapshot = await self.snapshot(thread_id, begun=False)
            if not snapshot.values.get("run_id"):  # nothing was looked at yet
                raise ShuttingDown(CLOSING) from drained
            leg.run = Run.from_state(thread_id, snapshot.values)
        except LeftAsItIs as left:
            raise left.error from left
        finally:
            self._controls.discard(control)

    async def end(self, leg: Leg, reason: StopReason) -> None:
        """End a run from outside, as `give_up` would have: its own limit was broken, or it was cut
        off and is cancelled."""
        leg.has_written = True
        config, log = self.config(leg.thread_id), self._context.log
        state = (await self.graph.aget_state(config)).values
        context = self._context
        end = conclude(state, context.policy, reason, context.ids, context.timezone)  # type: ignore[arg-type] # as stored
        update = {
            **end,
            "pending_questions": [],
            "approval": None,
            "approved": None,
            "messages": [AIMessage(end["final_answer"])],
        }
        await self.graph.aupdate_state(config, update, as_node="give_up")
        log.bind(log_fields(state))
        log.emit(
            "agent.run.finished", state={"status": end["status"], "stopReason": end["stop_reason"]}
        )
        leg.run = Run.from_state(leg.thread_id, (await self.graph.aget_state(config)).values)

    async def apply_stored_result(self, leg: Leg, snapshot: StateSnapshot) -> StateSnapshot:
        """The thread, when the last node's result is stored but no checkpoint with it, brought up
        to date.

        LangGraph applies such results when a run goes on, not when a state is updated: so it goes
        on, and stops before the next node.
        """
        if not snapshot.tasks or snapshot.next:
            return snapshot
        leg.has_written = True
        config = self.config(leg.thread_id)
        await self.graph.ainvoke(None, config, interrupt_before="*", durability="sync")
        return await self.snapshot(leg.thread_id)

    # --- reading ---

    async def snapshot(self, thread_id: str, *, begun: bool = True) -> StateSnapshot:
        """The thread as it is stored; UnknownThread, IncompatibleThread, StorageError.

        `begun` False: one that was killed before it had read its goal will do.
        """
        with unreadable(thread_id):
            snapshot = await self.graph.aget_state(self.config(check_thread_id(thread_id)))
        if not snapshot.values.get("run_id") and (begun or not snapshot.tasks):
            raise UnknownThread(f"there is no thread {thread_id}; `followup threads` lists them")
        check_version(snapshot.values)
        return snapshot

    async def history(self, thread_id: str) -> list[StateSnapshot]:
        """Every checkpoint, the oldest first."""
        await self.snapshot(thread_id)
        with unreadable(thread_id):
            history = [s async for s in self.graph.aget_state_history(self.config(thread_id))]
        return history[::-1]

    def config(self, thread_id: str, max_steps: int = MAX_STEPS_CEILING) -> RunnableConfig:
        """LangGraph's config of the thread."""
        return {
            "configurable": {"thread_id": thread_id},
            "recursion_limit": recursion_limit(max_steps),
        }

    def cut_off(self) -> list[str]:
        """Threads listed as running that nobody alive is writing to. Blocks."""
        held = self._leases.held()
        running = [entry for entry in self.index.entries() if entry.status == "running"]
        return [entry.thread_id for entry in running if entry.thread_id not in held]

    # --- forgetting ---

    async def forget(self, thread_id: str, before: datetime) -> bool:
        """Forget a thread, unless it was written to after `before` or somebody writes to it now."""
        try:
            async with self.lease(thread_id) as leg:
                if not await self._runs.call(lambda: self.index.is_older(thread_id, before)):
                    leg.run = Run.from_state(thread_id, (await self.snapshot(thread_id)).values)
                    return False
                await self.graph.checkpointer.adelete_thread(thread_id)  # type: ignore[union-attr] # there is one
                await self._runs.call(lambda: self.index.forget(thread_id))
        except ThreadBusy:
            return False
        return True

    # --- closing ---

    def drain(self) -> None:
        """Ask every run to stop after its current step, and take nothing new. Returns at once."""
        self._draining = True
        for control in self._controls:
            control.request_drain()

    async def idle(self) -> None:
        """Wait until no run is left."""
        while self._under_way:
            await self._idle.wait()

    def _enter(self) -> None:
        self._under_way += 1
        self._idle.clear()

    def _leave(self) -> None:
        self._under_way -= 1
        if not self._under_way:
            self._idle.set()


def is_cut_off(snapshot: StateSnapshot) -> bool:
    """Whether something is left to do, and no pause before it.

    `snapshot.next` leaves out a node whose result is stored while its checkpoint is not: a process
    killed in between has a next step all the same.
    """
    return bool(snapshot.tasks) and not snapshot.interrupts


def entry_of(run: Run, at: datetime) -> ThreadEntry:
    """The line of the list for a run that stands so at this time."""
    return ThreadEntry(
        thread_id=run.thread_id,
        user_goal=run.user_goal,
        status=run.status,
        stop_reason=run.stop_reason,
        updated_at=at,
        waiting_for=run.waiting_for,
    )
