"""The picture: the drawn edges are the written list."""

import inspect
import json
from pathlib import Path

from langgraph.graph.state import CompiledStateGraph

from followup_agent.graph import build, graph, routing
from followup_agent.state import AgentState

EDGES = """
__start__      -> intake
intake         -> planner
planner        -> tool_executor
planner        -> propose_write
planner        -> pose_question
planner        -> synthesizer
planner        -> planner
planner        -> give_up
pose_question  -> ask_user
ask_user       -> planner
ask_user       -> synthesizer
ask_user       -> give_up
propose_write  -> await_approval
propose_write  -> updater
await_approval -> confirm_facts
await_approval -> await_approval
await_approval -> updater
await_approval -> give_up
confirm_facts  -> tool_executor
confirm_facts  -> updater
confirm_facts  -> propose_write
tool_executor  -> updater
updater        -> planner
updater        -> propose_write
updater        -> synthesizer
updater        -> give_up
synthesizer    -> __end__
give_up        -> __end__
"""


def test_the_drawn_edges_equal_the_written_list() -> None:
    drawn = {(edge.source, edge.target) for edge in graph.get_graph().edges}
    written = {tuple(line.replace(" ", "").split("->")) for line in EDGES.strip().splitlines()}
    assert drawn == written


def test_the_graph_for_the_server_has_no_checkpointer_of_its_own() -> None:
    """B48."""
    assert isinstance(graph, CompiledStateGraph)
    assert graph.checkpointer is None


def test_the_server_loads_that_graph_by_name() -> None:
    config = json.loads((Path(__file__).parents[2] / "langgraph.json").read_text(encoding="utf-8"))
    assert config["graphs"]["followup"]["path"] == "followup_agent.graph:graph"
    assert "graph" in vars(inspect.getmodule(build_module()))  # type: ignore[arg-type]


def build_module() -> object:
    """The package that `langgraph.json` names."""
    import followup_agent.graph as package

    return package


def test_schemas_are_there_for_studio() -> None:
    assert "user_goal" in graph.get_input_jsonschema()["properties"]
    assert "verdict" in graph.get_output_jsonschema()["properties"]
    context = graph.get_context_jsonschema()
    assert context is not None
    assert all(inner["description"] for inner in context["properties"].values())


def test_every_seed_field_is_in_the_state() -> None:
    seed = (
        "session_id user_goal current_step max_steps status facts evidence tool_history "
        "pending_questions final_answer last_error"
    )
    assert set(seed.split()) <= set(AgentState.__annotations__)


def test_every_node_and_router_is_in_the_picture() -> None:
    named = {node.__name__ for node, _ in build.PICTURE}
    folder = Path(build.__file__).parents[1] / "nodes"
    assert named == {path.stem for path in folder.glob("*.py")} - {"__init__"}
    routers = {then for _, then in build.PICTURE if callable(then)}
    declared = {
        value
        for name, value in vars(routing).items()
        if name.startswith("after_") and name != "after_start"
    }
    assert routers == declared
