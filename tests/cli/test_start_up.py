"""What a command imports, and how soon it answers."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROBE = """
import json, sys
sys.argv = ["followup", *json.loads(sys.argv[1])]
from followup_agent.cli import start
try:
    start.main()
except SystemExit as end:
    print("\\n" + json.dumps({"code": end.code, "modules": sorted(sys.modules)}))
"""


def modules_of(*arguments: str) -> tuple[int, set[str]]:
    """The exit code, and what was imported."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(arguments)],
        capture_output=True, text=True, check=True, env=dict(os.environ), timeout=60,
    )  # fmt: skip
    document = json.loads(done.stdout.strip().splitlines()[-1])
    return document["code"], set(document["modules"])


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["data", "--help"], ["data", "sample", "--customers", "3"], ["tools"], ["tools", "--json"],
     ["threads"], ["threads", "--json"], ["ask", "--help"], ["--version"]],
)  # fmt: skip
def test_commands_without_a_graph_import_none(arguments: list[str]) -> None:
    code, modules = modules_of(*arguments)
    assert code == 0
    assert not modules & {"langgraph", "langchain_openai", "langchain_core", "openai"}


def test_asking_by_rules_imports_no_model_client() -> None:
    modules_of("data", "sample", "--customers", "3")
    code, modules = modules_of("ask", "user_123 要跟进吗", "--json")
    assert code == 0
    assert "langgraph" in modules
    assert not modules & {"openai", "langchain_openai", "tiktoken"}


@pytest.mark.parametrize("arguments", [["--help"], ["data", "--help"], ["tools"], ["threads"]])
def test_they_answer_at_once(arguments: list[str]) -> None:
    """Against a process that only imports pydantic, which every one of them has to; the best of
    five of each, by turns, so that a busy machine does not decide."""
    command = str(Path(sys.executable).with_name("followup"))
    baseline = [sys.executable, "-c", "from pydantic import BaseModel"]
    pairs = [(_wall_s([command, *arguments]), _wall_s(baseline)) for _ in range(5)]
    assert min(ours for ours, _ in pairs) < 4.5 * min(bare for _, bare in pairs)


def _wall_s(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=dict(os.environ))
    return time.perf_counter() - started
