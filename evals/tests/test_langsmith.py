"""LangSmith, with its real client against a server on loopback."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import langsmith
import pytest
import yaml
from urllib3.util import Retry

from followup_agent.evals import langsmith_pull as pulling
from followup_agent.evals import langsmith_sync as sync
from followup_agent.evals.cases import Case, load_cases
from followup_agent.evals.evaluate import evaluate
from followup_agent.evals.scorers import SCORERS
from followup_agent.evals.scorers import score as score_all
from followup_agent.evals.subject import Bench, Subject
from followup_agent.service.errors import ConfigurationError
from followup_agent.testing.langsmith_server import LangSmithServer

FOLDER = Path(__file__).parent


@pytest.fixture
def server() -> Iterator[LangSmithServer]:
    """The server."""
    with LangSmithServer().running() as running:
        yield running


@pytest.fixture
def client(server: LangSmithServer) -> Iterator[langsmith.Client]:
    """The real client of it."""
    opened = langsmith.Client(api_url=server.url, api_key="test")
    yield opened
    sync.close(opened)


def some_cases() -> list[Case]:
    """The seed's four."""
    return [case for case in load_cases() if "seed" in case.tags]


def changed(case: Case, **fields: Any) -> Case:
    """The case with something else in it."""
    document = case.model_dump(mode="json", exclude_unset=True)
    return Case.model_validate({**document, **fields})


# --- push ---


def test_a_second_push_changes_nothing(client: langsmith.Client, server: LangSmithServer) -> None:
    cases = some_cases()
    first = sync.push(client, cases, "followup")
    assert first.create == [case.name for case in cases]
    stored = json.dumps(server.examples, sort_keys=True)
    server.requests.clear()
    second = sync.push(client, cases, "followup")
    assert second == sync.PushPlan([], [], [], [case.name for case in cases])
    assert server.writes() == []
    assert json.dumps(server.examples, sort_keys=True) == stored
    assert len(server.datasets) == 1


def test_an_edited_case_is_one_update(client: langsmith.Client, server: LangSmithServer) -> None:
    cases = some_cases()
    sync.push(client, cases, "followup")
    server.requests.clear()
    cases[0] = changed(cases[0], expected_must_contain=["重点"])
    plan = sync.push(client, cases, "followup")
    assert (plan.create, plan.update, plan.remove) == ([], [cases[0].name], [])
    assert len(server.writes()) == 1
    example = server.examples[str(sync.example_id("followup", cases[0].name))]
    assert example["outputs"]["expected_must_contain"] == ["重点"]
    assert len(server.examples) == len(cases)


def test_a_change_of_splits_alone_is_an_update_too(
    client: langsmith.Client, server: LangSmithServer
) -> None:
    cases = some_cases()
    sync.push(client, cases, "followup")
    cases[0] = changed(cases[0], tags=["judgement", "monday"])
    assert sync.push(client, cases, "followup").update == [cases[0].name]
    found = list(client.list_examples(dataset_name="followup", splits=["monday"]))
    assert [example.inputs["case"] for example in found if example.inputs] == [cases[0].name]


def test_a_removal_is_said_first_and_done_when_asked(
    client: langsmith.Client, server: LangSmithServer
) -> None:
    cases = some_cases()
    sync.push(client, cases, "followup")
    server.requests.clear()
    plan = sync.push(client, cases[1:], "followup")
    assert plan.remove == [cases[0].name]
    assert server.writes() == []
    assert len(server.examples) == len(cases)
    sync.push(client, cases[1:], "followup", remove=True)
    assert len(server.examples) == len(cases) - 1
    assert sync.push(client, cases[1:], "followup").remove == []


def test_examples_of_others_are_left_alone(
    client: langsmith.Client, server: LangSmithServer
) -> None:
    cases = some_cases()
    sync.push(client, cases, "followup")
    client.create_example(inputs={"x": 1}, reference_outputs={"y": 2}, dataset_name="followup")
    plan = sync.push(client, cases, "followup", remove=True)
    assert plan.remove == []
    assert len(server.examples) == len(cases) + 1


def test_examples_are_split_by_tag_language_and_tier(
    client: langsmith.Client, server: LangSmithServer
) -> None:
    sync.push(client, some_cases(), "followup")
    for split, count in (("seed", 4), ("zh", 4), ("baseline", 4), ("orders", 1)):
        found = list(client.list_examples(dataset_name="followup", splits=[split]))
        assert len(found) == count, split


def test_every_case_can_be_pushed_and_chinese_stays_as_it_is(
    client: langsmith.Client, server: LangSmithServer
) -> None:
    cases = load_cases()
    sync.push(client, cases, "followup")
    assert len(server.examples) == len(cases)
    assert sync.push(client, cases, "followup").unchanged == [case.name for case in cases]
    example = server.examples[str(sync.example_id("followup", "seed-priority-zh"))]
    assert example["inputs"]["user_goal"] == "帮我判断 user_123 最近是否需要重点跟进"


# --- experiments ---


async def test_an_experiment_keeps_every_run_and_every_score(
    client: langsmith.Client, server: LangSmithServer
) -> None:
    cases = some_cases()
    sync.push(client, cases, "followup")
    name, episodes = await sync.run_experiment(
        client,
        "followup",
        cases,
        Subject(),
        metadata={"commit": "abc", "planner": "rules"},
        repeat=2,
    )
    client.flush()
    assert sorted((e.case, e.attempt) for e in episodes) == sorted(
        (case.name, attempt) for case in cases for attempt in (1, 2)
    )
    (session,) = [s for s in server.sessions.values() if s["name"] == name]
    assert session["reference_dataset_id"] == next(iter(server.datasets))
    assert session["extra"]["metadata"]["commit"] == "abc"
    assert session["extra"]["metadata"]["planner"] == "rules"
    roots = [
        run
        for run in server.runs.values()
        if run.get("session_id") == session["id"] and run.get("parent_run_id") is None
    ]
    assert {run["reference_example_id"] for run in roots} == set(server.examples)
    assert len(roots) == 8
    scored = {(f["run_id"], f["key"]): f["score"] for f in server.feedback.values()}
    assert len(scored) == 8 * 5
    assert set(scored.values()) == {1.0}
    children = {run["name"] for run in server.runs.values() if run.get("parent_run_id")}
    assert {"planner", "tool_executor", "updater", "synthesizer"} <= children


class Broken:
    """A planner that breaks."""

    name = "broken"

    async def decide(self, state: Any) -> Any:
        """Never."""
        raise RuntimeError("no idea")


async def test_what_is_errored_is_a_zero_with_its_reason_and_never_a_gap(
    client: langsmith.Client, server: LangSmithServer
) -> None:
    cases = some_cases()
    sync.push(client, cases, "followup")
    await sync.run_experiment(client, "followup", cases, Subject(planner=Broken()))
    client.flush()
    feedback = list(server.feedback.values())
    assert len({f["run_id"] for f in feedback}) == len(cases)
    assert {f["score"] for f in feedback} == {0.0}
    assert all(f["comment"].startswith("error: crash: RuntimeError: no idea") for f in feedback)


async def test_a_target_and_an_evaluator_that_raise_are_errors_and_no_case_is_missing(
    client: langsmith.Client, server: LangSmithServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = some_cases()
    sync.push(client, cases, "followup")
    run_cases = sync.run_cases

    async def mostly(chosen: list[Case], *args: Any, **kwargs: Any) -> Any:
        if chosen[0].name == cases[0].name:
            raise RuntimeError("no room on the disk")
        return await run_cases(chosen, *args, **kwargs)

    def breaks(case: Case, episode: Any) -> Any:
        raise ZeroDivisionError("of nothing")

    monkeypatch.setattr(sync, "run_cases", mostly)
    monkeypatch.setitem(SCORERS, "language", breaks)  # type: ignore[arg-type] # a dict
    _, episodes = await sync.run_experiment(client, "followup", cases, Subject())
    assert [episode.case for episode in episodes] == [case.name for case in cases]
    assert episodes[0].crash is not None
    feedback = list(server.feedback.values())
    language = [f for f in feedback if f["key"] == "language"]
    assert [f["score"] for f in language] == [0.0] * len(cases)
    assert all(f["comment"].startswith("error: ") for f in language)
    first = str(sync.example_id("followup", cases[0].name))
    (run,) = [run for run in server.runs.values() if run.get("reference_example_id") == first]
    assert "no room on the disk" in run["error"]
    of_first = [f for f in feedback if f["run_id"] == run["id"]]
    assert {f["key"] for f in of_first} > {"tool_selection", "task_completion"}
    assert {f["score"] for f in of_first} == {0.0}
    assert all("no room on the disk" in f["comment"] for f in of_first if f["key"] != "language")


SCRIPT = """
import asyncio, warnings
from followup_agent.evals import langsmith_pull as pulling
from followup_agent.evals import langsmith_sync as sync
from followup_agent.evals.cases import load_cases, select
from followup_agent.evals.subject import Subject
warnings.simplefilter("error")
client = sync.open_client()
cases = select(load_cases(), tags=["seed"])
sync.push(client, cases, "followup")
name, episodes = asyncio.run(sync.run_experiment(client, "followup", cases, Subject()))
sync.close(client)
print(name, len(episodes))
"""


def test_it_runs_from_a_plain_script(server: LangSmithServer, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True, text=True, cwd=tmp_path, check=False, timeout=120,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LANGSMITH_TRACING": "false",
             "LANGSMITH_ENDPOINT": server.url, "LANGSMITH_API_KEY": "test"},
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, "")
    name, count = run.stdout.split()
    assert name.startswith("rules-")
    assert count == "4"
    assert len(server.feedback) == 4 * 5


async def test_only_the_chosen_cases_of_a_dataset_are_run(
    client: langsmith.Client, server: LangSmithServer
) -> None:
    cases = some_cases()
    sync.push(client, cases, "followup")
    _, episodes = await sync.run_experiment(client, "followup", cases[1:3], Subject())
    assert [episode.case for episode in episodes] == [case.name for case in cases[1:3]]
    assert len([run for run in server.runs.values() if not run.get("parent_run_id")]) == 2


async def test_a_dataset_that_is_not_in_step_is_not_judged(client: langsmith.Client) -> None:
    cases = some_cases()
    sync.push(client, cases, "followup")
    cases[0] = changed(cases[0], expected_must_contain=["x"])
    with pytest.raises(ConfigurationError, match="not in step with 1 cases"):
        await sync.run_experiment(client, "followup", cases, Subject())


# --- without a network ---


OFFLINE = """
import socket, sys, warnings
warnings.simplefilter("error")
def refuse(*args, **kwargs):
    sys.stderr.write(f"NETWORK {args[1:]}\\n")
    raise OSError("no network")
socket.socket.connect = socket.socket.connect_ex = refuse
socket.getaddrinfo = refuse
from followup_agent.cli.start import main
sys.argv = ["followup", "eval", "run", "--langsmith", "--no-upload", "--tag", "seed", "--json"]
main()
"""


def test_its_runner_judges_the_same_with_no_key_and_no_network(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", OFFLINE],
        capture_output=True, text=True, cwd=tmp_path, check=False, timeout=120,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "NETWORK" not in run.stderr
    assert "Error" not in run.stderr
    document = json.loads(run.stdout)
    ours = evaluate(some_cases())
    assert document["passed"] == ours.passed == 4
    assert document["evals"] == json.loads(ours.model_dump_json())["evals"]


async def test_it_runs_offline_within_a_running_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        attempts.append(args)
        raise OSError("no network")

    attempts: list[object] = []
    monkeypatch.delenv("LANGSMITH_API_KEY", raising=False)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    before = set(threading.enumerate())
    cases = some_cases()
    episodes = await sync.run_offline(cases, Subject(), repeat=2)
    assert [(e.case, e.attempt) for e in episodes] == [(c.name, n) for c in cases for n in (1, 2)]
    assert all(one.passed for e in episodes for one in score_all(by_name(cases, e.case), e))
    assert attempts == []
    assert not [t.name for t in set(threading.enumerate()) - before if "tracing" in t.name]


def by_name(cases: list[Case], name: str) -> Case:
    """The case."""
    return next(case for case in cases if case.name == name)


def test_pytest_reports_to_langsmith_when_it_is_asked_to(server: LangSmithServer) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
         str(FOLDER / "test_cases.py"), "-k", "seed-orders-zh or seed-priority-zh"],
        capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "LANGSMITH_TEST_TRACKING": "true", "LANGSMITH_TRACING": "true",
             "LANGSMITH_ENDPOINT": server.url, "LANGSMITH_API_KEY": "test"},
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    assert any("test_cases" in dataset["name"] for dataset in server.datasets.values())
    assert {"tool_selection", "task_completion"} <= {f["key"] for f in server.feedback.values()}


# --- pull ---


async def traced(
    client: langsmith.Client, server: LangSmithServer, case: Case, project: str
) -> str:
    """One real run of the graph, traced as LangGraph traces it; its run id."""
    before = set(server.runs)
    with (
        Bench.temporary() as bench,
        langsmith.tracing_context(enabled=True, client=client, project_name=project),
    ):
        await bench.run(case, Subject())
    client.flush()
    return next(
        run["id"]
        for run in server.runs.values()
        if run["id"] not in before and run.get("parent_run_id") is None
    )


def annotate(client: langsmith.Client, server: LangSmithServer, run_id: str, **said: Any) -> None:
    """What a person says of the verdict."""
    client.create_feedback(
        run_id, pulling.VERDICT, session_id=server.runs[run_id]["session_id"], **said
    )


def asked_about(number: int, **customer: Any) -> Case:
    """A judgement of one customer."""
    return Case.model_validate(
        {
            "name": f"traced-{number}",
            "input": f"请判断 user_{number} 需不需要跟进",
            "language": "zh",
            "tags": ["t"],
            "world": {"customers": {f"user_{number}": customer}},
            "expected_status": "completed",
        }
    )


@pytest.mark.parametrize("former", [False, True])
async def test_annotated_runs_become_cases_that_can_be_run(
    client: langsmith.Client, server: LangSmithServer, tmp_path: Path, former: bool
) -> None:
    urgent = asked_about(1, active=[8], orders=[{"placed": 40}],
                         tickets=[{"opened": 3, "priority": "urgent"}, {"opened": 5}])  # fmt: skip
    fine = asked_about(2, active=[0.5], orders=[{"placed": 10}], segment="consumer")
    wrong = asked_about(3, active=[1], orders=[{"placed": 3}])
    plain = asked_about(4, active=[1])
    ids = [await traced(client, server, case, "morning") for case in (urgent, fine, wrong, plain)]
    annotate(client, server, ids[0], score=1)
    annotate(client, server, ids[1], value={"needs_followup": False, "priority": "none"})
    annotate(client, server, ids[2], score=0, correction={"needs_followup": True})
    session = server.runs[ids[3]]["session_id"]
    client.create_feedback(ids[3], "tone", score=1, session_id=session)
    if former:
        server.refuse["/api/v2/runs/query"] = 404
    rows, left_out = pulling.pull(client, "morning")
    assert left_out == {}
    folder = tmp_path / "cases"
    folder.mkdir()
    text = yaml.safe_dump(rows, allow_unicode=True, sort_keys=False)
    (folder / "pulled.yaml").write_text(text, encoding="utf-8")
    cases = {case.input: case for case in load_cases(folder)}
    assert set(cases) == {urgent.input, fine.input, wrong.input}
    report = await asyncio.to_thread(evaluate, list(cases.values()))
    failed = {failure.case for failure in report.failures}
    assert failed == {cases[wrong.input].name}  # as the annotation says, the verdict was wrong
    again = evaluate_verdicts(report)
    assert again[cases[urgent.input].name] == "high"


def evaluate_verdicts(report: Any) -> dict[str, str]:
    """Case to verdict."""
    return {name: own[0].verdict for name, own in report.results.items()}


async def test_a_run_that_does_not_tell_enough_is_left_out_with_the_reason(
    client: langsmith.Client, server: LangSmithServer
) -> None:
    case = Case.model_validate(
        {"name": "orders", "input": "查一下 user_456 的订单", "language": "zh", "tags": ["t"],
         "expected_status": "completed"}
    )  # fmt: skip
    run_id = await traced(client, server, case, "evening")
    annotate(client, server, run_id, value={"needs_followup": True})
    rows, left_out = pulling.pull(client, "evening")
    assert rows == []
    assert "does not tell days_since_last_active" in left_out[run_id]


async def test_a_pulled_case_finds_the_facts_of_its_run_and_the_verdict_of_its_annotation(
    client: langsmith.Client, server: LangSmithServer
) -> None:
    asked = [
        asked_about(1, segment="enterprise", signed_up=500, active=[6], orders=[{"placed": 90}],
                    tickets=[{"opened": 9}, {"opened": 4, "priority": "urgent"}]),
        asked_about(2, segment="seasonal", active=[30.4], orders=[{"placed": 0}]),
        asked_about(3, segment="consumer", signed_up=0),
        changed(asked_about(4, active=[25]), faults={"get_user_orders": "unavailable"}),
        changed(asked_about(5, active=[9]), faults={"get_open_tickets": "timeout"}),
    ]  # fmt: skip
    for case in asked:
        run_id = await traced(client, server, case, "noon")
        annotate(client, server, run_id, score=1, comment="checked")
    rows, left_out = pulling.pull(client, "noon")
    assert left_out == {}
    assert len({row["name"] for row in rows}) == len(asked)
    verdicts = []
    for row in rows:
        case = Case.model_validate(row)
        assert (case.tier, case.why, case.language) == ("frontier", "checked", "zh")
        (before,) = [run["outputs"] for run in server.runs.values()
                     if run.get("parent_run_id") is None and run["outputs"]["user_goal"] == case.input]  # fmt: skip
        with Bench.temporary() as bench:
            episode = await bench.run(case, Subject())
        assert episode.run is not None
        facts = {who: {k: f["value"] for k, f in own.items()} for who, own in episode.run.facts.items()}  # fmt: skip
        told = {who: {k: f["value"] for k, f in own.items()} for who, own in before["facts"].items()}  # fmt: skip
        for who, own in told.items():
            kept = {k for k in own if k.startswith(("days_", "segment", "open_", "urgent_", "oldest_"))}  # fmt: skip
            assert {k: facts[who][k] for k in kept} == {k: own[k] for k in kept}
        assert {score.eval for score in score_all(case, episode) if not score.passed} == set()
        verdicts.append(case.expected_needs_followup)
    assert set(verdicts) == {True, False, "undetermined"}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"score": 0}, "does not say what is right"),
        ({"value": "looks fine"}, "is no verdict"),
        ({"value": {"needs_followup": "perhaps"}}, "is no verdict: needs_followup"),
        ({"correction": {"mood": 3}}, "names neither"),
    ],
)
async def test_an_annotation_that_says_no_verdict_is_left_out_with_the_reason(
    client: langsmith.Client, server: LangSmithServer, said: dict[str, Any], why: str
) -> None:
    run_id = await traced(client, server, asked_about(1, active=[1]), "night")
    annotate(client, server, run_id, **said)
    rows, left_out = pulling.pull(client, "night")
    assert rows == []
    assert why in left_out[run_id]


async def test_of_two_annotations_the_newer_counts_and_text_may_hold_it(
    client: langsmith.Client, server: LangSmithServer
) -> None:
    run_id = await traced(client, server, asked_about(1, active=[1]), "night")
    annotate(client, server, run_id, value='{"needs_followup": true, "priority": "high"}')
    annotate(client, server, run_id, value='{"needs_followup": "undetermined"}')
    (row,), _ = pulling.pull(client, "night")
    assert row["expected_needs_followup"] == "undetermined"
    assert row["expected_status"] == "failed"
    assert "expected_priority" not in row


async def test_runs_that_wait_or_go_on_are_left_out_with_the_reason(
    client: langsmith.Client, server: LangSmithServer
) -> None:
    case = Case.model_validate(
        {"name": "asks", "input": "Does this customer need follow-up?", "language": "en",
         "tags": ["t"], "turns": [{"answer": "user_456"}], "expected_status": "completed"}
    )  # fmt: skip
    await traced(client, server, case, "dusk")
    roots = [run for run in server.runs.values() if run.get("parent_run_id") is None]
    assert len(roots) == 2
    for run in roots:
        annotate(client, server, run["id"], value={"needs_followup": False})
    rows, left_out = pulling.pull(client, "dusk")
    assert rows == []
    reasons = sorted(left_out.values())
    assert reasons[0] == "it has not come to its end: needs_input"
    assert "went on from an answer" in reasons[1]


def test_messages_hold_the_goal_too() -> None:
    said = [{"type": "ai", "content": "hello"}, {"role": "user", "content": "user_1 怎么样？"}]
    assert pulling.goal_of({"messages": said}) == "user_1 怎么样？"
    assert pulling.goal_of({"messages": [{"odd": 1}]}) is None
    assert pulling.goal_of({}) is None


# --- what goes wrong ---


def test_without_a_key_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LANGSMITH_API_KEY", raising=False)
    monkeypatch.delenv("LANGCHAIN_API_KEY", raising=False)
    with pytest.raises(ConfigurationError, match="LANGSMITH_API_KEY"):
        sync.open_client()


def test_a_server_that_is_away_is_one_sentence_without_the_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LANGSMITH_API_KEY", "secret-key")
    monkeypatch.setenv("LANGSMITH_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ConfigurationError, match="cannot be reached") as raised:
        sync.open_client()
    assert "secr" not in str(raised.value)


def test_a_server_that_goes_away_is_one_sentence_too() -> None:
    client = langsmith.Client(
        api_url="http://127.0.0.1:9", api_key="secret-key", info={}, auto_batch_tracing=False,
        retry_config=Retry(0),
    )  # fmt: skip
    with pytest.raises(ConfigurationError, match="cannot be reached") as raised:
        sync.push(client, some_cases(), "followup")
    assert "secr" not in str(raised.value)
    sync.close(client)


def test_a_wrong_key_and_an_endpoint_that_is_none_are_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with LangSmithServer(api_key="right").running() as server:
        monkeypatch.setenv("LANGSMITH_API_KEY", "secret-key")
        monkeypatch.setenv("LANGSMITH_ENDPOINT", server.url)
        with pytest.raises(ConfigurationError, match="does not accept the key") as raised:
            sync.open_client()
        assert "secret" not in str(raised.value)
        monkeypatch.setenv("LANGSMITH_ENDPOINT", "langsmith.example")
        with pytest.raises(ConfigurationError, match="must begin with http"):
            sync.open_client()


@pytest.mark.parametrize(
    ("status", "said"), [(403, "does not accept the key"), (422, "declined: HTTP 422$")]
)
def test_what_the_server_declines_is_one_sentence(
    client: langsmith.Client, server: LangSmithServer, status: int, said: str
) -> None:
    server.refuse["/datasets"] = status
    with pytest.raises(ConfigurationError, match=said):
        sync.push(client, some_cases(), "followup")


async def test_runs_that_could_not_be_sent_are_said(
    server: LangSmithServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANGSMITH_API_KEY", "test")
    monkeypatch.setenv("LANGSMITH_ENDPOINT", server.url)
    client = sync.open_client()
    cases = some_cases()
    sync.push(client, cases, "followup")
    server.refuse["/runs/multipart"] = 422
    await sync.run_experiment(client, "followup", cases, Subject())
    with pytest.raises(ConfigurationError, match="did not take everything"):
        sync.close(client)


async def test_a_dataset_that_is_not_there_is_said(client: langsmith.Client) -> None:
    with pytest.raises(ConfigurationError, match="no such dataset or project: 'nothing'"):
        await sync.run_experiment(client, "nothing", some_cases(), Subject())


def test_a_project_that_is_not_there_is_said(client: langsmith.Client) -> None:
    with pytest.raises(ConfigurationError, match="no such dataset or project: 'nowhere'"):
        pulling.pull(client, "nowhere")
