"""The commands, each in a process of its own."""

import os
import re
import sqlite3
from pathlib import Path

import pytest
from support import read_log

pytestmark = pytest.mark.slow

ZH = "帮我判断 user_123 最近是否需要重点跟进"


def test_the_main_job_in_chinese_and_in_english(followup, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert followup("data", "sample").code == 0
    zh = followup("ask", ZH, "--json")
    assert zh.code == 0
    run = zh.json
    assert run["verdict"]["needs_followup"] is True
    assert run["verdict"]["priority"] == "high"
    assert all(reason["evidence_ids"] for reason in run["verdict"]["reasons"])
    assert "判断" in zh.out
    assert "\\u" not in zh.out
    assert "rules" in zh.err
    en = followup("ask", "Does user_456 need priority follow-up?")
    assert en.code == 0
    assert "user_456 does not need priority follow-up" in en.out
    assert not re.search(r"[\u4e00-\u9fff]", en.out)
    assert "get_user_activity(user_id=user_456, days=7)" in en.out
    assert read_log(tmp_path / "home" / "logs" / "followup.jsonl")


def test_a_question_is_answered_in_another_process(followup) -> None:  # type: ignore[no-untyped-def]
    followup("data", "sample", "--customers", "3")
    asked = followup("ask", "帮我看看要不要跟进", "--json")
    assert asked.code == 3
    thread = asked.json["thread_id"]
    assert asked.json["pending_questions"][0]["question"].startswith("请告诉我")
    listed = followup("threads", "--json").json
    assert [(entry["thread_id"], entry["waiting_for"]) for entry in listed] == [(thread, "answer")]
    assert followup("answer", thread, "  ").code == 2
    done = followup("answer", thread, "user_123", "--json")
    assert done.code == 0
    assert done.json["verdict"]["needs_followup"] is True
    late = followup("answer", thread, "user_456")
    assert late.code == 4
    assert "waits for nothing" in late.err
    shown = followup("show", thread, "--json").json
    assert [step["step"] for step in shown["timeline"]] == [1, 2, 3, 4, 5]
    text = followup("show", thread).out
    assert "get_open_tickets(user_id=user_123)" in text
    assert "判断：" in text


def test_a_write_is_decided_in_another_process(followup, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    followup("data", "sample", "--customers", "3")
    waiting = followup("ask", "create a follow-up task for user_123", "--thread", "w")
    assert waiting.code == 3
    assert "followup approve w" in waiting.out
    assert followup("answer", "w", "yes").code == 4
    done = followup("approve", "w", "--json")
    assert done.code == 0
    assert done.json["tool_history"][-1]["success"]
    with sqlite3.connect(tmp_path / "home" / "customers.db") as connection:
        ((count,),) = connection.execute("SELECT COUNT(*) FROM followup_tasks")
    assert count == 1
    followup("ask", "create a follow-up task for user_123", "--thread", "r")
    rejected = followup("reject", "r", "--reason", "already called", "--json")
    assert rejected.code == 0
    assert "already called" in rejected.json["tool_history"][-1]["result_summary"]
    followup("ask", "hello", "--thread", "c")
    assert followup("cancel", "c", "--json").json["stop_reason"] == "cancelled"


def test_tools_prints_their_schemas(followup) -> None:  # type: ignore[no-untyped-def]
    tools = followup("tools", "--json").json
    assert [tool["name"] for tool in tools][-1] == "send_followup_task"
    assert all(tool["input_schema"]["additionalProperties"] is False for tool in tools)
    assert "needs an approval" in followup("tools").out


def test_the_doctor_says_where_each_setting_came_from(followup, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / ".env").write_text("FOLLOWUP_TIMEZONE=Asia/Shanghai\nOPENAI_API_KEY=sk-secret\n")
    bad = followup(
        "doctor", "--json", env={"FOLLOWUP_MAX_STEPS": "5", "FOLLOWUP_REQUIRE_APROVAL": "true"}
    )
    assert bad.code == 2
    rows = {row["name"]: (row["value"], row["source"]) for row in bad.json["settings"]}
    assert rows["FOLLOWUP_TIMEZONE"] == ("Asia/Shanghai", ".env")
    assert rows["FOLLOWUP_MAX_STEPS"] == ("5", "environment")
    assert rows["FOLLOWUP_PLANNER"] == ("auto", "default")
    assert rows["OPENAI_API_KEY"] == ("***", ".env")
    assert "sk-secret" not in bad.out
    assert any("FOLLOWUP_REQUIRE_APROVAL" in problem for problem in bad.json["problems"])
    assert any("data sample" in problem for problem in bad.json["problems"])
    followup("data", "sample", "--customers", "3")
    good = followup("doctor")
    assert good.code == 0, good.out
    assert "the built-in rules decide" in good.out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["ask", ""], 2, "goal is empty"),
        (["ask", "x" * 100_000], 2, "100,000 characters"),
        (["ask", "user_123 \x07要跟进吗"], 2, "控制字符"),
        (["ask", "x", "--max-steps", "0"], 2, "max_steps"),
        (["ask", "x", "--max-steps", "six"], 2, "--max-steps"),
        (["ask", "x", "--as-of", "soon"], 2, "ISO 8601"),
        (["ask", "x", "--frobnicate"], 2, "--frobnicate"),
        (["ask"], 2, "'goal'"),
        (["--home", "x", "ask", "y"], 2, "Options stand after the command"),
        (["frobnicate"], 2, "frobnicate"),
        (["ask", "x", "--planner", "magic"], 2, "FOLLOWUP_PLANNER"),
        (["ask", "x", "--planner", "llm"], 2, "--planner rules"),
        (["answer", "nobody", "user_123"], 4, "no thread nobody"),
        (["show", "nobody"], 4, "no thread nobody"),
        (["approve", "nobody"], 4, "no thread nobody"),
        (["data", "import", "--customers", "c.csv"], 2, "cannot read c.csv"),
        (["data", "import"], 2, "--customers F --activity F"),
        (["data", "import", "--map", "missing.toml"], 2, "missing.toml"),
        (["data", "sample", "--as-of", "soon"], 2, "ISO 8601"),
    ],
)  # fmt: skip
def test_bad_usage_is_one_or_two_lines_and_the_right_code(  # type: ignore[no-untyped-def]
    followup, arguments: list[str], code: int, words: str
) -> None:
    if arguments[0] in ("ask", "answer", "show", "approve"):
        followup("data", "sample", "--customers", "3")
    result = followup(*arguments)
    assert result.code == code, result.err
    assert words in result.err
    # The hint belongs to a misplaced option alone: elsewhere it would send people the wrong way.
    assert ("Options stand after" in result.err) == arguments[0].startswith("-")
    assert "Traceback" not in result.err
    complaint = [line for line in result.err.splitlines() if not line.startswith("planner:")]
    assert len(complaint) <= 2
    assert result.out == ""


def test_a_database_that_cannot_be_used_is_said_in_a_line(followup, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    home = tmp_path / "home"
    missing = followup("ask", ZH)
    assert (missing.code, "followup data sample" in missing.err) == (2, True)
    home.mkdir(exist_ok=True)
    (home / "customers.db").write_text("not a database, just text that is long enough to be read")
    broken = followup("ask", ZH)
    assert (broken.code, "is not a database" in broken.err) == (2, True)
    (home / "customers.db").unlink()
    with sqlite3.connect(home / "customers.db") as connection:
        connection.execute("CREATE TABLE customers (customer_id TEXT, name TEXT)")
    other = followup("ask", ZH)
    assert (other.code, "lacks segment, signed_up_at" in other.err) == (2, True)
    (home / "customers.db").unlink()
    followup("data", "sample", "--customers", "3")
    (home / "runs.db").write_text("not a database, just text that is long enough to be read")
    for suffix in ("-wal", "-shm"):
        (home / f"runs.db{suffix}").unlink(missing_ok=True)
    runs = followup("ask", ZH)
    assert (runs.code, "runs database" in runs.err) == (2, True)
    (home / "runs.db").unlink()
    assert followup("ask", ZH).code == 0
    with sqlite3.connect(home / "runs.db") as connection:
        connection.execute("UPDATE followup_meta SET value = '99'")
    newer = followup("threads")
    assert (newer.code, "version 99" in newer.err) == (2, True)
    assert "Traceback" not in missing.err + broken.err + other.err + runs.err + newer.err


def test_a_locked_database_is_said_in_a_line(followup, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    followup("data", "sample", "--customers", "3")
    lock = sqlite3.connect(tmp_path / "home" / "customers.db", isolation_level=None)
    lock.execute("PRAGMA locking_mode=EXCLUSIVE")
    lock.execute("BEGIN EXCLUSIVE")
    locked = followup("data", "sample", "--customers", "4")
    lock.close()
    assert (locked.code, "locked" in locked.err) == (2, True)
    assert followup("ask", ZH).code == 0


@pytest.mark.skipif(not Path("/proc/version").exists(), reason="needs Linux's /proc")
def test_a_home_that_cannot_be_written_is_said_in_a_line(followup) -> None:  # type: ignore[no-untyped-def]
    result = followup("data", "sample", "--home", "/proc/followup")
    assert result.code == 2
    assert "cannot write to /proc/followup" in result.err
    assert "--home" in result.err


def test_an_ascii_terminal_neither_crashes_nor_gets_escapes(followup) -> None:  # type: ignore[no-untyped-def]
    """B76."""
    followup("data", "sample", "--customers", "3")
    result = followup(
        "ask",
        ZH,
        env={
            "LC_ALL": "C",
            "PYTHONCOERCECLOCALE": "0",
            "PYTHONUTF8": "0",
            "PYTHONIOENCODING": "ascii",
        },
    )
    assert result.code == 0
    assert "判断：user_123 需要重点跟进" in result.out


def test_the_log_can_be_sent_to_stderr(followup) -> None:  # type: ignore[no-untyped-def]
    followup("data", "sample", "--customers", "3")
    result = followup("ask", ZH, "--log", "-", "--json")
    assert '"eventName":"agent.run.finished"' in result.err
    assert result.json["status"] == "completed"


def test_a_process_ends_promptly_though_a_tool_hangs(tmp_path: Path) -> None:
    """B19: a thread that never returns does not keep the interpreter."""
    import subprocess
    import sys
    import time

    script = """
import sys, threading
sys.path.insert(0, sys.argv[1])
from followup_agent import FollowupAgent
from support import NOW, Scripted, fill, finish, replaced, tool
from followup_agent.tools.definition import ToolDefinition
import dataclasses, pathlib
home = pathlib.Path(sys.argv[2])
fill(home / "customers.db").close()
slow = dataclasses.replace(
    replaced("get_open_tickets", lambda args: threading.Event().wait(60), timeout_s=0.1), name="list_open_tickets"
)
planner = Scripted(tool("r", "list_open_tickets", user_id="user_123"), finish())
with FollowupAgent.open(home=home, tools=[slow], planner_object=planner) as agent:
    run = agent.ask("user_123 怎么样")
print(run.tool_history[0]["failure_kind"])
"""
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", script, str(Path(__file__).parents[1]), str(tmp_path)],
        capture_output=True, text=True, timeout=30, check=True, env=dict(os.environ),
    )  # fmt: skip
    assert done.stdout.strip() == "timeout"
    assert time.monotonic() - started < 15
