"""What stands around every node: its dependencies go in, its update is checked on the way out.

LangGraph drops an undeclared key without a word and writes a wrong type first and fails later. So
each node's update is validated against the node's own `Update` type before it is checkpointed.
"""

import asyncio
import inspect
import sys
import threading
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, wraps
from typing import Any, Protocol, get_args, get_type_hints

from langgraph.errors import GraphBubbleUp, NodeError
from langgraph.runtime import Runtime
from langgraph.types import Command
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from followup_agent.graph.context import AgentContext, ContextFactory, Event, RunOptions
from followup_agent.service.errors import (
    FollowupError,
    IncompatibleThread,
    StorageError,
    ThreadError,
)
from followup_agent.state import GRAPH_VERSION, AgentState
from followup_agent.tools.definition import explain


class Node(Protocol):
    """One node: an update from the state and the dependencies."""

    __name__: str

    def __call__(self, state: AgentState, context: AgentContext, /) -> Awaitable[Mapping[str, Any]]:
        """Return the node's `Update`."""


Router = Callable[[AgentState], str]
"""Names the next node; a pure function of the state, typed with the names it may return."""


class InvalidUpdate(TypeError):
    """A node returned what the state does not declare; names the node and the key."""


class LeftAsItIs(GraphBubbleUp):
    """Ends this stretch of the run for the caller's sake, not the run.

    LangGraph stores nothing of the node and does not call its error handler, so that the thread
    can go on with this very node. (An error that goes out through a handler leaves a thread with
    nothing left to do.)
    """

    def __init__(self, error: FollowupError) -> None:
        """`error` is what the caller is to see."""
        super().__init__(str(error))
        self.error = error


class ContextSource:
    """Makes the context once, outside the event loop, whoever comes first."""

    def __init__(self, context: AgentContext | ContextFactory) -> None:
        """Take the context itself, or a function that makes it at the first step."""
        self.ready = context if isinstance(context, AgentContext) else None
        self._lock = threading.Lock()
        self._factory = None if isinstance(context, AgentContext) else context

    def _make(self, factory: ContextFactory) -> AgentContext:
        with self._lock:  # many first runs at once, perhaps on several event loops
            self.ready = self.ready or factory()
            return self.ready

    async def get(self) -> AgentContext:
        """The context; the error of the factory when it cannot be made."""
        if self.ready is None and self._factory is not None:
            return await asyncio.to_thread(self._make, self._factory)
        assert self.ready is not None  # noqa: S101 - for the type checker
        return self.ready


@cache  # once a process, however many graphs are built
def checker(name: str, update_type: Any) -> Callable[[Mapping[str, Any]], None]:
    """A function that raises InvalidUpdate for what is not an `update_type`."""
    strict = with_config(ConfigDict(extra="forbid", strict=True, allow_inf_nan=False))
    validate = TypeAdapter(strict(update_type)).validator.validate_python

    def check(update: Mapping[str, Any]) -> None:
        try:
            validate(update)
        except ValidationError as error:
            raise InvalidUpdate(f"node {name!r} wrote what it may not: {explain(error)}") from error

    return check


def destinations(router: Router) -> tuple[str, ...]:
    """The nodes a router may name: what LangGraph draws."""
    names: tuple[str, ...] = get_args(get_type_hints(router)["return"])
    return names


def step(
    node: Node, source: ContextSource, router: Router | None = None
) -> Callable[..., Awaitable[Any]]:
    """The node as LangGraph calls it; with a router, followed by the conditional edge it takes.

    Routers read what the node has just written. They look at no channel with a reducer.
    """
    check = checker(node.__name__, get_type_hints(node)["return"])

    @wraps(node)
    async def run(
        state: AgentState, runtime: Runtime[RunOptions]
    ) -> Mapping[str, Any] | Command[Any]:
        context = source.ready or await source.get()
        context.log.bind(log_fields(state))
        if runtime.context is not None:
            context = replace(context, options=runtime.context)
        events = context.log.hold()
        try:
            check_version(state)
            update = await node(state, context)
            check(update)
        except (StorageError, ThreadError) as error:
            raise LeftAsItIs(error) from error
        finally:
            _tell(context, events, str(state.get("session_id") or ""))
        if router is None:
            return update
        return Command(update=update, goto=router({**state, **update}))  # type: ignore[typeddict-item]

    # LangGraph looks at the signature to see what to hand over.
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                "state", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=AgentState
            ),
            inspect.Parameter(
                "runtime",
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                annotation=Runtime[RunOptions],
            ),
        ]
    )
    return run


def _tell(context: AgentContext, events: Sequence[Event], thread_id: str) -> None:
    """Hand over what the node emitted; a node that was stopped (a pause, a cancelled caller) will
    run again, and has told nothing."""
    if isinstance(sys.exception(), GraphBubbleUp | asyncio.CancelledError):
        return
    if context.outbox is not None and thread_id:
        context.outbox.hold(thread_id, events)
    else:
        context.log.write(events)


def check_version(state: Mapping[str, Any]) -> None:
    """Raise IncompatibleThread for a thread that another version of the graph has stored."""
    version = state.get("graph_version", "1")
    if state.get("run_id") and version != GRAPH_VERSION:
        raise IncompatibleThread(
            f"this thread was stored by version {version} of the graph, this program has version "
            f"{GRAPH_VERSION}: finish it with the program that began it, or ask on a new thread"
        )


def log_fields(state: Mapping[str, Any]) -> dict[str, Any]:
    """What every event of a run carries; empty before intake has read the goal."""
    if not state.get("run_id"):
        return {}
    return {
        "sessionId": state["session_id"],
        "runId": state["run_id"],
        "step": state["current_step"],
        "userGoal": state["user_goal"],
    }


def on_error(source: ContextSource) -> Callable[..., Awaitable[Command[Any]]]:
    """LangGraph's error handler: a bug in a node is an ordinary failed run, kept by its id.

    Not so in intake (the caller's input is refused to the caller) and in give_up (nothing is left
    to go to): there the error goes out.
    """

    async def to_give_up(state: AgentState, error: NodeError) -> Command[Any]:
        if error.node in ("intake", "give_up"):
            raise error.error
        context = await source.get()
        error_id = uuid.uuid4().hex[:8]
        context.log.bind(log_fields(state))
        context.log.error(error_id, error.error)
        shown = str(error.error) if isinstance(error.error, InvalidUpdate) else "an internal error"
        return Command(
            update={
                "stop_reason": "internal",
                "last_error": {"kind": "internal", "message": f"{shown} (error {error_id})"},
            },
            goto="give_up",
        )

    return to_give_up
