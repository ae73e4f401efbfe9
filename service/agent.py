"""`FollowupAgent`: the agent for Python services, sync or async. Owns the checkpoints' lifetime."""

import asyncio
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
from contextlib import (
    aclosing,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from anyio import CancelScope
from anyio.from_thread import BlockingPortal, start_blocking_portal
from langgraph.types import Command
from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from followup_agent.goals.limits import MAX_STEPS_CEILING
from followup_agent.goals.text import clean_goal
from followup_agent.goals.times import parse_as_of
from followup_agent.graph.build import build_graph
from followup_agent.graph.context import AgentContext, RunOptions, utc_now
from followup_agent.graph.gate import admit_edit
from followup_agent.graph.replies import CANCEL
from followup_agent.planners import Planner
from followup_agent.runs.database import RunsDatabase
from followup_agent.runs.index import ThreadEntry
from followup_agent.runs.leases import LEASE_S
from followup_agent.service.errors import (
    InvalidOption,
    NoAnswer,
    NotWaiting,
    NotYours,
    UnknownThread,
)
from followup_agent.service.events import RunEvent, RunStopped
from followup_agent.service.history import Checkpoint, checkpoints, fork_of, snapshot_after
from followup_agent.service.opening import open_parts, opened_saver
from followup_agent.service.run import Run
from followup_agent.service.settings import load_settings
from followup_agent.service.timeline import TimelineStep, timeline
from followup_agent.service.wiring import (
    check_thread_id,
)
from followup_agent.service.writer import ThreadWriter, is_cut_off
from followup_agent.tools.definition import ToolDefinition

T = TypeVar("T")


class FollowupAgent:
    """Asks, answers, approves: one object for any number of threads and runs.

    Made by `open()` (sync methods) or `aopen()` (methods with a leading `a`). Every method raises
    UsageError, ThreadError or ConfigurationError before anything is changed.
    """

    def __init__(self, context: AgentContext, writer: ThreadWriter, runs: RunsDatabase) -> None:
        """Use `open` or `aopen`."""
        self._context = context
        self._writer = writer
        self._runs = runs
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
        lease_s: float = LEASE_S,
        **settings: Any,
    ) -> AsyncIterator["FollowupAgent"]:
        """Open for async use.

        `settings` override the environment: home, customers_url, runs_url, timezone, planner,
        max_steps, user, … (see `followup doctor`). `tools` come on top of the built-in ones;
        `planner_object` replaces the planner. A run that hangs for longer than `lease_s` may be
        taken over by another process. ConfigurationError when something cannot be used.
        """
        loaded = load_settings(**settings)
        parts = await asyncio.to_thread(
            lambda: open_parts(
                loaded,
                log_to_stderr=log_to_stderr,
                lease_s=lease_s,
                tools=tools,
                planner=planner_object,
                clock=clock,
            )
        )
        detach = parts.log.attach()
        try:
            async with opened_saver(parts) as (saver, events):
                context = replace(parts.context, outbox=events)
                graph = build_graph(context, checkpointer=saver)
                writer = ThreadWriter(context, graph, parts.runs, parts.leases, events)
                agent = cls(context, writer, parts.runs)
                heart = asyncio.create_task(writer.renew_leases())
                try:
                    yield agent
                finally:
                    with CancelScope(shield=True):
                        await agent.adrain()
                        if planner_object is None and hasattr(context.planner, "aclose"):
                            await context.planner.aclose()
                    heart.cancel()
        finally:
            detach()
            await asyncio.to_thread(parts.close)

    # --- async ---

    async def aask(
        self,
        goal: str,
        *,
        thread_id: str | None = None,
        max_steps: int | None = None,
        as_of: str | None = None,
        deadline_s: float | None = None,
    ) -> Run:
        """One run on a new or finished thread: to its end, or to its first question or approval.

        `deadline_s`: seconds the run may work, over all its resumes; a person's time is not counted.
        """
        return await _last(
            self.astream(
                goal,
                thread_id=thread_id,
                max_steps=max_steps,
                as_of=as_of,
                deadline_s=deadline_s,
            )
        )

    async def astream(
        self,
        goal: str,
        *,
        thread_id: str | None = None,
        max_steps: int | None = None,
        as_of: str | None = None,
        deadline_s: float | None = None,
    ) -> AsyncGenerator[RunEvent]:
        """The same, step by step. A question that is open on the thread is dropped by a new goal.

        To leave early, close it (`contextlib.aclosing`): the thread is then free at once.
        """
        goal = clean_goal(goal)
        known = thread_id is not None
        thread_id = check_thread_id(str(uuid.uuid4()) if thread_id is None else thread_id)
        options = self._options(max_steps, as_of, deadline_s)
        async with (
            self._writer.lease(thread_id, goal, known=known) as leg,
            aclosing(self._writer.drive(leg, {"user_goal": goal}, options)) as events,
        ):
            async for event in events:
                yield event
        yield RunStopped(leg.stopped)

    async def aanswer(self, thread_id: str, text: str, *, question_id: str | None = None) -> Run:
        """Answer the pending question and go on; NoAnswer for a blank one.

        `question_id` makes sure that it is this question which is answered, and no later one.
        """
        return await _last(self.astream_answer(thread_id, text, question_id=question_id))

    async def astream_answer(
        self, thread_id: str, text: str, *, question_id: str | None = None
    ) -> AsyncGenerator[RunEvent]:
        """The same, step by step."""
        if not isinstance(text, str) or not text.strip():
            raise NoAnswer("no answer given: the question stays open")
        text = clean_goal(text)

        def reply(run: Run) -> Any:
            _require(run, "answer", question_id, run.pending_questions)
            return text

        async with aclosing(self._resume(thread_id, reply)) as events:
            async for event in events:
                yield event

    async def aapprove(
        self,
        thread_id: str,
        *,
        edit: Mapping[str, JsonValue] | None = None,
        approval_id: str | None = None,
    ) -> Run:
        """Approve the pending write as it was shown, or with other arguments, and go on.

        `edit` names the arguments to change (None takes an optional one away); InvalidOption when
        they do not fit, or are to change the customer: the write then still waits. The facts it
        rests on are read again: when they have changed, the write is asked for anew.
        """
        return await _last(
            self.astream_decision(thread_id, approve=True, edit=edit, approval_id=approval_id)
        )

    async def areject(
        self, thread_id: str, reason: str = "", *, approval_id: str | None = None
    ) -> Run:
        """Reject the pending write and go on without it."""
        return await _last(
            self.astream_decision(thread_id, approve=False, reason=reason, approval_id=approval_id)
        )

    async def astream_decision(
        self,
        thread_id: str,
        *,
        approve: bool,
        reason: str = "",
        edit: Mapping[str, JsonValue] | None = None,
        approval_id: str | None = None,
    ) -> AsyncGenerator[RunEvent]:
        """Approve or reject, step by step."""

        def reply(run: Run) -> Any:
            _require(run, "approval", approval_id, [run.approval] if run.approval else [])
            if not approve:
                return {"decisions": [{"type": "reject", "message": reason}]}
            return {"decisions": [self._agreement(run, edit)]}

        # An approval that was taken before the process ended is not given twice: go on with it.
        async with aclosing(self._resume(thread_id, reply, again=approve)) as events:
            async for event in events:
                yield event

    def _agreement(self, run: Run, edit: Mapping[str, JsonValue] | None) -> dict[str, Any]:
        approval = run.approval
        if approval is None:
            raise NotWaiting(f"thread {run.thread_id} waits for no approval")
        user = self._context.options.user
        if approval["approver"] not in (None, user):
            raise NotYours(
                f"thread {run.thread_id} waits for the approval of {approval['approver']}; "
                f"you are {user}"
            )
        if edit is None:
            return {"type": "approve"}
        if not isinstance(edit, Mapping):
            raise InvalidOption("an edit is an object of the arguments to change")
        args = {
            key: value for key, value in {**approval["args"], **edit}.items() if value is not None
        }
        action = {"name": approval["tool_name"], "args": args}
        call = admit_edit(action, approval, self._context.tools)
        if isinstance(call, str):
            raise InvalidOption(f"{call}; the write still waits as it was shown")
        return {"type": "edit", "edited_action": action}

    async def acancel(self, thread_id: str) -> Run:
        """Drop the pending question or approval; the run ends as cancelled."""
        return await _last(self.astream_cancel(thread_id))

    async def astream_cancel(self, thread_id: str) -> AsyncGenerator[RunEvent]:
        """The same, step by step. A run that was cut off is ended as it stands."""
        async with self._writer.lease(thread_id) as leg:
            snapshot = await self._writer.snapshot(thread_id)
            leg.run = run = Run.from_state(thread_id, snapshot.values)
            if not snapshot.tasks:
                raise NotWaiting(f"thread {thread_id} waits for nothing")
            if snapshot.interrupts:
                command: Command[Any] = Command(resume={snapshot.interrupts[0].id: CANCEL})
                options = self._options(run.max_steps, None)
                async with aclosing(self._writer.drive(leg, command, options)) as events:
                    async for event in events:
                        yield event
            else:
                snapshot = await self._writer.apply_stored_result(leg, snapshot)
                leg.run = Run.from_state(thread_id, snapshot.values)
                if not snapshot.tasks:
                    raise NotWaiting(f"thread {thread_id} waits for nothing: it has ended")
                await self._writer.end(leg, "cancelled")
        yield RunStopped(leg.stopped)

    async def aresume(self, thread_id: str) -> Run:
        """Go on with a run that was cut off: its process was killed, stopped, or its caller left.

        NotWaiting when it was not.
        """
        return await _last(self.astream_resume(thread_id))

    async def astream_resume(self, thread_id: str) -> AsyncGenerator[RunEvent]:
        """The same, step by step."""
        async with self._writer.lease(thread_id) as leg:
            try:
                snapshot = await self._writer.snapshot(thread_id, begun=False)
            except UnknownThread:  # killed before anything of it was stored
                await self._runs.call(lambda: self._writer.index.forget(thread_id))
                raise
            if not is_cut_off(snapshot):
                leg.run = run = Run.from_state(thread_id, snapshot.values)
                waits = f"waits for an {run.waiting_for}" if run.waiting_for else "has ended"
                raise NotWaiting(f"thread {thread_id} was not cut off: it {waits}")
            steps = snapshot.values.get("max_steps")
            options = self._options(steps, None)
            async with aclosing(self._writer.drive(leg, None, options)) as events:
                async for event in events:
                    yield event
        yield RunStopped(leg.stopped)

    async def aget(self, thread_id: str) -> Run:
        """The last run of a thread as it stands; UnknownThread."""
        return Run.from_state(thread_id, (await self._writer.snapshot(thread_id)).values)

    async def atimeline(self, thread_id: str) -> list[TimelineStep]:
        """The last run of a thread step by step, from its checkpoints; UnknownThread."""
        return timeline(await self._writer.history(thread_id))

    async def acheckpoints(self, thread_id: str) -> list[Checkpoint]:
        """Every checkpoint of a thread, the oldest first; UnknownThread."""
        return checkpoints(await self._writer.history(thread_id))

    async def afork(
        self, thread_id: str, at_step: int, *, edit: Mapping[str, Any] | None = None
    ) -> Run:
        """A new thread with the last run as it was after decision `at_step` (0: before the first).

        It inherits what was read, never what was approved or written. `edit` changes the state
        first. `aresume` then goes on with it. InvalidOption for a step or an edit that cannot be.
        """
        history = await self._writer.history(thread_id)
        snapshot = snapshot_after(history, at_step)
        fork = str(uuid.uuid4())
        state = fork_of(
            snapshot.values, fork, edit or {}, self._context.tools.registry, self._context.timezone
        )
        async with self._writer.lease(fork) as leg:
            leg.has_written = True
            await self._writer.graph.aupdate_state(
                self._writer.config(fork), state, as_node="intake"
            )
            leg.run = await self.aget(fork)
        return leg.stopped

    async def athreads(self) -> list[ThreadEntry]:
        """What ran and what waits, the latest first."""
        return await self._runs.call(self._writer.index.entries)

    async def acut_off(self) -> list[str]:
        """Threads whose run was cut off and that nobody is going on with: `aresume` does."""
        return await self._runs.call(self._writer.cut_off)

    async def aexport(self, thread_id: str) -> dict[str, Any]:
        """One thread as plain JSON: its last run, the timeline, and what was done downstream."""
        run, steps = await self.aget(thread_id), await self.atimeline(thread_id)
        ledger = self._context.ledger
        effects = await self._runs.call(lambda: ledger.of_thread(thread_id))
        timeline = [step.model_dump(mode="json") for step in steps]
        whole = {**run.model_dump(mode="json"), "timeline": timeline, "effects": effects}
        plain: dict[str, Any] = to_jsonable_python(whole)
        return plain

    async def aprune(self, older_than: timedelta) -> list[str]:
        """Forget threads that ended so long ago; the ids of those forgotten.

        One that waits, was cut off, or is being written to stays. The effect ledger stays whole.
        """
        moment = self._context.clock() - older_than
        old = await self._runs.call(lambda: self._writer.index.finished_before(moment))
        return [thread_id for thread_id in old if await self._writer.forget(thread_id, moment)]

    def drain(self) -> None:
        """Ask every run to stop after its current step, and take nothing new. Returns at once.

        Each call then returns a run of status 'running', which can go on in another process. For a
        signal handler of the event loop's thread.
        """
        self._writer.drain()

    async def adrain(self) -> None:
        """`drain`, and wait until no run is left."""
        self._writer.drain()
        await self._writer.idle()

    # --- sync ---

    def ask(
        self,
        goal: str,
        *,
        thread_id: str | None = None,
        max_steps: int | None = None,
        as_of: str | None = None,
        deadline_s: float | None = None,
    ) -> Run:
        """Sync form of `aask`."""
        return self._call(
            lambda: self.aask(
                goal,
                thread_id=thread_id,
                max_steps=max_steps,
                as_of=as_of,
                deadline_s=deadline_s,
            )
        )

    def stream(
        self,
        goal: str,
        *,
        thread_id: str | None = None,
        max_steps: int | None = None,
        as_of: str | None = None,
        deadline_s: float | None = None,
    ) -> Iterator[RunEvent]:
        """Sync form of `astream`."""
        events = self.astream(
            goal,
            thread_id=thread_id,
            max_steps=max_steps,
            as_of=as_of,
            deadline_s=deadline_s,
        )
        try:
            while (event := self._call(lambda: _next(events))) is not None:
                yield event
        finally:
            with suppress(RuntimeError):  # the agent was closed first: the thread is free already
                self._call(events.aclose)

    def answer(self, thread_id: str, text: str, *, question_id: str | None = None) -> Run:
        """Sync form of `aanswer`."""
        return self._call(lambda: self.aanswer(thread_id, text, question_id=question_id))

    def approve(
        self,
        thread_id: str,
        *,
        edit: Mapping[str, JsonValue] | None = None,
        approval_id: str | None = None,
    ) -> Run:
        """Sync form of `aapprove`."""
        return self._call(lambda: self.aapprove(thread_id, edit=edit, approval_id=approval_id))

    def reject(self, thread_id: str, reason: str = "", *, approval_id: str | None = None) -> Run:
        """Sync form of `areject`."""
        return self._call(lambda: self.areject(thread_id, reason, approval_id=approval_id))

    def cancel(self, thread_id: str) -> Run:
        """Sync form of `acancel`."""
        return self._call(lambda: self.acancel(thread_id))

    def resume(self, thread_id: str) -> Run:
        """Sync form of `aresume`."""
        return self._call(lambda: self.aresume(thread_id))

    def get(self, thread_id: str) -> Run:
        """Sync form of `aget`."""
        return self._call(lambda: self.aget(thread_id))

    def timeline(self, thread_id: str) -> list[TimelineStep]:
        """Sync form of `atimeline`."""
        return self._call(lambda: self.atimeline(thread_id))

    def checkpoints(self, thread_id: str) -> list[Checkpoint]:
        """Sync form of `acheckpoints`."""
        return self._call(lambda: self.acheckpoints(thread_id))

    def fork(self, thread_id: str, at_step: int, *, edit: Mapping[str, Any] | None = None) -> Run:
        """Sync form of `afork`."""
        return self._call(lambda: self.afork(thread_id, at_step, edit=edit))

    def threads(self) -> list[ThreadEntry]:
        """Sync form of `athreads`."""
        return self._call(self.athreads)

    def cut_off(self) -> list[str]:
        """Sync form of `acut_off`."""
        return self._call(self.acut_off)

    def export(self, thread_id: str) -> dict[str, Any]:
        """Sync form of `aexport`."""
        return self._call(lambda: self.aexport(thread_id))

    def prune(self, older_than: timedelta) -> list[str]:
        """Sync form of `aprune`."""
        return self._call(lambda: self.aprune(older_than))

    def _call(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._portal is None:
            raise RuntimeError("opened with aopen(): use the methods with a leading 'a'")
        result: T = self._portal.call(function)
        return result

    # --- what may be asked of a thread ---

    def _options(
        self, max_steps: int | None, as_of: str | None, deadline_s: float | None = None
    ) -> RunOptions:
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
        if deadline_s is not None and not (
            type(deadline_s) in (int, float) and 0 < deadline_s < float("inf")
        ):
            raise InvalidOption(f"the deadline is {deadline_s!r}: it must be a number of seconds")
        return RunOptions(
            max_steps=max_steps or default.max_steps,
            as_of=as_of,
            user=default.user,
            deadline_s=deadline_s,
        )

    async def _resume(
        self, thread_id: str, reply: Callable[[Run], Any], *, again: bool = False
    ) -> AsyncGenerator[RunEvent]:
        """Hand what `reply` returns to what the thread waits for; it raises when that is not it.

        With `again`, a run that was cut off after it had taken an approval goes on with that one:
        the reply is not used, for nobody has been shown what the run may ask for next.
        """
        async with self._writer.lease(thread_id) as leg:
            snapshot = await self._writer.snapshot(thread_id)
            leg.run = run = Run.from_state(thread_id, snapshot.values)
            options = self._options(run.max_steps, None)
            graph_input: Command[Any] | None = None
            if is_cut_off(snapshot) and run.waiting_for is None:
                if not (again and snapshot.values["counters"]["approvals"]):
                    raise NotWaiting(
                        f"thread {thread_id} waits for nothing: it was cut off; go on with it "
                        f"(`followup resume {thread_id}`), ask again, or cancel it"
                    )
            else:
                if is_cut_off(snapshot):  # between the question and the pause: go on to the pause
                    async with aclosing(self._writer.drive(leg, None, options)) as events:
                        async for _ in events:
                            pass
                    snapshot = await self._writer.snapshot(thread_id)
                answer = reply(run)
                graph_input = Command(resume={snapshot.interrupts[0].id: answer})
            async with aclosing(self._writer.drive(leg, graph_input, options)) as events:
                async for event in events:
                    yield event
        yield RunStopped(leg.stopped)


def _require(run: Run, wanted: str, given_id: str | None, pending: Iterable[Any]) -> None:
    """NotWaiting unless the run waits for this, and for the one that is named, if one is."""
    if run.waiting_for is None:
        raise NotWaiting(f"thread {run.thread_id} waits for nothing")
    if run.waiting_for != wanted:
        raise NotWaiting(
            f"thread {run.thread_id} waits for an {run.waiting_for}, not for an {wanted}"
        )
    ids = [item["id"] for item in pending]
    if given_id is not None and given_id not in ids:
        raise NotWaiting(
            f"thread {run.thread_id} no longer waits for {given_id!r} but for {', '.join(ids)}"
        )


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
