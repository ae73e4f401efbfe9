"""Tools that exist already: LangChain's and MCP's."""

import sys
import time
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import StructuredTool, tool
from pydantic import BaseModel, ConfigDict, Field
from support import Harness, Scripted, fill, finish
from support import tool as call

from followup_agent.customers.database import CustomerDatabase
from followup_agent.tools.definition import DefinitionError
from followup_agent.tools.foreign import MAX_ANSWER_CHARS, from_langchain
from followup_agent.tools.registry import ToolRegistry


class Score(BaseModel):
    """Arguments of the LangChain tools here."""

    model_config = ConfigDict(extra="forbid")
    user_id: str = Field(description="Whose score.")


@tool("get_user_score", args_schema=Score)
def score(user_id: str) -> str:
    """Return the health score of one customer."""
    return f"score of {user_id}: 71"


@pytest.fixture
def company(tmp_path: Path) -> Any:
    """The known customers."""
    database = fill(tmp_path / "customers.db")
    yield database
    database.close()


async def use(definition: Any, database: CustomerDatabase, **args: Any) -> dict[str, Any]:
    """One call of the tool in a real run."""
    planner = Scripted(call("r", definition.name, **args), finish())
    return await Harness(database, planner, [definition]).ask("看看 user_123 怎么样")


async def test_a_langchain_tool_runs_and_its_answer_is_evidence(company: Any) -> None:
    definition = from_langchain(score, effect="read", subject_arg="user_id")
    state = await use(definition, company, user_id="user_123")
    assert state["evidence"][0]["summary"] == "score of user_123: 71"
    assert state["tool_history"][0]["outcome"] == "found"


async def test_it_is_kept_to_the_customer_in_question(company: Any) -> None:
    definition = from_langchain(score, effect="read", subject_arg="user_id")
    state = await use(definition, company, user_id="user_456")
    assert state["tool_history"][0]["failure_kind"] == "out_of_scope"


async def test_its_arguments_are_closed(company: Any) -> None:
    definition = from_langchain(score, effect="read", subject_arg="user_id")
    state = await use(definition, company, user_id="user_123", limit=3)
    assert state["tool_history"][0]["failure_kind"] == "invalid_args"


async def test_a_write_of_it_waits_for_approval(company: Any) -> None:
    definition = from_langchain(
        score, effect="write", name="update_user_score", subject_arg="user_id"
    )
    state = await use(definition, company, user_id="user_123")
    assert state["status"] == "needs_input"


async def test_a_sync_tool_that_hangs_ends_on_time(company: Any) -> None:
    @tool("get_user_score", args_schema=Score)
    def slow(user_id: str) -> str:
        """Return the health score of one customer."""
        time.sleep(2)
        return "late"

    definition = from_langchain(slow, effect="read", subject_arg="user_id", timeout_s=0.05)
    started = time.monotonic()
    state = await use(definition, company, user_id="user_123")
    assert time.monotonic() - started < 1.5
    assert state["tool_history"][0]["failure_kind"] == "timeout"


async def test_a_huge_answer_is_cut_and_the_cut_is_kept(company: Any) -> None:
    async def answer(user_id: str) -> str:
        """Return the health score of one customer."""
        return "x" * 100_000

    huge = StructuredTool.from_function(coroutine=answer, name="get_user_score", args_schema=Score)
    definition = from_langchain(huge, effect="read", subject_arg="user_id")
    run = await Harness(company, tools=[definition]).context.tools.run(
        Harness(company, tools=[definition]).context.tools.prepare(
            "get_user_score", {"user_id": "u"}
        ),  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
    )
    assert run.outcome.result["cut_chars"] == 100_000 - MAX_ANSWER_CHARS  # type: ignore[union-attr]


def test_a_vague_foreign_tool_is_refused() -> None:
    @tool
    def query_db(query: str) -> str:
        """Run any query."""
        return ""

    with pytest.raises(DefinitionError):
        ToolRegistry([from_langchain(query_db, effect="read")])


SERVER = '''
from typing import Annotated
from mcp.server.fastmcp import FastMCP
from pydantic import Field

server = FastMCP("scores")

@server.tool()
def get_health_score(user_id: Annotated[str, Field(description="Whose score.")]) -> str:
    """Return the health score of one customer."""
    return f"健康分 {user_id}: 71"

server.run("stdio")
'''


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_an_mcp_tool_over_a_real_connection(company: Any, tmp_path: Path) -> None:
    from langchain_mcp_adapters.client import MultiServerMCPClient

    (tmp_path / "server.py").write_text(SERVER, encoding="utf-8")
    client = MultiServerMCPClient(
        {
            "scores": {
                "command": sys.executable,
                "args": [str(tmp_path / "server.py")],
                "transport": "stdio",
            }
        }
    )
    (remote,) = await client.get_tools()
    definition = from_langchain(remote, effect="read", subject_arg="user_id", timeout_s=30)
    state = await use(definition, company, user_id="user_123")
    assert state["evidence"][0]["summary"] == "健康分 user_123: 71"
    refused = await use(definition, company, user_id="user_123", extra=1)
    assert refused["tool_history"][0]["failure_kind"] == "invalid_args"
