"""A thread's past: its checkpoints, and forks of it. Pure; reading them is `FollowupAgent`'s."""

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Annotated, Any

from langgraph.types import StateSnapshot
from pydantic import BaseModel, Field, JsonValue, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from followup_agent.goals.limits import MAX_STEPS_CEILING
from followup_agent.goals.times import parse_as_of
from followup_agent.service.errors import InvalidOption
from followup_agent.state import NO_COUNTS, Evidence, Goal
from followup_agent.tools.definition import explain
from followup_agent.tools.outcome import PLAIN, Fact, Language
from followup_agent.tools.registry import ToolRegistry


class Checkpoint(BaseModel):
    """One stored state of a thread."""

    checkpoint_id: str
    run_id: str | None
    """None before intake has read the goal."""
    at: datetime
    superstep: int
    """LangGraph's number; the input is -1."""
    step: int
    """Decisions taken so far in the run: what `fork --at` goes by."""
    status: str | None
    next: list[str]
    """The node that comes next; empty at the end."""
    waits: bool


def checkpoints(history: Sequence[StateSnapshot]) -> list[Checkpoint]:
    """The checkpoints of these snapshots, in their order."""
    return [
        Checkpoint(
            checkpoint_id=snapshot.config["configurable"]["checkpoint_id"],
            run_id=snapshot.values.get("run_id"),
            at=datetime.fromisoformat(snapshot.created_at or ""),
            superstep=int((snapshot.metadata or {}).get("step", 0)),
            step=snapshot.values.get("current_step", 0),
            status=snapshot.values.get("status"),
            next=list(snapshot.next),
            waits=bool(snapshot.interrupts),
        )
        for snapshot in history
    ]


def snapshot_after(history: Sequence[StateSnapshot], step: int) -> StateSnapshot:
    """The state of the last run after this many decisions, when the next one was to be made.

    InvalidOption when there is none: the run has not come so far, or ended or waits there.
    """
    run_id = history[-1].values["run_id"]
    run = [snapshot for snapshot in history if snapshot.values.get("run_id") == run_id]
    planned = [snapshot for snapshot in run if snapshot.next == ("planner",)]
    found = [snapshot for snapshot in planned if snapshot.values["current_step"] == step]
    if found:
        return found[-1]
    steps = sorted({snapshot.values["current_step"] for snapshot in planned})
    raise InvalidOption(
        f"no step {step} after which a decision was to be made; there are: "
        f"{', '.join(map(str, steps)) or 'none'}"
    )


@with_config(PLAIN)
class Edit(TypedDict, total=False):
    """What may be changed in a fork: what the planner and the judgement go by."""

    parsed_goal: Goal
    facts: dict[str, dict[str, Fact]]
    evidence: list[Evidence]
    language: Language
    as_of: str
    max_steps: Annotated[int, Field(ge=1, le=MAX_STEPS_CEILING)]


_EDIT: TypeAdapter[Edit] = TypeAdapter(Edit)


def fork_of(
    state: Mapping[str, Any],
    thread_id: str,
    edit: Mapping[str, JsonValue],
    tools: ToolRegistry,
    zone: tzinfo,
) -> dict[str, Any]:
    """The state of a fork: what was read stays, what was approved or written does not.

    InvalidOption for an edit that does not fit.
    """
    try:
        changes: dict[str, Any] = {**_EDIT.validate_python(dict(edit))}
    except ValidationError as error:
        raise InvalidOption(
            f"the edit does not fit: {explain(error)}; it may hold {', '.join(Edit.__annotations__)}"
        ) from error
    if "as_of" in changes:
        try:
            as_of = parse_as_of(changes["as_of"], zone)
        except ValueError as error:
            raise InvalidOption(f"the edit does not fit: {error}") from error
        changes |= {"as_of": as_of.isoformat(), "as_of_given": True}
    calls = [call for call in state["tool_history"] if not tools.is_write(call["tool_name"])]
    kept = {call["call_id"] for call in calls}
    facts = {
        subject: {key: fact for key, fact in own.items() if fact["call_id"] in kept}
        for subject, own in state["facts"].items()
    }
    return {
        **{key: value for key, value in state.items() if key != "observations"},
        "session_id": thread_id,
        "run_id": str(uuid.uuid4()),
        "status": "running",
        "stop_reason": None,
        "counters": {
            **NO_COUNTS,
            "questions": state["counters"]["questions"],
            "planner_ms": state["counters"]["planner_ms"],
        },
        "decision": None,
        "needs_approval": False,
        "facts": facts,
        "evidence": [item for item in state["evidence"] if item["call_id"] in kept],
        "tool_history": calls,
        "quotes": [quote for quote in state["quotes"] if quote["call_id"] in kept],
        "pending_questions": [],
        "approval": None,
        "approved": None,
        "verdict": None,
        "model_view": None,
        "final_answer": None,
        **changes,
    }
