"""Business data on a server: rights, time limits, restarts, and whatever stands in for an id."""

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from business import AS_OF, SHANGHAI, Business, opened
from postgres_server import PostgresServer
from sqlalchemy import Connection, create_engine, text

from followup_agent import FollowupAgent
from followup_agent.customers.database import CustomerDatabase
from followup_agent.customers.lookup import require_customer
from followup_agent.service.errors import ConfigurationError, CustomerDataError
from followup_agent.tools import get_open_tickets
from followup_agent.tools.definition import CustomerNotFound, ToolContext, ToolUnavailable

TICKETS = get_open_tickets.TOOL
SLOW = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
    "postgresql": "SELECT pg_sleep(60)",
    "mysql": "SELECT SLEEP(60)",
}
RUNNING = {
    # %% is how a statement without parameters reaches these drivers.
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%%' AND state = 'active'",
    "mysql": "SELECT count(*) FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP%%'",
}


def sql(statement: str) -> Any:
    """A query that runs this statement."""
    return lambda connection: connection.exec_driver_sql(statement).scalar()


async def test_nothing_can_be_written_where_data_are_read(business: Business) -> None:
    for statement in ("DELETE FROM customers", "CREATE TABLE more (a INTEGER)"):
        with pytest.raises(ToolUnavailable, match=r"read.?only|READ ONLY"):
            await business.database.read(lambda c, s=statement: c.exec_driver_sql(s))
    assert business.count("customers") == 1


@pytest.mark.parametrize("backend", ["postgres", "mariadb"], indirect=True)
@pytest.mark.slow
async def test_a_query_is_stopped_by_the_server_at_its_limit(url: str) -> None:
    with opened(url, query_timeout_s=0.3) as business:
        statement = SLOW[business.database.reader.dialect.name]
        began = time.monotonic()
        with pytest.raises(ToolUnavailable, match=r"timeout|max_statement_time"):
            await business.database.read(sql(statement))
        assert time.monotonic() - began < 3


async def test_a_call_that_nobody_waits_for_is_stopped_in_the_database(business: Business) -> None:
    database = business.database
    dialect = database.reader.dialect.name
    worker: list[threading.Thread] = []

    def slow(connection: Connection) -> object:
        worker.append(threading.current_thread())
        return connection.exec_driver_sql(SLOW[dialect]).scalar()

    began = time.monotonic()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await database.read(slow)
    assert time.monotonic() - began < 1
    await asyncio.to_thread(worker[0].join, 5)
    assert not worker[0].is_alive()
    if dialect in RUNNING:
        assert await database.read(sql(RUNNING[dialect])) == 0
    assert (await business.facts(TICKETS))["open_ticket_count"] == 0


NASTY = [
    "' OR 1=1 --",
    "x'; DROP TABLE customers; --",
    'user_123" OR ""="',
    "user_123%' AND '%'='",
    "\\'; DELETE FROM orders; #",
    "user_123\x00",
    "用户'）；",
    "%s",
    ":user_id",
    "{0}",
]


@pytest.mark.parametrize("user_id", NASTY)
async def test_an_id_is_a_value_and_never_sql(business: Business, user_id: str) -> None:
    with pytest.raises(ValueError, match="user_id"):
        TICKETS.parse_args({"user_id": user_id})
    context = ToolContext(as_of=AS_OF, timezone=SHANGHAI, now=AS_OF, customers=business.database)
    with pytest.raises((CustomerNotFound, ToolUnavailable)):
        await business.database.read(lambda c: require_customer(c, user_id, context))
    assert business.count("customers") == 1


@pytest.mark.slow
async def test_a_restarted_server_costs_no_later_call(postgres: PostgresServer) -> None:
    with opened(postgres.database()) as business:
        assert (await business.facts(TICKETS))["open_ticket_count"] == 0
        await asyncio.to_thread(postgres.stop, "fast")
        began = time.monotonic()
        with pytest.raises(ToolUnavailable):
            await business.facts(TICKETS)
        assert time.monotonic() - began < 5
        await asyncio.to_thread(postgres.start)
        assert (await business.facts(TICKETS))["open_ticket_count"] == 0


@pytest.mark.slow
async def test_200_calls_at_once_share_16_connections(postgres: PostgresServer) -> None:
    with opened(postgres.database()) as business:
        most = [0]

        def look(connection: Connection) -> int:
            counted = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            most[0] = max(most[0], connection.exec_driver_sql(counted).scalar_one())
            return int(connection.exec_driver_sql("SELECT count(*) FROM customers").scalar_one())

        found = await asyncio.gather(*(business.database.read(look) for _ in range(200)))
        assert found == [1] * 200
        assert most[0] <= 17  # and the one that filled it


GRANTS = """
CREATE ROLE agent LOGIN PASSWORD 'agent-secret';
CREATE SCHEMA crm; CREATE SCHEMA agent;
ALTER TABLE customers SET SCHEMA crm; ALTER TABLE activity_events SET SCHEMA crm;
ALTER TABLE orders SET SCHEMA crm; ALTER TABLE tickets SET SCHEMA crm;
ALTER TABLE followup_tasks SET SCHEMA agent;
CREATE SCHEMA views;
CREATE VIEW views.customers AS SELECT * FROM crm.customers;
CREATE VIEW views.activity_events AS SELECT * FROM crm.activity_events;
CREATE VIEW views.orders AS SELECT * FROM crm.orders;
CREATE VIEW views.tickets AS SELECT * FROM crm.tickets;
GRANT USAGE ON SCHEMA views, agent TO agent;
GRANT SELECT ON ALL TABLES IN SCHEMA views TO agent;
GRANT SELECT, INSERT ON agent.followup_tasks TO agent;
ALTER ROLE agent SET search_path = views, agent;
REVOKE ALL ON SCHEMA public FROM PUBLIC;
"""


@pytest.fixture(scope="module")
def granted(postgres: PostgresServer) -> Iterator[str]:
    """A database of views, and an account that may only read them and add tasks."""
    url = postgres.database()
    with opened(url) as business:
        business.ticket("T1", "2026-02-20 10:00:00", priority="urgent")
        with business.database.engine.begin() as connection:
            for statement in GRANTS.split(";"):
                if statement.strip():
                    connection.exec_driver_sql(statement)
    yield url.replace("followup@", "agent:agent-secret@")
    engine = create_engine(url.rsplit("/", 1)[0] + "/postgres", isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"DROP DATABASE {url.rsplit('/', 1)[1]} WITH (FORCE)")
        connection.exec_driver_sql("DROP ROLE agent")
    engine.dispose()


@pytest.mark.slow
def test_select_on_the_views_and_insert_on_the_tasks_is_all_it_needs(
    granted: str, tmp_path: Path
) -> None:
    options = {"home": tmp_path, "customers_url": granted, "clock": lambda: AS_OF}
    with FollowupAgent.open(planner="rules", **options) as agent:  # type: ignore[arg-type] # as one
        run = agent.ask("给 user_123 建一个跟进任务", thread_id="t")
        assert run.waiting_for == "approval", run.last_error
        assert agent.approve("t").status == "completed"
    engine = create_engine(granted)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM followup_tasks")).scalar() == 1
    engine.dispose()


@pytest.mark.slow
def test_tasks_may_live_in_another_database(granted: str, tmp_path: Path) -> None:
    tasks = f"sqlite:///{tmp_path / 'tasks.db'}"
    options = {"home": tmp_path / "home", "customers_url": granted, "clock": lambda: AS_OF}
    with FollowupAgent.open(planner="rules", tasks_url=tasks, **options) as agent:  # type: ignore[arg-type] # as one
        agent.ask("Create a follow-up task for user_123", thread_id="t")
        done = agent.approve("t")
        assert done.status == "completed", done.last_error
    engine = create_engine(tasks)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM followup_tasks")).scalar() == 1
    engine.dispose()


def refused(url: str, tmp_path: Path) -> str:
    opening = FollowupAgent.open(planner="rules", home=tmp_path, customers_url=url)
    with pytest.raises(ConfigurationError) as error, opening:
        pass
    said = str(error.value)
    assert "\n" not in said
    assert "s3cret" not in said
    return said


@pytest.mark.slow
def test_a_server_that_cannot_be_used_is_said_in_a_line_without_a_password(
    granted: str, postgres: PostgresServer, tmp_path: Path
) -> None:
    host = granted.split("@")[1]
    assert "is not there: check host, port" in refused(
        "postgresql+psycopg://agent:s3cret@127.0.0.1:1/none", tmp_path
    )
    assert "is not there: check host, port and name" in refused(
        f"postgresql+psycopg://followup:s3cret@{host.split('/')[0]}/no_such", tmp_path
    )
    no_role = f"postgresql+psycopg://nobody:s3cret@{host}"
    assert "is not there" in refused(no_role, tmp_path)
    url = postgres.database()
    with opened(url) as business, business.database.engine.begin() as connection:
        connection.exec_driver_sql("CREATE ROLE poor LOGIN")
    poor = url.replace("followup@", "poor:s3cret@")
    assert "does not permit that to its user: see GRANT" in refused(poor, tmp_path)


@pytest.mark.slow
def test_a_wrong_password_is_said_and_not_shown(mariadb: Any, tmp_path: Path) -> None:
    url = mariadb.database().replace(":secret@", ":s3cret@")
    assert "refuses the user or the password" in refused(url, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("view", "says"),
    [
        ("SELECT customer_id, name, segment, signed_up_at::text FROM base", "signed_up_at is TEXT"),
        (
            "SELECT 7 AS customer_id, name, segment, signed_up_at FROM base",
            "customer_id is INTEGER",
        ),
        ("SELECT customer_id, name, segment FROM base", "lacks signed_up_at"),
    ],
)
def test_a_view_of_a_wrong_type_is_named_with_the_cast(
    postgres: PostgresServer, tmp_path: Path, view: str, says: str
) -> None:
    url = postgres.database()
    with opened(url) as business, business.database.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE customers RENAME TO base")
        connection.exec_driver_sql(f"CREATE VIEW customers AS {view}")
    assert says in refused(url, tmp_path)


@pytest.mark.slow
async def test_views_may_hold_days_and_times_without_zone(postgres: PostgresServer) -> None:
    """Both are UTC."""
    with opened(postgres.database()) as business:
        business.event("2026-03-01 10:00:00")
        with business.database.engine.begin() as connection:
            for statement in (
                "ALTER TABLE customers RENAME TO base",
                "CREATE VIEW customers AS SELECT customer_id, name, segment, signed_up_at::date AS signed_up_at FROM base",
                "ALTER TABLE activity_events RENAME TO events",
                "CREATE VIEW activity_events AS SELECT customer_id, occurred_at::timestamp AS occurred_at, kind FROM events",
            ):
                connection.exec_driver_sql(statement)
        CustomerDatabase(str(business.database.url.render_as_string(hide_password=False))).check()
        from followup_agent.tools import get_user_activity

        facts = await business.facts(get_user_activity.TOOL, days=7)
        assert facts["days_since_signup"] == 365
        assert facts["last_active_at"] == "2026-03-01T10:00:00+00:00"


def test_no_url_shows_its_password(tmp_path: Path) -> None:
    for url in (
        "mysql+nodriver://a:s3cret@h/x",
        "nonsense://a:s3cret@h/x",
        "postgresql+psycopg:/a:s3cret@h",
    ):
        with pytest.raises(CustomerDataError) as error:
            CustomerDatabase(url)
        assert "s3cret" not in str(error.value)
