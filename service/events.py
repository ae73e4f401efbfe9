"""What `FollowupAgent.stream` yields: one typed event a step, in the order it happened."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from followup_agent.service.run import Run
from followup_agent.state import Approval, Decision, Question, ToolCallRecord
from followup_agent.tools.outcome import Fact


@dataclass(frozen=True, slots=True)
class DecisionMade:
    """The planner chose the next action; `decision` None: its reply was unusable."""

    step: int
    decision: Decision | None


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """A tool call ended, one way or another."""

    record: ToolCallRecord
    new_facts: dict[str, dict[str, Fact]]


@dataclass(frozen=True, slots=True)
class QuestionAsked:
    """The run waits for an answer."""

    question: Question


@dataclass(frozen=True, slots=True)
class ApprovalAsked:
    """The run waits for a person's decision on a write."""

    approval: Approval


@dataclass(frozen=True, slots=True)
class RunStopped:
    """The last event: the run as it stands, finished or waiting."""

    run: Run


RunEvent = DecisionMade | ToolCalled | QuestionAsked | ApprovalAsked | RunStopped


def events_of(node: str, update: Mapping[str, Any]) -> Iterator[RunEvent]:
    """The events that one node's update amounts to; none for nodes that only prepare."""
    if node == "planner":
        yield DecisionMade(update["current_step"], update["decision"])
    elif node == "updater":
        for record in update["tool_history"]:
            facts = {
                subject: {
                    k: fact for k, fact in own.items() if fact["call_id"] == record["call_id"]
                }
                for subject, own in (update.get("facts") or {}).items()
            }
            yield ToolCalled(record, facts)
    elif node == "pose_question":
        yield QuestionAsked(update["pending_questions"][0])
    elif node in ("propose_write", "await_approval") and update.get("approval") is not None:
        yield ApprovalAsked(update["approval"])
