"""One run as a timeline, read from its checkpoints: step, reason, call, outcome, new facts, time."""

from collections.abc import Iterable
from datetime import datetime

from langgraph.types import StateSnapshot
from pydantic import BaseModel

from followup_agent.state import Decision, ToolCallRecord
from followup_agent.tools.outcome import Fact


class TimelineStep(BaseModel):
    """One round: what was decided, and what came of it."""

    step: int
    at: datetime
    decision: Decision | None
    """None: the planner's reply was unusable."""
    calls: list[ToolCallRecord] = []
    """One; more when an approval came to be void and the facts were read again."""
    new_facts: dict[str, Fact] = {}


def timeline(snapshots: Iterable[StateSnapshot]) -> list[TimelineStep]:
    """The steps of the last run among these snapshots of one thread, oldest first."""
    steps: dict[int, TimelineStep] = {}
    run_id = None
    for snapshot in snapshots:
        state = snapshot.values
        if not state.get("run_id"):
            continue
        if state["run_id"] != run_id:
            run_id, steps = state["run_id"], {}
        number = state["current_step"]
        if number and number not in steps:
            steps[number] = TimelineStep(
                step=number,
                at=datetime.fromisoformat(snapshot.created_at or state["as_of"]),
                decision=state["decision"],
            )
        for call in state["tool_history"]:
            step = steps.get(call["step"])
            if step is not None and call not in step.calls:
                facts = state["facts"].get(str(call["args"].get("user_id")), {})
                step.calls.append(call)
                step.new_facts |= {
                    key: fact for key, fact in facts.items() if fact["call_id"] == call["call_id"]
                }
    return list(steps.values())
