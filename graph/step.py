"""What stands around every node: its dependencies go in, its update is checked on the way out.

LangGraph drops an undeclared key without a word and writes a wrong type first and fails later. So
each node's update is validated against the node's own `Update` type before it is checkpointed.
"""

import asyncio
import inspect
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any, get_type_hints

from langgraph.errors import NodeError
from langgraph.runtime import Runtime
from langgraph.types import Command, Overwrite
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from followup_agent.graph.context import AgentContext, ContextFactory, RunOptions
from followup_agent.state import AgentState
from followup_agent.tools.definition import explain

Node = Callable[[AgentState, AgentContext], Awaitable[Mapping[str, Any]]]


class InvalidUpdate(TypeError):
    """A node returned what the state does not declare; names the node and the key."""


class ContextSource:
    """Makes the context once, outside the event loop, whoever comes first."""

    def __init__(self, context: AgentContext | ContextFactory) -> None:
        """Take the context itself, or a function that makes it at the first step."""
        self._ready = context if isinstance(context, AgentContext) else None
        self._factory = None if isinstance(context, AgentContext) else context

    async def get(self) -> AgentContext:
        """The context; the error of the factory when it cannot be made."""
        if self._ready is None and self._factory is not None:
            self._ready = await asyncio.to_thread(self._factory)
        assert self._ready is not None  # noqa: S101 - for the type checker
        return self._ready


def checker(name: str, update_type: Any) -> Callable[[Mapping[str, Any]], None]:
    """A function that raises InvalidUpdate for what is not an `update_type`."""
    strict = with_config(ConfigDict(extra="forbid", strict=True, allow_inf_nan=False))
    adapter: TypeAdapter[Any] = TypeAdapter(strict(update_type))

    def check(update: Mapping[str, Any]) -> None:
        plain = {
            key: value.value if isinstance(value, Overwrite) else value
            for key, value in update.items()
        }
        try:
            adapter.validate_python(plain)
        except ValidationError as error:
            raise InvalidUpdate(f"node {name!r} wrote what it may not: {explain(error)}") from error

    return check


def step(name: str, node: Node, source: ContextSource) -> Callable[..., Awaitable[Any]]:
    """The node as LangGraph calls it."""
    check = checker(name, get_type_hints(node)["return"])

    @wraps(node)
    async def run(state: AgentState, runtime: Runtime[RunOptions]) -> Mapping[str, Any]:
        context = await source.get()
        if runtime.context is not None:
            context = replace(context, options=runtime.context)
        context.log.bind(log_fields(state))
        update = await node(state, context)
        check(update)
        return update

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
