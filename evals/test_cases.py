"""The three questions of the seed document, asked of each case: right tool, right arguments, task done.

The rule planner is judged here, through the real graph on a real database. A case is a row of
`cases/*.yaml`; what is not stated in it is not asked.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, ConfigDict
from support import Harness, fill

from followup_agent.customers.database import CustomerDatabase


class Case(BaseModel):
    """One line of behaviour."""

    model_config = ConfigDict(extra="forbid")

    name: str
    input: str
    expected_tools: list[str]
    """The tools called, in order."""
    expected_args: dict[str, dict[str, Any]] = {}
    """Tool name to the arguments of its call."""
    expected_must_contain: list[str] = []
    expected_status: str = "completed"
    expected_needs_followup: bool | None = None


CASES = [
    Case.model_validate(row)
    for path in sorted(Path(__file__).with_name("cases").glob("*.yaml"))
    for row in yaml.safe_load(path.read_text(encoding="utf-8"))
]


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CustomerDatabase]:
    """The three known customers."""
    database = fill(tmp_path_factory.mktemp("evals") / "customers.db")
    yield database
    database.close()


@pytest.fixture(params=CASES, ids=lambda case: case.name)
async def outcome(request: pytest.FixtureRequest, company: CustomerDatabase) -> Any:
    """One case and the state its run ended in."""
    return request.param, await Harness(company).ask(request.param.input)


def test_names_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


async def test_tool_selection(outcome: tuple[Case, dict[str, Any]]) -> None:
    case, state = outcome
    assert [call["tool_name"] for call in state["tool_history"]] == case.expected_tools


async def test_argument_quality(outcome: tuple[Case, dict[str, Any]]) -> None:
    case, state = outcome
    given = {call["tool_name"]: call["args"] for call in state["tool_history"]}
    assert {name: given.get(name) for name in case.expected_args} == case.expected_args


async def test_task_completion(outcome: tuple[Case, dict[str, Any]]) -> None:
    case, state = outcome
    assert state["status"] == case.expected_status
    answer = state["final_answer"] or ""
    assert [words for words in case.expected_must_contain if words not in answer] == []
    if case.expected_needs_followup is not None:
        assert state["verdict"]["needs_followup"] is case.expected_needs_followup
