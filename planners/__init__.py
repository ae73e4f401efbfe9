"""Planners: what decides the next action. One method, so that rules and models are exchangeable."""

from collections.abc import Mapping
from typing import Any, Protocol

from followup_agent.state import AgentState


class Planner(Protocol):
    """Decides and touches nothing: a planner can be tested and replayed without any tool."""

    @property
    def name(self) -> str:
        """'rules', or the model's name: stands in the run's result."""

    async def decide(self, state: AgentState) -> Mapping[str, Any]:
        """Exactly one next action, in the form of `state.Decision`; it is validated by the node."""
