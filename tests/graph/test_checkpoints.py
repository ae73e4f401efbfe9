"""What is stored comes back as it was."""

import json
import warnings
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.event_hooks import register_serde_event_listener
from langgraph.types import Command
from support import Harness, fill

from followup_agent.customers.database import CustomerDatabase
from followup_agent.graph.build import build_graph
from followup_agent.graph.checkpoints import open_sqlite_saver


def plain(value: Any) -> Any:
    """The value without messages, which are LangChain's own."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value if not isinstance(inner, BaseMessage)]
    return value


async def test_the_state_is_plain_json_and_round_trips_exactly(tmp_path: Path) -> None:
    """B12: no class instance, no warning, strict serializer, another connection."""
    events: list[Any] = []
    detach = register_serde_event_listener(events.append)
    database = fill(tmp_path / "customers.db")
    config = {"configurable": {"thread_id": "t"}}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        harness = Harness(database)
        async with open_sqlite_saver(tmp_path / "runs.db") as saver:
            graph = build_graph(harness.context, checkpointer=saver)
            before = await graph.ainvoke({"user_goal": "为 user_123 创建跟进任务"}, config)  # type: ignore[arg-type]
        async with open_sqlite_saver(tmp_path / "runs.db") as saver:
            graph = build_graph(harness.context, checkpointer=saver)
            stored = (await graph.aget_state(config)).values  # type: ignore[arg-type]
            before.pop("__interrupt__")
            assert json.loads(json.dumps(plain(stored))) == plain(before)
            after = await graph.ainvoke(Command(resume="同意"), config)  # type: ignore[arg-type]
    database.close()
    detach()
    assert after["status"] == "completed"
    assert events == []


async def test_raw_results_are_in_no_later_checkpoint(company_of_two: CustomerDatabase) -> None:
    harness = Harness(company_of_two)
    await harness.ask("user_123 要跟进吗")
    history = [s async for s in harness.graph.aget_state_history(harness.config())]  # type: ignore[arg-type]
    holding = [snapshot for snapshot in history if "observations" in snapshot.values]
    assert len(holding) == 3
    assert all(snapshot.next == ("updater",) for snapshot in holding)
