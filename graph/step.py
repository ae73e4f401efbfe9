"""What stands around every node: its dependencies go in, its update is checked on the way out.

LangGraph drops an undeclared key without a word and writes a wrong type first and fails later. So
each node's update is validated against the node's own `Update` type before it is checkpointed.
"""

import asyncio
import inspect
import threading
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any, Protocol, get_args, get_type_hints

from langgraph.errors import NodeError
from langgraph.runtime import Runtime
from langgraph.types import Command
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from followup_agent.graph.context import AgentContext, ContextFactory, RunOptions
from followup_agent.state import AgentState
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
        if runtime.context is not None:
            context = replace(context, options=runtime.context)
        context.log.bind(log_fields(state))
        update = await node(state, context)
        check(update)
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
