"""The planner alone, in recorded states."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from followup_agent.evals.cases import Case, load_cases
from followup_agent.evals.report import load_gates
from followup_agent.evals.running import run_cases
from followup_agent.evals.states import planner_only, read_states, record, write_states
from followup_agent.evals.subject import Subject
from followup_agent.state import AgentState


async def test_the_rules_decide_rightly_in_every_recorded_state() -> None:
    states = read_states()
    report = await planner_only(states, Subject(), load_gates())
    assert report.failures == []
    assert report.ok
    assert {"tool", "ask_user", "finish"} == set(report.by_decision)


async def test_a_thousand_states_take_less_than_five_seconds() -> None:
    states = (read_states() * 10)[:1000]
    assert len(states) == 1000
    started = time.perf_counter()
    report = await planner_only(states, Subject(), load_gates())
    assert report.states == 1000
    assert time.perf_counter() - started < 5.0


async def test_the_recorded_states_are_those_of_the_cases(tmp_path: Path) -> None:
    """Else run `followup eval record evals/states.jsonl.gz` and look at what has changed."""
    assert {s.case for s in read_states()} == {c.name for c in load_cases() if c.tier == "baseline"}
    cases = load_cases()[::4]
    states = record(cases, await run_cases(cases, Subject(), keep_states=True))
    write_states(states, tmp_path / "states.jsonl.gz")
    names = {case.name for case in cases}
    fresh = read_states(tmp_path / "states.jsonl.gz")
    known = [state for state in read_states() if state.case in names]
    assert [(s.case, s.step) for s in fresh] == [(s.case, s.step) for s in known]
    assert fresh == known


class Fixed:
    """Decides one thing, whatever the state."""

    name = "fixed"

    def __init__(self, decision: Any) -> None:
        self._decision = decision

    async def decide(self, state: AgentState) -> Mapping[str, Any]:
        """That, or raise it."""
        if isinstance(self._decision, Exception):
            raise self._decision
        return self._decision  # type: ignore[no-any-return] # some of them are no decisions


def call(name: str, **args: Any) -> dict[str, Any]:
    """A tool decision."""
    return {"type": "tool", "tool_name": name, "args": args, "reason": "r", "expected_outcome": ""}


@pytest.mark.parametrize(
    ("decision", "reason"),
    [
        ({"type": "finish", "reason": "r", "answer_draft": ""}, "decided finish, expected tool"),
        ({"type": "ask_user", "question": "q", "reason": "r"}, "decided ask_user, expected tool"),
        (call("get_user_orders", user_id="user_123"), "called get_user_orders, expected"),
        (call("get_user_activity", user_id="user_123", days=9), "get_user_activity with"),
        ({"type": "dance"}, "no usable decision"),
        (None, "no usable decision"),
        (RuntimeError("no idea"), "the planner failed: RuntimeError"),
    ],
)
async def test_what_is_wrong_with_a_decision_is_said(decision: Any, reason: str) -> None:
    first = next(s for s in read_states() if s.case == "seed-priority-zh")
    # The case leaves the order open; here the first of its calls is the only right one.
    first = first.model_copy(update={"tools": ["get_user_activity"]})
    report = await planner_only([first], Subject(planner=Fixed(decision)), load_gates())
    assert not report.ok
    assert reason in report.failures[0]["reason"]


async def test_where_the_case_leaves_the_order_open_so_is_the_planner_alone() -> None:
    seed: Case = next(case for case in load_cases() if case.name == "seed-priority-zh")
    states = record([seed], await run_cases([seed], Subject(), keep_states=True))
    assert [sorted(s.tools) for s in states] == [
        ["get_open_tickets", "get_user_activity", "get_user_orders"],
        ["get_open_tickets", "get_user_orders"],
        ["get_open_tickets"],
        [],
    ]
