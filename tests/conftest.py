"""What every test gets: no tracing, no model, no settings from the machine it runs on."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Read when the libraries are imported, by what is imported next.
os.environ["LANGSMITH_TRACING"] = "false"
os.environ["LANGSMITH_TEST_TRACKING"] = "false"
os.environ["LANGGRAPH_STRICT_MSGPACK"] = "true"

import pytest
import reports
from mariadb_server import MariadbServer
from postgres_server import PostgresServer
from support import fill
from warm import Warm

from followup_agent.customers.database import CustomerDatabase


@pytest.fixture(autouse=True)
def clean_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No `.env`, no FOLLOWUP_ or OPENAI_ variable of the machine reaches a test."""
    for name in list(os.environ):
        if name.startswith(("FOLLOWUP_", "OPENAI_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("FOLLOWUP_HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server for the tests that need one."""
    server = PostgresServer()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariadbServer]:
    """A MariaDB server for the tests that need one."""
    server = MariadbServer()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    """Runs commands in processes of their own."""
    made = Warm()
    yield made
    made.close()


@pytest.fixture(scope="session")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CustomerDatabase]:
    """The three known customers, as of the tests' clock: for what writes nothing."""
    database = fill(tmp_path_factory.mktemp("company") / "customers.db")
    yield database
    database.close()


@pytest.fixture
def own_company(tmp_path: Path) -> Iterator[CustomerDatabase]:
    """The known customers, to be written to."""
    database = fill(tmp_path / "customers.db")
    yield database
    database.close()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Begin new reports."""
    if not hasattr(session.config, "workerinput"):
        shutil.rmtree(reports.FOLDER, ignore_errors=True)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the reports, whichever processes their tests were run in."""
    if hasattr(terminalreporter.config, "workerinput"):
        return
    for page in sorted(reports.FOLDER.glob("*.txt")):
        lines = page.read_text("utf-8").splitlines()
        terminalreporter.section(f"{page.stem}: {len(lines)} lines")
        for line in lines:
            terminalreporter.write_line(line)
