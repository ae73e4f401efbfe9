"""Conclude: the judgement first, then its evidence, then the advised action. Decides nothing."""

from langchain_core.messages import AIMessage
from typing_extensions import TypedDict

from followup_agent.answers.conclude import conclude
from followup_agent.graph.context import AgentContext
from followup_agent.graph.routing import stop_reason
from followup_agent.state import AgentState, ModelView, Status, StopReason, Verdict


class Update(TypedDict):
    """What this node writes."""

    status: Status
    stop_reason: StopReason
    verdict: Verdict | None
    model_view: ModelView | None
    final_answer: str
    messages: list[AIMessage]


async def synthesizer(state: AgentState, context: AgentContext) -> Update:
    """Answer the goal from the evidence; failed when the evidence does not suffice."""
    end = conclude(
        state, context.policy, stop_reason(state) or "finish", context.ids, context.timezone
    )
    context.log.emit(
        "agent.run.finished", state={"status": end["status"], "stopReason": end["stop_reason"]}
    )
    return Update(**end, messages=[AIMessage(end["final_answer"])])
