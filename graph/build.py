"""The picture: nodes and edges. Where a branch goes, and why, is in `graph/routing.py`."""

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Checkpointer

from followup_agent.goals.limits import MAX_STEPS_CEILING
from followup_agent.graph import routing
from followup_agent.graph.context import AgentContext, ContextFactory, RunOptions
from followup_agent.graph.step import (
    ContextSource,
    Node,
    Router,
    destinations,
    on_error,
    step,
)
from followup_agent.nodes.ask_user import ask_user
from followup_agent.nodes.await_approval import await_approval
from followup_agent.nodes.confirm_facts import confirm_facts
from followup_agent.nodes.give_up import give_up
from followup_agent.nodes.intake import intake
from followup_agent.nodes.planner import planner
from followup_agent.nodes.pose_question import pose_question
from followup_agent.nodes.propose_write import propose_write
from followup_agent.nodes.synthesizer import synthesizer
from followup_agent.nodes.tool_executor import tool_executor
from followup_agent.nodes.updater import updater
from followup_agent.state import AgentInput, AgentState

Graph = CompiledStateGraph[AgentState, RunOptions, AgentInput, AgentState]

PICTURE: tuple[tuple[Node, str | Router], ...] = (
    # node, and where the run goes after it
    (intake, "planner"),
    (planner, routing.after_planner),
    (pose_question, "ask_user"),
    (ask_user, routing.after_ask_user),
    (propose_write, routing.after_propose_write),
    (await_approval, routing.after_approval),
    (confirm_facts, routing.after_confirm_facts),
    (tool_executor, "updater"),
    (updater, routing.after_updater),
    (synthesizer, END),
    (give_up, END),
)


def build_graph(
    context: AgentContext | ContextFactory, *, checkpointer: Checkpointer = None
) -> Graph:
    """The compiled graph on these dependencies; a factory is called at the first step.

    Without a checkpointer for a host that brings its own (LangGraph's server); a service passes
    one in. LangGraph's recursion limit is derived from the most steps a run may have.
    """
    source = ContextSource(context)
    builder = StateGraph(
        AgentState, context_schema=RunOptions, input_schema=AgentInput, output_schema=AgentState
    )
    builder.set_node_defaults(error_handler=on_error(source))
    builder.add_conditional_edges(START, routing.after_start, [intake.__name__])
    for node, then in PICTURE:
        if isinstance(then, str):
            builder.add_node(node.__name__, step(node, source))
            builder.add_edge(node.__name__, then)
        else:
            # A conditional edge, taken by the step itself: see docs/design/routing.md.
            ends = destinations(then)
            builder.add_node(node.__name__, step(node, source, then), destinations=ends)
    graph = builder.compile(checkpointer=checkpointer, name="followup")
    return graph.with_config(recursion_limit=routing.recursion_limit(MAX_STEPS_CEILING))
