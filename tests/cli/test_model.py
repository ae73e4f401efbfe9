"""The command line with a model: a real process, a real client, a scripted server."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from warm import Done, Warm

from followup_agent.testing.openai_server import OpenAIServer

pytestmark = pytest.mark.slow
Followup = Callable[..., Done]
ZH, EN = "帮我判断 user_123 最近是否需要重点跟进", "Does user_123 need priority follow-up?"


def decision(name: str, **args: Any) -> dict[str, Any]:
    """A reply that calls a tool for user_123."""
    call = {"type": "tool", "tool_name": name, "args": {"user_id": "user_123", **args}}
    return {"decision": {**call, "reason": "r", "expected_outcome": "x"}}


DONE = {"decision": {"type": "finish", "answer_draft": "", "reason": "enough"}}
RUN = [
    decision("get_user_activity", days=7),
    decision("get_user_orders", days=7),
    decision("get_open_tickets"),
    DONE,
]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty folder, to become a home."""
    return tmp_path


@pytest.fixture
def followup(home: Path, warm: Warm) -> Followup:
    """Runs commands on a home with a sample company."""

    def run(*words: str, **variables: str) -> Done:
        return warm.run(words, {**os.environ, "FOLLOWUP_HOME": str(home), **variables}, home)

    assert run("data", "sample", "--customers", "5").returncode == 0
    return run


@pytest.mark.parametrize(
    ("method", "goal"),
    [("json_schema", ZH), ("function_calling", EN), ("json_object", ZH), ("prompt", EN)],
)
def test_asking_a_model_in_each_method(method: str, goal: str, followup: Followup) -> None:
    with OpenAIServer(RUN, strict=True).running() as server:
        given = {"OPENAI_BASE_URL": server.url, "FOLLOWUP_MODEL": "scripted"}
        done = followup("ask", goal, "--json", FOLLOWUP_OUTPUT_METHOD=method, **given)
    assert done.returncode == 0, done.stderr
    assert f"the model scripted at {server.url} decides" in done.stderr
    run = json.loads(done.stdout)
    assert run["planner"] == "scripted"
    assert run["verdict"]["needs_followup"] is True
    assert run["usage"]["model_calls"] == 4
    assert "model_view" not in run


def test_show_prints_what_it_cost_and_what_the_model_would_have_said(followup: Followup) -> None:
    claim = {"type": "finish", "answer_draft": "已创建任务 task_88", "reason": "enough"}
    replies = [*({**reply, "usage": {"prompt_tokens": 1000, "completion_tokens": 50, "cached_tokens": 800}}
                 for reply in RUN[:3]), {"decision": claim}]  # fmt: skip
    with OpenAIServer(replies).running() as server:
        given = {"OPENAI_BASE_URL": server.url, "FOLLOWUP_MODEL": "gpt-4.1-mini"}
        done = followup("ask", ZH, "--thread", "t", **given)
    assert done.returncode == 0, done.stderr
    shown = followup("show", "t", **given)  # the server has gone: nothing is asked of it
    assert shown.returncode == 0, shown.stderr
    assert "gpt-4.1-mini: 4 calls" in shown.stdout
    assert "2400 cached" in shown.stdout
    assert "cost 0." in shown.stdout
    assert "would have said (not used): 已创建任务 task_88" in shown.stdout
    assert "task_88" in shown.stdout.split("would have said")[1]


def test_a_deadline_ends_the_run_with_what_was_found(followup: Followup) -> None:
    with OpenAIServer([RUN[0], {"hang": True}]).running() as server:
        given = {"OPENAI_BASE_URL": server.url, "FOLLOWUP_MODEL": "scripted"}
        done = followup("ask", EN, "--deadline", "1.5", "--json", **given)
    assert done.returncode == 1
    run = json.loads(done.stdout)
    assert run["stop_reason"] == "deadline"
    assert "Active on" in run["answer"]
    assert not done.stderr.count("Traceback")


def test_a_server_that_is_away_is_said_in_the_answer_and_exits_with_1(followup: Followup) -> None:
    given = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "FOLLOWUP_MODEL": "m"}
    done = followup("ask", ZH, **given)
    assert done.returncode == 1
    assert "cannot be reached" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_doctor_probes_the_model_and_remembers_what_it_found(followup: Followup) -> None:
    """Of a server that takes neither schemas nor functions, and a model that asks when it should."""
    question = {"decision": {"type": "ask_user", "question": "Which?", "reason": "no id"}}
    replies = [RUN[2], RUN[2], question, {"text": "all good"}]
    with OpenAIServer(replies, refuse=["json_schema", "function_calling"]).running() as server:
        given = {"OPENAI_BASE_URL": server.url, "FOLLOWUP_MODEL": "scripted"}
        done = followup("doctor", "--probe", "--json", **given)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)["probe"]
        assert [one["result"] for one in found["methods"]] == [
            "not known", "not known", "right", "right",
        ]  # fmt: skip
        assert found["advised_method"] == "json_object"
        assert (found["right"], found["rounds"]) == (2, 3)
        assert found["advised_guidance"] == "narrow"
        text = followup("doctor", **given).stdout
    assert "output method: json_object" in text
    assert len(server.requests) == 6


def test_a_probe_without_a_model_says_what_to_set(followup: Followup) -> None:
    done = followup("doctor", "--probe")
    assert done.returncode == 2
    assert "FOLLOWUP_MODEL" in done.stdout


def test_evals_judge_a_model(followup: Followup, tmp_path: Path) -> None:
    """A model that looks at the tickets of whoever is named, and is done."""
    report = tmp_path / "report.json"
    listed = json.loads(followup("eval", "list", "--tag", "tickets", "--json").stdout)
    names = [case["name"] for case in listed][:2]

    def reply(body: dict[str, Any]) -> dict[str, Any]:
        if any(message["role"] == "assistant" for message in body["messages"]):
            return DONE
        goal = body["messages"][1]["content"]
        user = re.search(r"(?:customer|客户) ([A-Za-z0-9_\-]+)", goal)
        call = decision("get_open_tickets")["decision"]
        return {"decision": {**call, "args": {"user_id": user[1] if user else "nobody"}}}

    with OpenAIServer(then=reply).running() as server:
        words = [word for name in names for word in ("--case", name)]
        done = followup(
            "eval", "run", "--planner", "llm", "--model", "scripted", *words,
            "--out", str(report), "--json", OPENAI_BASE_URL=server.url,
        )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    document = json.loads(report.read_text("utf-8"))
    assert (document["cases"], document["errored"]) == (2, 0)
    assert document["evals"]["tool_selection"]["n"] == 2
    described = json.dumps(document)
    assert '"model": "scripted"' in described
    assert re.search(r'"prompt_hash": "[0-9a-f]{12}"', described)
