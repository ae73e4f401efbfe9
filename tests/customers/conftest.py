"""The databases that business data may be in: the same tests run on each."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from business import Business, opened

from followup_agent.customers.database import sqlite_url

SERVERS = ("postgres", "mariadb")
BACKENDS = ["sqlite", *(pytest.param(name, marks=pytest.mark.slow) for name in SERVERS)]


@pytest.fixture(scope="session")
def shared_urls() -> dict[str, str]:
    """Server to the URL of a database that one test after another empties and fills."""
    return {}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """SQLite, PostgreSQL, MariaDB."""
    return str(request.param)


@pytest.fixture
def url(
    backend: str, request: pytest.FixtureRequest, tmp_path: Path, shared_urls: dict[str, str]
) -> str:
    """A database of this kind; what is in it already is emptied by who uses it."""
    if backend == "sqlite":
        return sqlite_url(tmp_path / "customers.db")
    if backend not in shared_urls:
        shared_urls[backend] = request.getfixturevalue(backend).database()
    return shared_urls[backend]


@pytest.fixture
def new_url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of this kind that nobody has used."""
    if backend == "sqlite":
        return sqlite_url(tmp_path / "new.db")
    return str(request.getfixturevalue(backend).database())


@pytest.fixture
def business(url: str) -> Iterator[Business]:
    """A database with one customer."""
    with opened(url) as made:
        yield made


@pytest.fixture
def text_business(tmp_path: Path) -> Iterator[Business]:
    """One on SQLite, which holds any text as a time."""
    with opened(sqlite_url(tmp_path / "text.db")) as made:
        yield made
