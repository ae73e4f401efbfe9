"""Every command and every program in the documents is run."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from docs_pages import blocks, commands
from typer.main import get_command
from warm import Done, Warm

from followup_agent.cli.app import app
from followup_agent.testing.langsmith_server import LangSmithServer

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EVALS = (ROOT / "evals" / "README.md").read_text(encoding="utf-8")
GUARANTEES = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
WAITS = ("要不要跟进' --thread", "Create a follow-up task")


Run = Callable[..., Done]


@pytest.fixture
def run(warm: Warm) -> Run:
    """Runs one `followup` command, as it stands in a page, in a folder."""

    def one(command: str, folder: Path, **variables: str) -> Done:
        words = shlex.split(command)
        assert words[0] == "followup"
        given = {**os.environ, "FOLLOWUP_HOME": str(folder / "home"), **variables}
        return warm.run(words[1:], given, folder)

    return one


@pytest.mark.slow
def test_every_command_of_the_readme_does_what_it_says(run: Run, tmp_path: Path) -> None:
    """In the order of the page, in one folder."""
    folder = tmp_path / "exports"
    folder.mkdir()
    yesterday = (datetime.now(UTC) - timedelta(days=1)).isoformat()
    rows = {
        "customers.csv": "customer_id,name,segment,signed_up_at\nuser_123,A,business,2026-01-01\n",
        "logins.csv": f"customer_id,occurred_at,kind\nuser_123,{yesterday},login\n",
        "orders.csv": f"order_id,customer_id,placed_at,paid_at,amount,currency,status\nO1,user_123,{yesterday},,9.5,CNY,placed\n",
        "tickets.csv": f"ticket_id,customer_id,opened_at,closed_at,priority,kind,subject,body\nT1,user_123,{yesterday},,low,bug,坏了,\n",
    }
    for name, text in rows.items():
        (folder / name).write_text(text, encoding="utf-8")
    assert len(commands(README)) > 10
    for command in commands(README):
        done = run(command, tmp_path)
        expected = 3 if any(words in command for words in WAITS) else 0
        assert done.returncode == expected, (command, done.stderr)


@pytest.mark.slow
def test_every_command_of_the_evals_page_runs(run: Run, tmp_path: Path) -> None:
    """In order; those that talk to LangSmith, with a server of that kind on loopback."""
    with LangSmithServer().running() as server:
        server.put_session({"name": "my-project"})
        given = {"LANGSMITH_ENDPOINT": server.url, "LANGSMITH_API_KEY": "test"}
        for command in commands(EVALS):
            done = run(command, tmp_path, **given)
            assert done.returncode == 0, (command, done.stdout[-500:], done.stderr)


@pytest.mark.slow
def test_the_python_of_the_readme_runs(run: Run, tmp_path: Path) -> None:
    assert run("followup data sample --customers 3", tmp_path).returncode == 0
    said = []
    for program in blocks("python", README):
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path, capture_output=True, text=True, encoding="utf-8", check=False, timeout=60,
            env={**os.environ, "FOLLOWUP_HOME": str(tmp_path / "home")},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert "判断：user_123 需要重点跟进" in said[0]
    assert said[0].rstrip().endswith("RunStopped")
    assert "user_123 needs priority follow-up" in said[1]


@pytest.mark.slow
def test_the_cells_of_the_notebooks_run(run: Run, tmp_path: Path) -> None:
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        program = "\n".join(
            "".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True,
            encoding="utf-8", check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


def test_every_command_and_setting_named_exists() -> None:
    from followup_agent.service.settings import Settings

    known = get_command(app).commands  # type: ignore[attr-defined]
    pages = [README, EVALS, *(p.read_text(encoding="utf-8") for p in (ROOT / "docs").rglob("*.md"))]
    for page in pages:
        for name in re.findall(r"`followup ([a-z]+)", page):
            assert name in known, name
        for setting in re.findall(r"FOLLOWUP_([A-Z_]+)", page):
            assert setting.lower() in Settings.model_fields, setting
    for setting in Settings.model_fields:
        assert f"FOLLOWUP_{setting.upper()}" in README, setting


def test_every_link_in_the_pages_leads_somewhere() -> None:
    for path in [
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "evals/README.md",
    ]:
        for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                assert (path.parent / target).exists(), (path, target)


def test_every_file_named_as_code_in_the_pages_exists() -> None:
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for name in re.findall(
            r"`((?:[a-z_]+/)+[a-z_]+\.(?:py|toml|md))`", path.read_text(encoding="utf-8")
        ):
            assert (ROOT / name).exists(), (path, name)


def test_each_guarantee_is_beside_tests_that_exist() -> None:
    rows = [line for line in GUARANTEES.splitlines() if line.startswith("| ") and "tests/" in line]
    assert len(rows) > 12
    for path, name in re.findall(r"`(tests/[a-z_/]+\.py)(?:::([a-z_0-9]+))?`", GUARANTEES):
        text = (ROOT / path).read_text(encoding="utf-8")
        assert not name or re.search(rf"def {name}\b", text), (path, name)


@pytest.mark.slow
def test_the_script_of_the_readme_plays_a_model(run: Run, tmp_path: Path) -> None:
    """As the page says: a good reply, one that is no decision, and a finish."""
    assert run("followup data sample --customers 5", tmp_path).returncode == 0
    (tmp_path / "script.yaml").write_text(blocks("yaml", README)[0], encoding="utf-8")
    command = re.search(r"`python -m (followup_agent\.testing\.openai_server [^`]*)`", README)
    assert command is not None
    words = [word if word != "8300" else "0" for word in shlex.split(command[1])]
    with subprocess.Popen(
        [sys.executable, "-m", *words], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        given = {"OPENAI_BASE_URL": process.stdout.readline().strip(), "FOLLOWUP_MODEL": "scripted"}
        done = run("followup ask 'user_123 要跟进吗' --json", tmp_path, **given)
        process.kill()
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["usage"]["model_calls"] == 3
    assert document["verdict"]["needs_followup"] is True
