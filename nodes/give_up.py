"""End a run that cannot go on: say what was found and what is missing. Never a "no"."""

from langchain_core.messages import AIMessage
from typing_extensions import TypedDict

from followup_agent.answers.conclude import conclude
from followup_agent.graph.context import AgentContext
from followup_agent.graph.routing import stop_reason
from followup_agent.state import AgentState, ModelView, Question, Status, StopReason, Verdict


class Update(TypedDict):
    """What this node writes."""

    status: Status
    stop_reason: StopReason
    verdict: Verdict | None
    model_view: ModelView | None
    final_answer: str
    pending_questions: list[Question]
    messages: list[AIMessage]


async def give_up(state: AgentState, context: AgentContext) -> Update:
    """Fail with a stop reason of its own and the evidence gathered so far."""
    end = conclude(
        state, context.policy, stop_reason(state) or "internal", context.ids, context.timezone
    )
    context.log.emit(
        "agent.run.finished",
        state={"status": end["status"], "stopReason": end["stop_reason"]},
        error=state["last_error"],
    )
    return Update(**end, pending_questions=[], messages=[AIMessage(end["final_answer"])])
