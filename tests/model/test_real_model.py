"""A real model through all guards: whatever it writes, runs end, nothing is written, nobody is
invented. The model of `make model` is hopeless on purpose; `FOLLOWUP_TEST_GGUF` takes another."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gguf import find_model, serving
from reports import report
from support import NOW, fill, tasks

from followup_agent import FollowupAgent
from followup_agent.customers.database import CustomerDatabase
from followup_agent.service.run import Run

pytestmark = [pytest.mark.slow, pytest.mark.model]

MAX_STEPS = 4
GOALS = [
    ("帮我判断 user_123 最近是否需要重点跟进", "narrow", 16.0),
    ("最近要不要跟进？", "narrow", 6.0),
    ("请为 user_123 创建一个跟进任务", "narrow", 6.0),
    ("user_404 要跟进吗", "free", 6.0),
    ("Does user_456 need priority follow-up?", "narrow", 16.0),
    ("Does user_123 need priority follow-up?", "free", 6.0),
    ("How many open tickets does user_123 have?", "free", 6.0),
    ("Create a follow-up task for user_123 if it needs one", "free", 6.0),
]
"""Both languages, with and without an id, with a customer nobody knows, with a wish for a write; and
the seconds that a run may work: two that get to the end, and six that need not."""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The model's base URL."""
    model = find_model()
    if isinstance(model, str):
        pytest.skip(model)
    with serving(model) as url:
        yield url


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CustomerDatabase]:
    """The known customers; nothing may be written to it."""
    database = fill(tmp_path_factory.mktemp("company") / "customers.db")
    yield database
    database.close()


@pytest.mark.parametrize(("goal", "guidance", "deadline_s"), GOALS)
def test_the_guards_hold(
    goal: str,
    guidance: str,
    deadline_s: float,
    endpoint: str,
    company: CustomerDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", endpoint)
    options: dict[str, Any] = {
        "home": tmp_path,
        "customers_url": str(company.engine.url),
        "model": "small",
        "planner": "llm",
        "guidance": guidance,
        "max_output_tokens": 80,
    }
    started = time.monotonic()
    with FollowupAgent.open(**options, clock=lambda: NOW) as agent:
        run = agent.ask(goal, max_steps=MAX_STEPS, deadline_s=deadline_s)
    seconds = time.monotonic() - started
    _check(run, company)
    assert seconds < deadline_s + 15  # opening the agent is in it
    tell(f"{guidance:<6} {run.status:<11} {run.stop_reason:<17} {seconds:5.1f} s  {goal}")


TOLD: list[str] = []


def tell(line: str) -> None:
    """Print at the end of the session."""
    TOLD.append(line)
    report("model", TOLD)


def _check(run: Run, company: CustomerDatabase) -> None:
    """A valid result within its limits; a computed verdict or an honest failure; never a write."""
    assert Run.model_validate(json.loads(run.model_dump_json())) == run
    assert run.status in ("completed", "failed", "needs_input")
    assert run.current_step <= MAX_STEPS
    assert 1 <= run.usage["model_calls"] <= 3 * MAX_STEPS
    assert tasks(company) == []
    for call in run.tool_history:
        named = call["args"].get("user_id")
        assert named is None or named in run.user_goal or call["failure_kind"] == "out_of_scope"
        assert not (call["tool_name"] == "send_followup_task" and call["success"])
    if run.status == "completed" and run.verdict is not None:
        assert run.verdict["subject"] in run.user_goal
        assert {e for r in run.verdict["reasons"] for e in r["evidence_ids"]} <= {
            item["id"] for item in run.evidence
        }
    if run.status == "failed":
        assert run.verdict is None or run.verdict["needs_followup"] is not False
    assert run.answer


if os.environ.get("FOLLOWUP_TEST_GGUF"):  # what a better model chooses is worth a look

    @pytest.mark.parametrize("guidance", ["free", "narrow"])
    def test_what_it_chooses_is_reported(
        guidance: str, endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """No gate: a model is judged by `followup eval run`. First decisions of 20 goals, and the
        share of whole runs that go as they should."""
        from choices import first_decisions, ideal_runs

        monkeypatch.setenv("OPENAI_BASE_URL", endpoint)
        right, asked = first_decisions(guidance, tmp_path / "first")
        ideal, runs = ideal_runs(guidance, tmp_path / "runs")
        tell(f"{guidance:<6} right first decision {right} of {asked}, ideal runs {ideal} of {runs}")
