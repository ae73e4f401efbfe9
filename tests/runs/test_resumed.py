"""Runs that go on in another process."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import fill

pytestmark = pytest.mark.slow

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from followup_agent import FollowupAgent
from support import NOW
with FollowupAgent.open(home=sys.argv[2], clock=lambda: NOW) as agent:
    run = {step}
print(run.model_dump_json())
"""


def process(step: str, home: Path, strict: str) -> dict[str, Any]:
    """One step in a process of its own, every warning an error."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM.replace("{step}", step), str(Path(__file__).parents[1]), str(home)],
        capture_output=True, text=True, encoding="utf-8", check=False, timeout=60,
        env={**os.environ, "LANGGRAPH_STRICT_MSGPACK": strict},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.mark.parametrize("strict", ["true", "false"])
def test_a_question_is_answered_in_a_new_process(tmp_path: Path, strict: str) -> None:
    """B12 and B15: no warning, nothing repeated, the same verdict as in one go."""
    fill(tmp_path / "customers.db").close()
    asked = process("agent.ask('帮我看看要不要跟进', thread_id='t')", tmp_path, strict)
    assert asked["status"] == "needs_input"
    done = process("agent.answer('t', 'user_123')", tmp_path, strict)
    assert done["current_step"] == 5
    assert [call["step"] for call in done["tool_history"]] == [2, 3, 4]
    whole = process("agent.ask('帮我看看 user_123 要不要跟进', thread_id='w')", tmp_path, strict)
    assert done["verdict"] == whole["verdict"]
    assert done["answer"] == whole["answer"]
    logged = (tmp_path / "logs" / "followup.jsonl").read_text(encoding="utf-8").splitlines()
    decisions = [e for e in map(json.loads, logged) if e["eventName"] == "agent.decision.made"]
    assert [e["step"] for e in decisions if e["sessionId"] == "t"] == [1, 2, 3, 4, 5]


def test_an_approval_is_given_in_a_new_process(tmp_path: Path) -> None:
    fill(tmp_path / "customers.db").close()
    waiting = process("agent.ask('给 user_123 建一个跟进任务', thread_id='t')", tmp_path, "true")
    assert waiting["approval"]["tool_name"] == "send_followup_task"
    done = process("agent.approve('t')", tmp_path, "true")
    assert done["status"] == "completed"
    assert done["approval"] is None
    assert done["tool_history"][-1]["args"] == waiting["approval"]["args"]
