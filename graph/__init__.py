"""The graph. `graph` is what `langgraph.json` names; `build_graph` is for services and tests."""

from followup_agent.graph.build import build_graph
from followup_agent.service.wiring import context_from_environment

graph = build_graph(context_from_environment)
"""The graph for LangGraph's server and Studio: no checkpointer of its own, and its dependencies
made from the environment at the first run, so that importing it needs no database and no key."""

__all__ = ["build_graph", "graph"]
