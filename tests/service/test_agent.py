"""`FollowupAgent`: what a Python service relies on."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from support import NOW, Endless, Scripted, ask, fill, finish, read_log, tool

import followup_agent
from followup_agent import (
    ApprovalAsked,
    ConfigurationError,
    DecisionMade,
    FollowupAgent,
    InvalidGoal,
    InvalidOption,
    NoAnswer,
    NotWaiting,
    QuestionAsked,
    RunStopped,
    ThreadBusy,
    ToolCalled,
    UnknownThread,
)
from followup_agent.testing.openai_server import OpenAIServer


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home with the known customers."""
    fill(tmp_path / "customers.db").close()
    return tmp_path


def test_every_public_name_is_there() -> None:
    assert sorted(followup_agent.__all__) == sorted(followup_agent._MODULE_OF)
    for name in followup_agent.__all__:
        assert getattr(followup_agent, name) is not None
    assert dir(followup_agent) == sorted(followup_agent.__all__)
    with pytest.raises(AttributeError):
        _ = followup_agent.nothing  # type: ignore[attr-defined]


def test_a_question_is_asked_and_answered_in_another_opening(home: Path) -> None:
    with FollowupAgent.open(home=home, clock=lambda: NOW) as agent:
        run = agent.ask("帮我看看要不要跟进", thread_id="t")
        assert run.status == "needs_input"
        assert run.waiting_for == "answer"
    with FollowupAgent.open(home=home, clock=lambda: NOW) as agent:
        done = agent.answer("t", "user_123")
    assert done.status == "completed"
    assert done.run_id == run.run_id
    assert done.current_step == 5


def test_the_result_has_exactly_the_contracts_keys(home: Path) -> None:
    with FollowupAgent.open(home=home, clock=lambda: NOW) as agent:
        document = json.loads(agent.ask("user_123 要跟进吗").model_dump_json())
    assert set(document) == {
        "thread_id",
        "run_id",
        "user_goal",
        "language",
        "planner",
        "as_of",
        "status",
        "stop_reason",
        "answer",
        "verdict",
        "facts",
        "evidence",
        "tool_history",
        "pending_questions",
        "approval",
        "current_step",
        "max_steps",
        "last_error",
        "usage",
    }
    assert set(document["verdict"]) == {
        "subject",
        "needs_followup",
        "priority",
        "score",
        "reasons",
        "advised_action",
        "coverage",
    }
    fact = document["facts"]["user_123"]["login_count_7d"]
    assert set(fact) == {"value", "unit", "window_days", "call_id", "as_of"}
    assert set(document["tool_history"][0]) == {
        "call_id",
        "step",
        "tool_name",
        "args",
        "outcome",
        "failure_kind",
        "result_summary",
        "success",
        "attempts",
        "duration_ms",
    }


def test_events_are_typed_and_in_order(home: Path) -> None:
    with FollowupAgent.open(home=home, clock=lambda: NOW) as agent:
        kinds = [type(event) for event in agent.stream("create a follow-up task for user_123")]
    assert kinds == [DecisionMade, ToolCalled] * 3 + [DecisionMade, ApprovalAsked, RunStopped]


async def test_the_async_names_work_inside_a_running_loop(home: Path) -> None:
    async with FollowupAgent.aopen(home=home, clock=lambda: NOW) as agent:
        run = await agent.aask("是否需要跟进")
        kinds = [type(e) async for e in agent.astream_answer(run.thread_id, "user_456")]
        assert kinds[-1] is RunStopped
        assert QuestionAsked not in kinds
        assert (await agent.aget(run.thread_id)).status == "completed"
        with pytest.raises(RuntimeError, match="leading 'a'"):
            agent.ask("x")


async def test_many_runs_at_once_keep_to_their_own_customers(home: Path) -> None:
    async with FollowupAgent.aopen(home=home, clock=lambda: NOW) as agent:
        ids = ["user_123", "user_456", "user_789"] * 5
        runs = await asyncio.gather(*(agent.aask(f"{i} 要跟进吗") for i in ids))
    assert [list(run.facts) for run in runs] == [[i] for i in ids]
    events = read_log(home / "logs" / "followup.jsonl")
    by_session: dict[str, set[str]] = {}
    for event in events:
        by_session.setdefault(event["sessionId"], set()).add(event["userGoal"])
        assert event["runId"]
        assert event["step"] >= 1
    assert {run.thread_id: {run.user_goal} for run in runs} == by_session


def test_a_wrong_unknown_or_finished_thread_is_refused_with_its_own_error(home: Path) -> None:
    """B13: no planner call, no tool call, no new checkpoint."""
    planner = Scripted(ask(), tool("r", user_id="user_123"), finish())
    with FollowupAgent.open(home=home, clock=lambda: NOW, planner_object=planner) as agent:
        with pytest.raises(UnknownThread):
            agent.answer("never", "user_123")
        agent.ask("user_123 有工单吗", thread_id="t")
        with pytest.raises(NotWaiting, match="waits for an answer"):
            agent.approve("t")
        for blank in ("", "   ", "\n"):
            with pytest.raises(NoAnswer):
                agent.answer("t", blank)
        with pytest.raises(NoAnswer):
            agent.answer("t", None)  # type: ignore[arg-type]
        assert agent.get("t").pending_questions[0]["id"] == "q1"
        assert len(planner.seen) == 1
        agent.answer("t", "ok")
        with pytest.raises(NotWaiting, match="waits for nothing"):
            agent.answer("t", "again")
    assert planner.left == []


def test_a_new_goal_drops_the_open_question_and_a_late_answer_is_refused(home: Path) -> None:
    """B21."""
    with FollowupAgent.open(home=home, clock=lambda: NOW) as agent:
        agent.ask("要不要跟进", thread_id="t")
        run = agent.ask("算了，改看 user_456 要不要跟进", thread_id="t")
        assert run.verdict is not None
        assert run.verdict["subject"] == "user_456"
        with pytest.raises(NotWaiting):
            agent.answer("t", "user_123")


async def test_one_thread_has_one_writer_in_a_process(home: Path) -> None:
    async with FollowupAgent.aopen(home=home, clock=lambda: NOW) as agent:
        first = agent.astream("user_123 要跟进吗", thread_id="t")
        await anext(first)
        with pytest.raises(ThreadBusy):
            await agent.aask("user_456 要跟进吗", thread_id="t")
        events = [event async for event in first]
        assert isinstance(events[-1], RunStopped)
        assert (await agent.aask("user_456 要跟进吗", thread_id="t")).status == "completed"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"goal": ""}, InvalidGoal),
        ({"goal": " \u200b "}, InvalidGoal),
        ({"goal": "x" * 100_000}, InvalidGoal),
        ({"goal": "user_123 \x00"}, InvalidGoal),
        ({"goal": "user_123 \ud800"}, InvalidGoal),
        ({"goal": "g", "max_steps": 0}, InvalidOption),
        ({"goal": "g", "max_steps": 1000}, InvalidOption),
        ({"goal": "g", "as_of": "yesterday"}, InvalidOption),
        ({"goal": "g", "thread_id": ""}, InvalidOption),
        ({"goal": "g", "thread_id": "x" * 500}, InvalidOption),
        ({"goal": "g", "thread_id": 7}, InvalidOption),
        ({"goal": "g", "thread_id": "a\nb"}, InvalidOption),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    home: Path, arguments: dict[str, Any], error: type[Exception]
) -> None:
    with FollowupAgent.open(home=home) as agent:
        with pytest.raises(error):
            agent.ask(**arguments)
        with pytest.raises((UnknownThread, InvalidOption)):
            agent.get(str(arguments.get("thread_id", "t")))


def test_as_of_hides_what_is_later(home: Path) -> None:
    with FollowupAgent.open(home=home) as agent:
        run = agent.ask("Does user_123 need follow-up?", as_of="2026-01-01")
        assert run.verdict is not None
        assert run.verdict["coverage"]["get_open_tickets"] == "empty"
        assert run.as_of.startswith("2026-01-01T23:59:59")
        unknown = agent.ask("Does user_789 need follow-up?", as_of="2026-01-01")
        assert unknown.status == "needs_input"


def test_tools_of_your_own_come_on_top(home: Path) -> None:
    from pydantic import Field

    from followup_agent import FactDraft, ToolArgs, ToolDefinition, ToolResult

    class Args(ToolArgs):
        """Whose."""

        user_id: str = Field(description="Customer id.")

    class Result(ToolResult):
        """The score."""

        score: int

    score = ToolDefinition(
        name="get_health_score",
        description="Return the health score of one customer.",
        args=Args,
        result=Result,
        run=lambda args: Result(score=71),
        facts=lambda args, result: {"health_score": FactDraft(result.score, "points")},
        effect="read",
    )
    planner = Scripted(tool("r", "get_health_score", user_id="user_123"), finish())
    with FollowupAgent.open(
        home=home, tools=[score], planner_object=planner, clock=lambda: NOW
    ) as agent:
        run = agent.ask("user_123 怎么样")
    assert run.facts["user_123"]["health_score"]["value"] == 71
    with (
        pytest.raises(ConfigurationError, match="registered already"),
        FollowupAgent.open(home=home, tools=[score, score]),
    ):
        pass


def test_a_configured_model_is_never_replaced_by_rules_without_a_word(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot be reached here: that is a failed run."""
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("FOLLOWUP_MODEL", "some-model")
    monkeypatch.setattr("followup_agent.planners.chat.BACK_OFF_S", 0.0)
    with FollowupAgent.open(home=home) as agent:
        run = agent.ask("user_456 有工单吗")
    assert (run.planner, run.status, run.stop_reason) == ("some-model", "failed", "planner_failed")
    assert run.last_error is not None
    assert "cannot be reached" in run.last_error["message"]
    with FollowupAgent.open(home=home, planner="rules") as agent:
        assert agent.ask("user_456 有工单吗").planner == "rules"


@pytest.mark.parametrize(
    ("variables", "said"),
    [({}, "FOLLOWUP_MODEL"), ({"FOLLOWUP_MODEL": "m"}, "OPENAI_API_KEY or OPENAI_BASE_URL")],
)
def test_a_model_that_is_asked_for_and_not_configured_says_what_is_missing(
    variables: dict[str, str], said: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with (
        pytest.raises(ConfigurationError, match=said),
        FollowupAgent.open(home=home, planner="llm"),
    ):
        pass


@pytest.mark.parametrize("url", ["nonsense", "ftp://host/v1", "http://", "http://me:hunter2@h/v1"])
def test_an_address_that_cannot_be_used_is_refused_before_anything(
    url: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    with (
        pytest.raises(ConfigurationError, match="OPENAI_BASE_URL is not") as caught,
        FollowupAgent.open(home=home, model="m"),
    ):
        pass
    assert "hunter2" not in str(caught.value)


def test_a_blank_model_is_no_model(home: Path) -> None:
    with (
        pytest.raises(ConfigurationError, match="FOLLOWUP_MODEL"),
        FollowupAgent.open(home=home, model="  "),
    ):
        pass


def test_what_is_secret_in_a_models_address_is_never_shown(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1?key=hunter3")
    monkeypatch.setattr("followup_agent.planners.chat.BACK_OFF_S", 0.0)
    with FollowupAgent.open(home=home, model="m") as agent:
        run = agent.ask("user_456 有工单吗")
    assert run.answer is not None
    assert "模型服务不可用：m at http://127.0.0.1:9/v1" in run.answer
    kept = "".join(path.read_text("utf-8") for path in (home / "logs").iterdir())
    assert "hunter" not in run.model_dump_json() + kept


def test_a_budget_in_money_needs_a_price(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    with (
        pytest.raises(ConfigurationError, match="FOLLOWUP_PRICES"),
        FollowupAgent.open(home=home, model="unheard-of", budget_cost=1.0),
    ):
        pass


@pytest.mark.parametrize("deadline_s", [0, -1, "soon", True, float("nan"), float("inf")])
def test_a_deadline_is_a_number_of_seconds(deadline_s: Any, home: Path) -> None:
    with FollowupAgent.open(home=home) as agent, pytest.raises(InvalidOption, match="deadline"):
        agent.ask("user_456 有工单吗", deadline_s=deadline_s)


def test_the_timeline_tells_each_step(home: Path) -> None:
    with FollowupAgent.open(home=home, clock=lambda: NOW) as agent:
        run = agent.ask("要跟进吗", thread_id="t")
        run = agent.answer("t", "user_123")
        steps = agent.timeline("t")
    assert [step.step for step in steps] == [1, 2, 3, 4, 5]
    assert steps[0].decision is not None
    assert steps[0].decision["type"] == "ask_user"
    assert [call["call_id"] for step in steps for call in step.calls] == ["c1", "c2", "c3"]
    assert "login_count_7d" in steps[1].new_facts
    assert run.status == "completed"


def test_the_librarys_own_limit_is_a_failed_result_to_the_caller(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B28: even if the graph's own stop before it is broken."""
    from followup_agent.graph import routing

    planner = Endless(
        lambda s: tool("r", "get_user_activity", user_id="user_123", days=s["current_step"] + 1)
    )
    monkeypatch.setattr(routing, "stop_reason", lambda state: None)
    with FollowupAgent.open(home=home, planner_object=planner, clock=lambda: NOW) as agent:
        run = agent.ask("user_123 要跟进吗", max_steps=3)
        assert (run.status, run.stop_reason) == ("failed", "recursion_limit")
        assert run.evidence
        monkeypatch.undo()
        assert agent.get(run.thread_id).status == "failed"


def test_a_misspelled_option_or_an_object_that_is_no_planner_is_refused(home: Path) -> None:
    class NoPlanner:
        """Has a name and nothing else."""

        name = "x"

    with pytest.raises(ConfigurationError, match="no option 'hme'"), FollowupAgent.open(hme="/tmp"):
        pass
    for wrong in (NoPlanner(), Scripted, print):
        with (
            pytest.raises(ConfigurationError, match="is no planner"),
            FollowupAgent.open(home=home, planner_object=wrong),
        ):
            pass


def test_evidence_of_other_tools_is_listed_beside_the_verdict(home: Path) -> None:
    from pydantic import Field

    from followup_agent import EvidenceDraft, ToolArgs, ToolDefinition, ToolResult

    class Args(ToolArgs):
        """Whose."""

        user_id: str = Field(description="Customer id.")

    class Result(ToolResult):
        """The score."""

        score: int

    score = ToolDefinition(
        name="get_health_score", description="Return the health score.", args=Args, result=Result,
        run=lambda args: Result(score=71), effect="read",
        evidence=lambda args, result, language: [EvidenceDraft(f"Score {result.score}", 0.8)],
    )  # fmt: skip
    planner = Scripted(
        tool("r", user_id="user_123"), tool("r", "get_health_score", user_id="user_123"), finish()
    )
    with FollowupAgent.open(
        home=home, tools=[score], planner_object=planner, clock=lambda: NOW
    ) as agent:
        answer = agent.ask("Does user_123 need follow-up?").answer or ""
    assert "Also found:\n- Score 71 [e2]" in answer
    assert answer.index("Basis:") < answer.index("Also found:") < answer.index("Advised action:")


def test_what_was_wrong_with_a_planners_reply_is_in_the_answer(home: Path) -> None:
    planner = Scripted({"type": "tool"}, {"type": "tool"})
    with FollowupAgent.open(home=home, planner_object=planner, clock=lambda: NOW) as agent:
        run = agent.ask("Does user_123 need follow-up?")
    assert "tool.tool_name: Field required" in (run.answer or "")


async def test_a_new_goal_after_a_run_that_was_cut_off_is_about_its_own_customer(
    home: Path,
) -> None:
    async with FollowupAgent.aopen(home=home, clock=lambda: NOW) as agent:
        async with aclosing(agent.astream("user_123 要跟进吗", thread_id="t")) as events:
            async for event in events:
                if isinstance(event, ToolCalled):
                    break  # the caller leaves in the middle
        (entry,) = await agent.athreads()
        assert (entry.status, entry.user_goal) == ("running", "user_123 要跟进吗")
        run = await agent.aask("Does user_456 need follow-up?", thread_id="t")
        assert run.user_goal == "Does user_456 need follow-up?"
        assert run.verdict is not None
        assert run.verdict["subject"] == "user_456"
        assert list(run.facts) == ["user_456"]
        async with aclosing(agent.astream("user_789 要跟进吗", thread_id="t")) as events:
            await anext(events)
        (entry,) = await agent.athreads()
        assert (entry.status, entry.user_goal) == ("running", "user_789 要跟进吗")


async def test_a_run_that_was_cut_off_can_be_cancelled_and_says_so_otherwise(home: Path) -> None:
    async with FollowupAgent.aopen(home=home, clock=lambda: NOW) as agent:
        async with aclosing(agent.astream("user_123 要跟进吗", thread_id="t")) as events:
            await anext(events)
        with pytest.raises(NotWaiting, match="cut off"):
            await agent.aanswer("t", "user_123")
        run = await agent.acancel("t")
        assert (run.status, run.stop_reason) == ("failed", "cancelled")
        with pytest.raises(NotWaiting):
            await agent.acancel("t")


@pytest.mark.parametrize(
    ("goal", "event_type"),
    [("要跟进吗", QuestionAsked), ("create a follow-up task for user_123", ApprovalAsked)],
)
async def test_a_run_cut_off_between_question_and_pause_takes_its_answer(
    home: Path, goal: str, event_type: type
) -> None:
    async with (
        FollowupAgent.aopen(home=home, clock=lambda: NOW) as agent,
        aclosing(agent.astream(goal, thread_id="t")) as events,
    ):
        async for event in events:
            if isinstance(event, event_type):
                break
    async with FollowupAgent.aopen(home=home, clock=lambda: NOW) as agent:
        if event_type is QuestionAsked:
            run = await agent.aanswer("t", "user_456")
        else:
            run = await agent.aapprove("t")
    assert run.status == "completed"


async def test_leaving_a_stream_frees_its_thread_at_once(home: Path) -> None:
    async with FollowupAgent.aopen(home=home, clock=lambda: NOW) as agent:
        stream = agent.astream("user_123 要跟进吗", thread_id="t")
        await anext(stream)
        await stream.aclose()
        assert (await agent.aask("user_456 要跟进吗", thread_id="t")).status == "completed"


async def test_ten_first_runs_at_once_share_one_context(home: Path) -> None:
    from support import Harness

    from followup_agent.graph import build_graph

    made = []

    def factory() -> Any:
        made.append(1)
        return Harness(None).context

    graph = build_graph(factory)
    goals = [graph.ainvoke({"user_goal": "hello"}) for _ in range(10)]
    await asyncio.gather(*goals, return_exceptions=True)
    assert len(made) == 1


def test_many_openings_of_a_new_home_at_once_all_succeed(home: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from followup_agent.runs.database import RunsDatabase

    for number in range(5):
        path = home / f"runs-{number}.db"
        with ThreadPoolExecutor(8) as pool:
            for database in pool.map(lambda _: RunsDatabase(f"sqlite:///{path}"), range(8)):  # noqa: B023 - used at once
                database.close()


def test_a_key_in_dotenv_counts_as_a_configured_model(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OpenAIServer(then={"status": 401, "error": {"message": "no"}}).running() as server:
        (tmp_path / ".env").write_text(
            f"OPENAI_API_KEY=sk-x\nOPENAI_BASE_URL={server.url}\nFOLLOWUP_MODEL=m\n",
            encoding="utf-8",
        )
        monkeypatch.chdir(tmp_path)
        with FollowupAgent.open(home=home) as agent:
            run = agent.ask("user_456 有工单吗")
    assert run.planner == "m"
    assert server.requests[0]["headers"]["authorization"] == "Bearer sk-x"
    assert run.last_error is not None
    assert "OPENAI_API_KEY" in run.last_error["message"]
    assert "sk-x" not in run.model_dump_json()
