"""Threads over time, on the command line: edited, forked, exported, pruned, stopped and resumed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from postgres_server import PostgresServer
from support import eventually

from followup_agent.testing.task_server import TaskServer

pytestmark = pytest.mark.slow
GOAL = "给 user_123 建一个跟进任务"


def test_a_write_is_edited_and_approved_and_the_wrong_edit_changes_nothing(followup: Any) -> None:
    followup("data", "sample", "--customers", "3")
    assert followup("ask", GOAL, "--thread", "t").code == 3
    for edit, said in [
        ("{", "not JSON"),
        ("[1]", "JSON object"),
        ('{"user_id": "user_456"}', "may not change the customer"),
        ('{"priority": "超高"}', "do not fit"),
    ]:
        refused = followup("approve", "t", "--edit", edit)
        assert (refused.code, refused.out) == (2, "")
        assert said in refused.err
        assert refused.err.count("\n") == 1
    assert followup("approve", "t", "--approval", "a7").code == 4
    done = followup("approve", "t", "--edit", '{"note": "先打电话"}', "--json")
    assert done.code == 0
    assert done.json["tool_history"][-1]["args"]["note"] == "先打电话"
    assert "as edited: note=先打电话" in followup("show", "t").out
    again = followup("approve", "t")
    assert again.code == 4
    assert "waits for nothing" in again.err


def test_the_past_of_a_thread_is_listed_forked_exported_and_forgotten(
    followup: Any, tmp_path: Path
) -> None:
    followup("data", "sample", "--customers", "3")
    followup("ask", GOAL, "--thread", "t")
    points = followup("show", "t", "--checkpoints", "--json").json
    assert points[-1]["next"] == ["await_approval"]
    assert "await_approval (waits)" in followup("show", "t", "--checkpoints").out
    fork = followup("fork", "t", "--at", "3", "--edit", '{"max_steps": 12}', "--json").json
    assert (fork["status"], fork["max_steps"]) == ("running", 12)
    assert followup("fork", "t", "--at", "9").code == 2
    assert followup("fork", "t", "--at", "1", "--edit", '{"approved": 1}').code == 2
    assert followup("resume", fork["thread_id"]).code == 3
    assert followup("resume", "t").code == 4
    assert followup("resume", "never").code == 4
    assert followup("ask", "user_456 要跟进吗", "--thread", "old").code == 0

    lines = followup("threads", "export").out.splitlines()
    assert {json.loads(line)["thread_id"] for line in lines} == {"t", "old", fork["thread_id"]}
    out = tmp_path / "t.jsonl"
    assert followup("threads", "export", "t", "--out", str(out)).code == 0
    assert "给 user_123" in out.read_text(encoding="utf-8")
    assert followup("threads", "export", "--out", "/nowhere/x").code == 2

    assert followup("threads", "prune", "--older-than", "soon").code == 2
    assert followup("threads", "prune", "--older-than", "30d", "--json").json == {"pruned": []}
    assert followup("threads", "prune", "--older-than", "0m", "--json").json == {"pruned": ["old"]}
    assert len(followup("threads", "--json").json) == 2


def test_the_whole_of_it_on_postgres(followup: Any, postgres: PostgresServer) -> None:
    env = {"FOLLOWUP_RUNS_URL": postgres.database().replace("+psycopg", "")}
    followup("data", "sample", "--customers", "3")
    assert followup("threads", "--json", env=env).json == []
    assert followup("ask", GOAL, "--thread", "t", env=env).code == 3
    assert followup("threads", "--json", env=env).json[0]["waiting_for"] == "approval"
    assert followup("approve", "t", "--json", env=env).json["status"] == "completed"
    assert followup("doctor", env=env).code == 0
    secret = {"FOLLOWUP_RUNS_URL": "postgresql+psycopg://ann:s3cret@127.0.0.1:1/x"}
    for command in (("threads",), ("ask", GOAL), ("doctor",)):
        refused = followup(*command, env=secret)
        assert refused.code == 2
        assert "s3cret" not in refused.err + refused.out


async def test_sigterm_ends_the_step_and_the_run_goes_on_elsewhere(
    followup: Any, tmp_path: Path
) -> None:
    followup("data", "sample", "--customers", "3")
    with TaskServer(delay_s=1.0).running() as server:
        env = {"FOLLOWUP_TASKS_URL": server.url}
        assert followup("ask", GOAL, "--thread", "t", env=env).code == 3
        home = str(tmp_path / "home")
        process = subprocess.Popen(
            [sys.executable, "-m", "followup_agent.cli.start", "approve", "t", "--home", home],
            env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        await eventually(lambda: server.busy > 0, within_s=20)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=20)
        assert process.returncode == 143
        assert b"followup resume t" in err
        server.delay_s = 0.0
        done = followup("resume", "t", "--json", env=env)
        assert done.code == 0
        assert done.json["status"] == "completed"
        assert len(server.tasks) == 1
        assert server.received == 1
