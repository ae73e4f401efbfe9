"""The customer database: what is wrong with it is said in words, and no query holds up the loop."""

import asyncio
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest
from sqlalchemy import Connection, text

from followup_agent.customers import database as module
from followup_agent.customers.database import CustomerDatabase, sqlite_url
from followup_agent.customers.tables import metadata
from followup_agent.service.errors import CustomerDataError
from followup_agent.tools.definition import ToolUnavailable

ENDLESS = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000)
SELECT max(i) FROM n
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "customers.db"


@pytest.fixture
def database(path: Path) -> Iterator[CustomerDatabase]:
    database = CustomerDatabase(sqlite_url(path))
    metadata.create_all(database.engine)
    yield database
    database.close()


def refusal(path: Path) -> str:
    database = CustomerDatabase(sqlite_url(path))
    try:
        with pytest.raises(CustomerDataError) as refused:
            database.check()
    finally:
        database.close()
    return str(refused.value)


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def test_a_made_database_passes_the_check(database: CustomerDatabase) -> None:
    assert database.check() is database


def test_a_missing_file_is_named_with_the_command_that_makes_it(path: Path) -> None:
    said = refusal(path)
    assert str(path) in said
    assert "followup data sample" in said
    assert "followup data import" in said
    assert not path.exists()


def test_a_file_that_is_no_database_is_named(path: Path) -> None:
    path.write_text("customer_id,name\nuser_123,A\n" * 100, encoding="utf-8")
    said = refusal(path)
    assert f"{path} is not a database" in said
    assert "FOLLOWUP_CUSTOMERS_URL" in said


def test_a_folder_in_place_of_the_file_is_refused(path: Path) -> None:
    path.mkdir()
    assert str(path) in refusal(path)


def test_a_locked_database_is_named_as_locked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUSY_TIMEOUT_S", 0.02)
    made = CustomerDatabase(sqlite_url(path))
    metadata.create_all(made.engine)
    made.close()
    execute(path, "PRAGMA journal_mode=DELETE")
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        said = refusal(path)
    assert "locked by another program" in said
    assert "try again" in said


@pytest.mark.parametrize("relation", ["customers", "activity_events", "orders", "tickets"])
def test_a_missing_relation_is_named(database: CustomerDatabase, path: Path, relation: str) -> None:
    execute(path, f"DROP TABLE {relation}")
    said = refusal(path)
    assert f"no relation {relation!r}" in said
    assert "followup data import" in said
    assert "view" in said


def test_an_empty_file_lacks_the_first_relation(path: Path) -> None:
    path.touch()
    assert "no relation 'customers'" in refusal(path)


def test_missing_columns_are_named(database: CustomerDatabase, path: Path) -> None:
    execute(
        path,
        "ALTER TABLE tickets DROP COLUMN body",
        "ALTER TABLE tickets DROP COLUMN subject",
    )
    said = refusal(path)
    assert "'tickets' lacks subject, body" in said
    assert "import it again" in said


def test_views_are_as_good_as_tables(database: CustomerDatabase, path: Path) -> None:
    execute(
        path,
        "ALTER TABLE tickets RENAME TO helpdesk",
        "CREATE VIEW tickets AS SELECT * FROM helpdesk",
    )
    assert database.check() is database


def test_a_view_that_cannot_be_read_is_refused(database: CustomerDatabase, path: Path) -> None:
    execute(
        path,
        "ALTER TABLE customers RENAME TO clients",
        "CREATE VIEW customers AS SELECT * FROM clients",
        "DROP TABLE clients",
    )
    assert "customer database" in refusal(path)


@pytest.mark.parametrize("url", ["", "customers.db", "not a url", "nosuchdb://host/name"])
def test_what_is_no_database_url_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(CustomerDataError, match="sqlite:///FILE"):
        CustomerDatabase(url)


@pytest.mark.parametrize(
    "url", ["nosuchdb://ann:s3cret@host/name", "postgresql+nosuch://ann:s3cret@h/n"]
)
def test_a_refused_url_does_not_show_its_password(url: str) -> None:
    with pytest.raises(CustomerDataError) as refused:
        CustomerDatabase(url)
    assert "s3cret" not in str(refused.value)


def test_a_missing_driver_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(
        CustomerDataError, match=r"pip install 'followup-agent\[postgres\]'"
    ) as said:
        CustomerDatabase("postgresql+psycopg://ann:s3cret@localhost/crm")
    assert "s3cret" not in str(said.value)


def test_a_database_is_named_by_its_path(database: CustomerDatabase, path: Path) -> None:
    assert database.name == str(path)


# --- reading ---


async def test_a_read_returns_what_the_query_returns(database: CustomerDatabase) -> None:
    assert await database.read(lambda c: c.execute(text("SELECT 6 * 7")).scalar_one()) == 42


async def test_a_read_changes_nothing_and_a_write_does(database: CustomerDatabase) -> None:
    insert = text("INSERT INTO customers VALUES ('c1', 'A', 'business', '2026-01-01')")
    count = text("SELECT count(*) FROM customers")
    with pytest.raises(ToolUnavailable, match="readonly"):
        await database.read(lambda c: c.execute(insert))
    assert await database.read(lambda c: c.execute(count).scalar_one()) == 0
    await database.write(lambda c: c.execute(insert))
    assert await database.read(lambda c: c.execute(count).scalar_one()) == 1


async def test_a_failed_write_leaves_nothing_half_written(database: CustomerDatabase) -> None:
    insert = text("INSERT INTO customers VALUES ('c1', 'A', 'business', '2026-01-01')")

    def twice(connection: Connection) -> None:
        connection.execute(insert)
        connection.execute(insert)

    with pytest.raises(ToolUnavailable):
        await database.write(twice)
    count = text("SELECT count(*) FROM customers")
    assert await database.read(lambda c: c.execute(count).scalar_one()) == 0


async def test_the_loop_goes_on_while_a_query_runs(database: CustomerDatabase) -> None:
    let_go = threading.Event()
    reading = asyncio.create_task(database.read(lambda _: let_go.wait(5)))
    asyncio.get_running_loop().call_later(0.01, let_go.set)
    assert await reading, "the loop could not run while the query did"


async def test_many_reads_run_side_by_side(database: CustomerDatabase) -> None:
    together = threading.Barrier(8, timeout=5)
    reads = [database.read(lambda c: together.wait() >= 0) for _ in range(8)]
    assert all(await asyncio.gather(*reads))


async def test_a_cancelled_read_stops_the_statement_in_the_database(
    database: CustomerDatabase,
) -> None:
    worker: list[threading.Thread] = []

    def slow(connection: Connection) -> object:
        worker.append(threading.current_thread())
        return connection.execute(text(ENDLESS)).scalar()

    began = time.monotonic()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await database.read(slow)
    assert time.monotonic() - began < 1
    worker[0].join(timeout=2)
    assert not worker[0].is_alive(), "the query goes on though nobody waits for it"
    assert await database.read(lambda c: c.execute(text("SELECT 1")).scalar_one()) == 1


async def test_a_read_cancelled_between_two_statements_starts_no_other(
    database: CustomerDatabase,
) -> None:
    worker: list[threading.Thread] = []
    driver: list[sqlite3.Connection] = []
    first, cancelled = threading.Event(), threading.Event()

    def two_steps(connection: Connection) -> object:
        worker.append(threading.current_thread())
        driver.append(cast("sqlite3.Connection", connection.connection.driver_connection))
        connection.execute(text("SELECT 1")).scalar()
        first.set()
        cancelled.wait(2)
        return connection.execute(text(ENDLESS)).scalar()

    reading = asyncio.create_task(database.read(two_steps))
    await asyncio.to_thread(first.wait, 2)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    cancelled.set()
    worker[0].join(timeout=0.5)
    still_running = worker[0].is_alive()
    if still_running:  # leave no endless query behind
        driver[0].interrupt()
        worker[0].join(timeout=2)
    assert not still_running, "the next statement was started though nobody waits for it"


async def test_a_missing_file_is_unavailable_and_not_made(tmp_path: Path) -> None:
    path = tmp_path / "gone.db"
    database = CustomerDatabase(sqlite_url(path))
    with pytest.raises(ToolUnavailable, match="does not exist"):
        await database.read(lambda c: c.execute(text("SELECT 1")).scalar_one())
    assert not path.exists()
    database.close()


async def test_a_locked_database_is_unavailable_in_the_drivers_words(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUSY_TIMEOUT_S", 0.02)
    database = CustomerDatabase(sqlite_url(path))
    metadata.create_all(database.engine)
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ToolUnavailable, match="locked"):
            await database.write(lambda c: c.execute(text("DELETE FROM customers")))
    database.close()


async def test_a_query_that_fails_shows_no_customer_data(database: CustomerDatabase) -> None:
    query = text("SELECT * FROM nowhere WHERE phone = :phone")
    with pytest.raises(ToolUnavailable, match="no such table") as failed:
        await database.read(lambda c: c.execute(query, {"phone": "13800000000"}))
    assert "13800000000" not in str(failed.value)


async def test_more_calls_than_threads_are_refused_at_once(path: Path) -> None:
    database = CustomerDatabase(sqlite_url(path), max_threads=1)
    metadata.create_all(database.engine)
    let_go = threading.Event()
    reading = asyncio.create_task(database.read(lambda _: let_go.wait(5)))
    await asyncio.sleep(0)
    with pytest.raises(ToolUnavailable, match="have not returned"):
        await database.read(lambda c: c.execute(text("SELECT 1")).scalar_one())
    let_go.set()
    assert await reading
    database.close()


async def test_200_reads_at_once_share_the_connections(path: Path) -> None:
    database = CustomerDatabase(sqlite_url(path), connections=4)
    metadata.create_all(database.engine)
    under_way, most = [0], [0]
    lock = threading.Lock()

    def read(connection: Connection) -> object:
        with lock:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
        answer = connection.execute(text("SELECT count(*) FROM customers")).scalar_one()
        with lock:
            under_way[0] -= 1
        return answer

    assert await asyncio.gather(*(database.read(read) for _ in range(200))) == [0] * 200
    assert most[0] <= 4
    database.close()
