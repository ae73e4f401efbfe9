"""Decide the next action. Runs no tool."""

import math
import uuid
from typing import Any, NotRequired

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from followup_agent.graph.context import AgentContext
from followup_agent.planners import Planned, PlannerFailure
from followup_agent.planners.usage import added
from followup_agent.state import AgentState, Counters, Decision, Round, RunError, StopReason, Usage
from followup_agent.tools.definition import explain

_DECISION: TypeAdapter[Decision] = TypeAdapter(Decision)


class Update(TypedDict):
    """What this node writes. `decision` None: the reply was unusable."""

    decision: Decision | None
    planner: NotRequired[str]
    needs_approval: bool
    current_step: int
    counters: Counters
    usage: NotRequired[Usage]
    rounds: NotRequired[list[Round]]
    last_error: NotRequired[RunError]
    stop_reason: NotRequired[StopReason]


async def planner(state: AgentState, context: AgentContext) -> Update:
    """Choose exactly one next action from the goal, the facts and the history."""
    step, log = state["current_step"] + 1, context.log
    log.bind({"step": step})
    log.emit("agent.step.started", state={"status": state["status"]})
    started = context.monotonic()
    planned = await _plan(state, context)
    counters: Counters = {
        **state["counters"],
        "planner_ms": state["counters"]["planner_ms"]
        + math.ceil((context.monotonic() - started) * 1000),
        "handed_back": state["counters"]["handed_back"] + planned.handed_back,
    }
    if planned.failure is not None or planned.decision is None:
        return {**_unusable(state, context, planned, counters), **_spent(state, context, planned)}
    decision: Decision = planned.decision  # type: ignore[assignment] # validated by _plan
    tool_name = decision["tool_name"] if decision["type"] == "tool" else None
    log.emit(
        "agent.decision.made",
        decision={
            "type": decision["type"],
            "toolName": tool_name,
            "reason": decision["reason"],
        },
        tool={"args": decision["args"]} if decision["type"] == "tool" else None,
        planner=_traced(planned) or None,
        state={"status": state["status"]},
    )
    update = Update(
        decision=decision,
        needs_approval=tool_name is not None and context.tools.registry.is_write(tool_name),
        current_step=step,
        counters={**counters, "invalid_decisions": 0},
        rounds=[Round(step=step, decision=decision)],
    )
    return {**update, **_spent(state, context, planned)}


class Spent(TypedDict, total=False):
    """What changes only with a model: a channel that is not written costs nothing."""

    planner: str
    usage: Usage


def _spent(state: AgentState, context: AgentContext, planned: Planned) -> Spent:
    """Who decided, where that is another than before, and what it cost."""
    spent = Spent()
    if context.planner.name != state["planner"]:
        spent["planner"] = context.planner.name
    if planned.usage["model_calls"]:
        spent["usage"] = added(state["usage"], planned.usage)
    return spent


async def _plan(state: AgentState, context: AgentContext) -> Planned:
    """What the planner decides; never raises for what it does or returns.

    A planner that breaks is a failed run, never a quiet fall-back to other rules.
    """
    try:
        planned = await context.planner.decide(_own_copy(state))
        if not isinstance(planned, Planned):
            planned = Planned(decision=planned)
        if planned.failure is None:
            _DECISION.validate_python(planned.decision)
        return planned
    except ValidationError as error:
        message = f"no usable decision: {explain(error)}"
        failure = PlannerFailure(kind="invalid_args", fault="not_a_decision", message=message)
    except (Exception, SystemExit) as error:
        failure = PlannerFailure(
            kind="internal", fault="broken", message="the planner failed", cause=error
        )
    return Planned(decision=None, failure=failure)


def _own_copy(state: AgentState) -> AgentState:
    """What a planner may scribble on: what the gate and the record go by stays as it is."""
    goal = state["parsed_goal"]
    return {
        **state,
        "parsed_goal": {**goal, "subjects": [*goal["subjects"]]},
        "facts": {**state["facts"]},
        "evidence": [*state["evidence"]],
        "tool_history": [*state["tool_history"]],
    }


def _unusable(
    state: AgentState, context: AgentContext, planned: Planned, counters: Counters
) -> Update:
    """No decision: counted, and told with the id under which the details are kept."""
    failure = planned.failure or PlannerFailure(
        kind="invalid_args", fault="not_a_decision", message="no usable decision: there is none"
    )
    error: RunError = {"kind": failure.kind, "message": failure.message}
    if failure.cause is not None or failure.raw is not None:
        error_id = uuid.uuid4().hex[:8]
        context.log.error(error_id, failure.cause or UnusableReply(failure.raw))
        error["message"] += f" (error {error_id}, see the log)"
    context.log.emit(
        "agent.plan.failed",
        decision={"type": "tool", "toolName": failure.tool_name} if failure.tool_name else None,
        error=error,
        planner={**_traced(planned), "fault": failure.fault} if planned.trace else None,
        state={"status": state["status"]},
    )
    update = Update(
        decision=None,
        needs_approval=False,
        current_step=state["current_step"] + 1,
        counters={**counters, "invalid_decisions": counters["invalid_decisions"] + 1},
        last_error=error,
    )
    if failure.ends is not None:
        update["stop_reason"] = failure.ends
    return update


class UnusableReply(Exception):
    """A planner's reply as it came, for `errors.log`."""


def _traced(planned: Planned) -> dict[str, Any]:
    """What the log says of a model's part in the step; nothing for the rules."""
    if not planned.usage["model_calls"]:
        return dict(planned.trace)
    names = {
        "model_calls": "modelCalls",
        "input_tokens": "inputTokens",
        "cached_input_tokens": "cachedInputTokens",
        "output_tokens": "outputTokens",
        "cost": "cost",
    }
    return {
        **planned.trace,
        **{name: planned.usage[key] for key, name in names.items()},  # type: ignore[literal-required]
    }
