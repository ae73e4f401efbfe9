"""What every test gets: no tracing, no model, no settings from the machine it runs on."""

import os
from collections.abc import Iterator

import pytest
from postgres_server import PostgresServer

os.environ["LANGSMITH_TRACING"] = "false"
os.environ["LANGSMITH_TEST_TRACKING"] = "false"
os.environ["LANGGRAPH_STRICT_MSGPACK"] = "true"


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
