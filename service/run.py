"""A run's result: the contract's document, in Python and as JSON."""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer

from followup_agent.state import (
    Approval,
    Evidence,
    ModelView,
    Question,
    RunError,
    Status,
    StopReason,
    ToolCallRecord,
    Usage,
    Verdict,
)
from followup_agent.tools.outcome import Fact, Language


class Run(BaseModel):
    """One run as it stands: waiting, completed or failed."""

    model_config = ConfigDict(frozen=True)

    thread_id: str
    run_id: str
    user_goal: str
    language: Language
    planner: str
    as_of: str
    status: Status
    stop_reason: StopReason | None
    answer: str | None
    """Text for the user, in the goal's language; the question while one is open."""
    verdict: Verdict | None
    model_view: ModelView | None = None
    """What a model wrote at the end, and whether the record bears it out; left out of the JSON where
    there is no draft."""
    facts: dict[str, dict[str, Fact]]
    evidence: list[Evidence]
    tool_history: list[ToolCallRecord]
    pending_questions: list[Question]
    approval: Approval | None
    current_step: int
    max_steps: int
    last_error: RunError | None
    usage: Usage

    @model_serializer(mode="wrap")
    def _without_an_empty_view(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        document: dict[str, Any] = dump(self)
        if self.model_view is None:
            document.pop("model_view", None)
        return document

    @classmethod
    def from_state(cls, thread_id: str, state: Mapping[str, Any]) -> Self:
        """The result that this state amounts to."""
        values = {name: state.get(name) for name in cls.model_fields}
        questions = state.get("pending_questions")
        answer = questions[0]["question"] if questions else state.get("final_answer")
        values |= {"thread_id": thread_id, "answer": answer}
        return cls.model_validate(values)

    @property
    def waiting_for(self) -> str | None:
        """'answer', 'approval', or None."""
        if self.status != "needs_input":
            return None
        return "approval" if self.approval is not None else "answer"
