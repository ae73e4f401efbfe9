"""The report: nothing vanishes, nothing broken counts as right, and a number can be trusted."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tenacity.wait import wait_random

from followup_agent.evals.cases import Case, load_cases, select
from followup_agent.evals.compare import compare
from followup_agent.evals.evaluate import aevaluate, evaluate
from followup_agent.evals.page import html
from followup_agent.evals.report import Gates, Rate, load_gates, make_report
from followup_agent.evals.scorers import SCORERS, Score, task_completion
from followup_agent.evals.subject import Bench, Crash, Episode, Subject
from followup_agent.judgement.policy import load_policy
from followup_agent.planners.rules import RulePlanner
from followup_agent.state import AgentState
from followup_agent.testing.loopback import JsonHandler, LoopbackServer
from followup_agent.tools import BUILT_IN

NAMES = [tool.name for tool in BUILT_IN]


def cases_of(count: int, **fields: Any) -> list[Case]:
    """So many cases: user_123 needs follow-up, user_456 and user_789 do not."""
    customers = ("user_123", "user_456", "user_789")
    return [
        Case.model_validate(
            {
                "name": f"case-{n}",
                "input": f"Does {customers[n % 3]} need priority follow-up?",
                "language": "en",
                "tags": ["t"],
                "expected_needs_followup": n % 3 == 0,
                **fields,
            }
        )
        for n in range(count)
    ]


class Raising:
    """A planner that breaks each time."""

    name = "raising"

    async def decide(self, state: AgentState) -> Mapping[str, Any]:
        """Never."""
        raise RuntimeError("no idea")


def test_a_planner_that_breaks_is_right_in_no_case() -> None:
    report = evaluate(cases_of(5), Subject(planner=Raising()))
    assert (report.cases, report.passed, report.failed, report.errored) == (5, 0, 0, 5)
    assert report.evals["task_completion"].score == 0.0
    assert report.evals["task_completion"].n == 5
    assert not report.gate.ok
    assert "5 cases errored" in report.gate.problems[0]
    assert all("no idea" in failure.reason for failure in report.failures)


def test_an_evaluator_that_raises_shows_in_the_report_and_in_the_gate() -> None:
    def every_second(case: Case, episode: Episode) -> Score | None:
        if int(case.name.split("-")[1]) % 2:
            raise ZeroDivisionError("a share of nothing")
        return task_completion(case, episode)

    report = evaluate(cases_of(6), scorers={**SCORERS, "mine": every_second})
    assert report.evals["mine"].n == 6
    assert report.evals["mine"].score == 0.5
    assert (report.passed, report.errored) == (3, 3)
    assert not report.gate.ok
    assert {f.case for f in report.failures if f.errored} == {"case-1", "case-3", "case-5"}


def test_a_turn_that_does_not_fit_is_no_success() -> None:
    (case,) = cases_of(1, turns=[{"answer": "user_123"}])
    report = evaluate([case])
    assert report.errored == 1
    assert "unfinished" in report.failures[0].reason


class Flaky:
    """The rules, but every other run of a case it finishes at once."""

    name = "flaky"

    def __init__(self) -> None:
        self.rules = RulePlanner(load_policy(), NAMES, "user_123")
        self.runs: dict[str, int] = {}
        self.given_up: set[str] = set()

    async def decide(self, state: AgentState) -> Mapping[str, Any]:
        """What the rules say, or finish."""
        goal, run_id = state["user_goal"], state["run_id"]
        if state["current_step"] == 0:
            self.runs[goal] = self.runs.get(goal, 0) + 1
            if "user_456" in goal and self.runs[goal] % 2 == 0:
                self.given_up.add(run_id)
        if run_id in self.given_up:
            return {"type": "finish", "reason": "enough", "answer_draft": ""}
        return await self.rules.decide(state)


def test_repeats_tell_what_is_always_right_from_what_is_right_sometimes() -> None:
    report = evaluate(cases_of(3), Subject(planner=Flaky()), repeat=4, concurrency=1)
    assert report.unstable == ["case-1"]
    assert report.pass_at_1 == pytest.approx((1 + 0.5 + 1) / 3)
    assert report.pass_pow[1] == pytest.approx(report.pass_at_1)
    assert report.pass_pow[2] == pytest.approx((1 + 1 / 6 + 1) / 3)
    assert report.pass_pow[4] == pytest.approx(2 / 3)
    assert report.evals["task_completion"].n == 3
    assert report.evals["task_completion"].score == pytest.approx(2 / 3)
    assert not report.gate.ok


@given(st.integers(1, 300), st.data())
def test_an_interval_holds_its_share_and_narrows(n: int, data: st.DataObject) -> None:
    right = data.draw(st.integers(0, n))
    rate, more = Rate.of(right, n), Rate.of(right * 4, n * 4)
    assert 0 <= rate.low <= rate.score <= rate.high <= 1
    assert more.high - more.low < rate.high - rate.low


def test_known_intervals() -> None:
    """Newcombe 1998, table I: 81 of 263 is 0.2553 to 0.3662; 0 of 20 is 0 to 0.1611."""
    rate, none = Rate.of(81, 263), Rate.of(0, 20)
    assert (round(rate.low, 4), round(rate.high, 4)) == (0.2553, 0.3662)
    assert (none.low, round(none.high, 4)) == (0.0, 0.1611)


def test_a_frontier_case_is_reported_and_no_gate() -> None:
    wrong = cases_of(1, tier="frontier", expected_needs_followup=False)
    report = evaluate(wrong)
    assert (report.failed, report.gate.ok) == (1, True)
    assert report.failures[0].tier == "frontier"
    assert not evaluate(cases_of(1, expected_needs_followup=False)).gate.ok


def test_a_case_that_was_not_run_is_not_passed_over() -> None:
    with pytest.raises(ValueError, match="never run"):
        make_report(cases_of(1), [], {})


# --- load is not quality ---


class BusyServer(LoopbackServer):
    """Serves 5 requests at a time, `per_second` of them in `second` seconds."""

    def __init__(self, per_second: int, second: float) -> None:
        super().__init__(0, Busy)
        self.per_second, self.second = per_second, second
        self.times: list[float] = []
        self.under_way = self.refused = 0


class Busy(JsonHandler):
    """Turns away what is too much."""

    server: BusyServer

    def do_GET(self) -> None:
        """200, or 429."""
        server = self.server
        with server.lock:
            now = time.monotonic()
            server.times = [t for t in server.times if now - t < server.second]
            free = server.under_way < 5 and len(server.times) < server.per_second
            if free:
                server.under_way += 1
                server.times.append(now)
        if free:
            time.sleep(0.002)
        self.answer(200 if free else 429, {})
        with server.lock:
            server.under_way -= free
            server.refused += not free


class Asking:
    """The rules, behind a server that has to be asked first."""

    name = "asking"

    def __init__(self, url: str) -> None:
        self.rules = RulePlanner(load_policy(), NAMES, "user_123")
        self.url = url
        self.admitted: set[str] = set()

    async def decide(self, state: AgentState) -> Mapping[str, Any]:
        """Once a run is admitted, what the rules say."""
        if state["run_id"] not in self.admitted:
            async with httpx.AsyncClient(trust_env=False) as client:
                (await client.get(self.url)).raise_for_status()
            self.admitted.add(state["run_id"])
        return await self.rules.decide(state)


def test_a_busy_server_is_waited_for_and_no_case_is_scored_as_wrong() -> None:
    with BusyServer(per_second=3, second=0.1).running() as server:
        planner = Asking(server.address)
        report = evaluate(
            cases_of(50), Subject(planner=planner), concurrency=16, wait=wait_random(0.05, 0.4)
        )
        refused = server.refused
    assert refused > 0
    assert (report.cases, report.passed, report.errored) == (50, 50, 0)


def test_a_server_that_is_away_is_infrastructure_and_no_judgement() -> None:
    gone = Asking("http://127.0.0.1:9/")
    report = evaluate(cases_of(3), Subject(planner=gone), wait=wait_random(0, 0))
    assert (report.errored, report.failed, report.passed) == (3, 0, 0)
    assert report.infrastructure() == ["case-0", "case-1", "case-2"]
    assert all("infrastructure" in failure.reason for failure in report.failures)


def test_time_is_that_of_the_attempt_that_counts() -> None:
    with BusyServer(per_second=1, second=0.5).running() as server:
        planner = Asking(server.address)
        report = evaluate(
            cases_of(3), Subject(planner=planner), concurrency=1, wait=wait_random(0.8, 0.9)
        )
    assert report.passed == 3
    assert report.measures["seconds"]["max"] < 0.8


# --- from anywhere ---


async def test_it_runs_within_a_running_loop_and_beside_it() -> None:
    cases = cases_of(2)
    assert evaluate(cases).passed == 2  # as a notebook calls it
    assert (await aevaluate(cases)).passed == 2
    assert (await asyncio.to_thread(evaluate, cases)).passed == 2


NO_NETWORK = """
import socket, sys, warnings
warnings.simplefilter("error")
real = socket.socket.connect
def refuse(*args, **kwargs):
    sys.stderr.write(f"NETWORK {args[1:]}\\n")
    raise OSError("no network")
socket.socket.connect = socket.socket.connect_ex = refuse
socket.getaddrinfo = refuse
from followup_agent.cli.start import main
sys.argv = ["followup", "eval", "run", "--tag", "seed", "--json"]
main()
"""


def test_without_a_network_it_is_the_same_and_nothing_is_tried(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", NO_NETWORK],
        capture_output=True, text=True, cwd=tmp_path, check=False, timeout=120,
        env={"PATH": "/usr/bin:/bin", "LANG": "C", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert run.stderr == ""
    assert run.returncode == 0
    document = json.loads(run.stdout)
    assert document["passed"] == document["cases"] == 4


@pytest.mark.slow
def test_a_hundred_and_twenty_cases_take_less_than_twenty_seconds() -> None:
    """Of one processor: what else the machine does is not measured."""
    cases = load_cases()[:120]
    started = time.process_time()
    report = evaluate(cases)
    taken = time.process_time() - started
    assert report.cases == 120
    assert taken < 20.0


# --- reports beside each other, and as a page ---


def test_two_reports_are_compared_case_by_case() -> None:
    cases = cases_of(6)
    good = evaluate(cases)
    bad = evaluate(cases, Subject(policy=load_policy().model_copy(update={"version": "x"}),
                                  planner=Finishing()))  # fmt: skip
    change = compare(bad, good)
    assert change.evals["task_completion"].better == [case.name for case in cases]
    assert change.evals["task_completion"].worse == []
    assert change.evals["task_completion"].p == pytest.approx(2 * 0.5**6)
    assert change.flipped["case-0"] == ("undetermined", "high")
    assert change.differs["planner"] == ("finishing", "rules")
    same = compare(good, good)
    assert (same.evals["all"].both_pass, same.evals["all"].p, same.flipped) == (6, 1.0, {})


class Finishing:
    """Finishes at once."""

    name = "finishing"

    async def decide(self, state: AgentState) -> Mapping[str, Any]:
        """Finish."""
        return {"type": "finish", "reason": "enough", "answer_draft": ""}


def test_the_page_shows_failures_and_escapes_what_it_is_given() -> None:
    (case,) = cases_of(1, input="<script>alert(1)</script> 判断 user_123", language="zh",
                       expected_needs_followup=False)  # fmt: skip
    page = html(evaluate([case]))
    assert "Below the gate" in page
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "get_open_tickets(user_id=user_123)" in page
    assert "需要重点跟进" in page
    assert "http" not in page.replace("http-equiv", "")


def test_gates_are_read_and_refused_with_a_reason(tmp_path: Path) -> None:
    assert isinstance(load_gates(), Gates)
    wrong = tmp_path / "gates.toml"
    wrong.write_text("errored = -1", encoding="utf-8")
    with pytest.raises(ValueError, match=r"gates\.toml.*errored"):
        load_gates(wrong)


def test_a_gate_for_an_evaluator_that_is_none_is_refused(tmp_path: Path) -> None:
    text = "errored=0\nunstable=0\nlaws_broken=0\nplanner_only=1.0\n[baseline]\n"
    path = tmp_path / "gates.toml"
    for line, reason in (
        ("tool_selecton=1.0", "no evaluator 'tool_selecton'"),
        ("language=2", "1"),
    ):
        path.write_text(text + line, encoding="utf-8")
        with pytest.raises(ValueError, match=reason):
            load_gates(path)


def test_cases_are_chosen_by_tag_and_by_name() -> None:
    cases = load_cases()
    assert {case.language for case in select(cases, tags=["zh"])} == {"zh"}
    assert [case.name for case in select(cases, names=["seed-priority-zh"])] == ["seed-priority-zh"]
    with pytest.raises(ValueError, match="the tags are"):
        select(cases, tags=["zz"])
    with pytest.raises(ValueError, match="there is no case"):
        select(cases, names=["nobody"])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("- {name: A}", "case A: name"),
        ("- {name: a, input: x, language: zh, tags: [t]}", "expects nothing"),
        (
            "- {name: a, input: x, language: zh, tags: [t], expected_status: done}",
            "expected_status",
        ),
        ("- {name: a, input: x, language: zh, tags: [t], expect: 1}", "expect"),
        (
            "- {name: a, input: x, language: zh, tags: [t], expected_status: failed,"
            " world: {customers: {}, timezone: Mars/Base}}",
            "timezone",
        ),
        (
            "- {name: a, input: x, language: zh, tags: [t, t], expected_status: failed}",
            "a tag stands twice",
        ),
        (
            "- {name: a, input: x, language: zh, tags: [t], name: b, expected_status: failed}",
            "'name' stands twice",
        ),
        (
            '- {name: a, input: "\\ud800", language: zh, tags: [t], expected_status: failed}',
            "input",
        ),
        ("- {name: a, input: x, language: zh, tags: [t], expected_tools: null}", "expects nothing"),
        (
            "- {name: a, input: x, language: zh, tags: [t], expected_status: failed,"
            " world: {as_of: 2026-13-45, customers: {}}}",
            "cannot be read as YAML",
        ),
        ("a: [", "cannot be read as YAML"),
        ("a: 1", "no list"),
        ("", "no list"),
        (
            "- {name: a, input: x, language: zh, tags: [t], expected_status: failed, world: mars}",
            "no world 'mars'",
        ),
    ],
)
def test_a_wrong_case_is_named_with_its_file_and_key(
    tmp_path: Path, text: str, reason: str
) -> None:
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=reason):
        load_cases(tmp_path)


class Nonsense:
    """A planner whose decisions are none, in its first run, or always."""

    name = "nonsense"

    def __init__(self, *, always: bool = True) -> None:
        self.rules = RulePlanner(load_policy(), NAMES, "user_123")
        self.always = always
        self.first: str | None = None

    async def decide(self, state: AgentState) -> Mapping[str, Any]:
        """Nothing usable, or what the rules say."""
        self.first = self.first or state["run_id"]
        if self.always or state["run_id"] == self.first:
            return {"type": "nonsense"}
        return await self.rules.decide(state)


@pytest.mark.parametrize(
    "fields",
    [
        {"expected_tools": [], "expected_needs_followup": None},
        {"expected_tools": ["get_user_activity"], "tools_match": "subset"},
        {"expected_tasks": [], "expected_needs_followup": None},
    ],
)
def test_a_planner_without_a_usable_decision_is_errored(fields: dict[str, Any]) -> None:
    report = evaluate(cases_of(1, **fields), Subject(planner=Nonsense()))
    assert (report.passed, report.errored, report.gate.ok) == (0, 1, False)


def test_a_planner_that_breaks_in_an_earlier_run_of_the_thread_is_errored() -> None:
    (case,) = cases_of(1, turns=[{"goal": "Does user_123 need priority follow-up?"}])
    report = evaluate([case], Subject(planner=Nonsense(always=False)))
    assert (report.passed, report.errored) == (0, 1)


class Recovering:
    """Raises once, and then gives nothing usable, or what the rules say."""

    name = "recovering"

    def __init__(self, error: BaseException, *, well: bool) -> None:
        self.rules = RulePlanner(load_policy(), NAMES, "user_123")
        self.error: BaseException | None = error
        self.well = well
        self.decided = 0

    async def decide(self, state: AgentState) -> Mapping[str, Any]:
        """As told."""
        error, self.error = self.error, None
        if error is not None:
            raise error
        self.decided += 1
        return await self.rules.decide(state) if self.well or self.decided == 1 else {}


def test_a_planner_that_recovers_is_judged_by_what_it_does() -> None:
    assert evaluate(cases_of(1), Subject(planner=Recovering(KeyError("x"), well=True))).passed == 1


def test_a_former_error_does_not_explain_a_later_failure() -> None:
    planner = Recovering(ConnectionError("away"), well=False)
    report = evaluate(cases_of(1), Subject(planner=planner), wait=wait_random(0, 0))
    assert report.errored == 1
    assert report.infrastructure() == []


def test_a_planner_that_would_end_the_process_ends_its_case_alone() -> None:
    class Leaving(Raising):
        async def decide(self, state: AgentState) -> Mapping[str, Any]:
            raise SystemExit(3)

    report = evaluate(cases_of(2), Subject(planner=Leaving()))
    assert (report.cases, report.errored) == (2, 2)


class Wavering:
    """The rules every other run; else it asks."""

    name = "wavering"

    def __init__(self) -> None:
        self.rules = RulePlanner(load_policy(), NAMES, "user_123")
        self.runs = 0
        self.asking = ""

    async def decide(self, state: AgentState) -> Mapping[str, Any]:
        """What the rules say, or a question."""
        if state["current_step"] == 0:
            self.runs += 1
            self.asking = state["run_id"] if self.runs % 2 == 0 else self.asking
        if state["run_id"] == self.asking:
            return {"type": "ask_user", "question": "Which one?", "reason": "unsure"}
        return await self.rules.decide(state)


def test_an_attempt_that_was_not_asked_something_is_not_wrong_in_it() -> None:
    (case,) = cases_of(1, expected_tools=[], tools_match="superset", expected_needs_followup=None)
    report = evaluate([case], Subject(planner=Wavering()), repeat=2, concurrency=1)
    assert report.gate.problems == []
    assert report.evals["groundedness"].score == 1.0
    ends, asks = evaluate([case]), evaluate([case], Subject(planner=Always()))
    assert "groundedness" not in compare(ends, asks).evals
    assert "groundedness" not in compare(asks, ends).evals


class Always:
    """Asks."""

    name = "always"

    async def decide(self, state: AgentState) -> Mapping[str, Any]:
        """A question."""
        return {"type": "ask_user", "question": "Which one?", "reason": "unsure"}


def test_an_unstable_frontier_case_is_no_gate() -> None:
    (case,) = cases_of(1, tier="frontier")
    report = evaluate([case], Subject(planner=Wavering()), repeat=2, concurrency=1)
    assert report.unstable == ["case-0"]
    assert report.gate.ok


class Hanging:
    """A planner that never comes back."""

    name = "hanging"

    async def decide(self, state: AgentState) -> Mapping[str, Any]:
        """Wait."""
        await asyncio.Event().wait()
        return {}


async def test_a_case_that_hangs_is_ended_as_unfinished() -> None:
    (case,) = cases_of(1)
    with Bench.temporary() as bench:
        episode = await bench.run(case, Subject(planner=Hanging()), limit_s=0.05)
    assert episode.crash == Crash(kind="unfinished", message="not done after 0.05 s")


def test_a_fault_of_no_tool_errors_its_case_alone() -> None:
    wrong = Case.model_validate(
        {"name": "wrong", "input": "user_123?", "language": "en", "tags": ["t"],
         "faults": {"get_weather": "timeout"}, "expected_status": "completed"}
    )  # fmt: skip
    report = evaluate([wrong, *cases_of(2)])
    assert (report.passed, report.errored) == (2, 1)
    assert "'get_weather', which is no tool" in report.failures[0].reason


def test_two_cases_of_one_name_are_refused(tmp_path: Path) -> None:
    row = "- {name: a, input: x, language: zh, tags: [t], expected_status: failed}\n"
    (tmp_path / "mine.yaml").write_text(row * 2, encoding="utf-8")
    with pytest.raises(ValueError, match="two cases are named"):
        load_cases(tmp_path)
