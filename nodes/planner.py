"""Decide the next action. Runs no tool."""

import uuid
from typing import NotRequired

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from followup_agent.graph.context import AgentContext
from followup_agent.state import AgentState, Counters, Decision, RunError
from followup_agent.tools.definition import explain

_DECISION: TypeAdapter[Decision] = TypeAdapter(Decision)


class Update(TypedDict):
    """What this node writes. `decision` None: the reply was unusable."""

    decision: Decision | None
    needs_approval: bool
    current_step: int
    counters: Counters
    last_error: NotRequired[RunError]


async def planner(state: AgentState, context: AgentContext) -> Update:
    """Choose exactly one next action from the goal, the facts and the history."""
    step = state["current_step"] + 1
    log = context.log
    log.bind({"step": step})
    log.emit("agent.step.started", state={"status": state["status"]})
    try:
        decision = _DECISION.validate_python(await context.planner.decide(_own_copy(state)))
    except ValidationError as error:
        return _unusable(state, context, "invalid_args", f"no usable decision: {explain(error)}")
    except (Exception, SystemExit) as error:
        # A planner that breaks is a failed run, never a quiet fall-back to other rules.
        error_id = uuid.uuid4().hex[:8]
        log.error(error_id, error)
        return _unusable(
            state, context, "internal", f"the planner failed (error {error_id}, see the log)"
        )
    tool_name = decision["tool_name"] if decision["type"] == "tool" else None
    log.emit(
        "agent.decision.made",
        decision={
            "type": decision["type"],
            "toolName": tool_name,
            "reason": decision["reason"],
        },
        tool={"args": decision["args"]} if decision["type"] == "tool" else None,
        state={"status": state["status"]},
    )
    return Update(
        decision=decision,
        needs_approval=tool_name is not None and context.tools.registry.is_write(tool_name),
        current_step=step,
        counters={**state["counters"], "invalid_decisions": 0},
    )


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


def _unusable(state: AgentState, context: AgentContext, kind: str, message: str) -> Update:
    error: RunError = {
        "kind": "internal" if kind == "internal" else "invalid_args",
        "message": message,
    }
    context.log.emit("agent.plan.failed", error=error, state={"status": state["status"]})
    counters = state["counters"]
    return Update(
        decision=None,
        needs_approval=False,
        current_step=state["current_step"] + 1,
        counters={**counters, "invalid_decisions": counters["invalid_decisions"] + 1},
        last_error=error,
    )
