"""Open the runs database: SQLite, or PostgreSQL for many processes and machines.

One database holds four things: LangGraph's checkpoints (`graph/checkpoints.py`), the list of
threads (`runs/index.py`), the leases (`runs/leases.py`) and the effect ledger (`runs/ledger.py`).
"""

import asyncio
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import (
    JSON,
    URL,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Engine,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    event,
    inspect,
    make_url,
    select,
    text,
)
from sqlalchemy.exc import ArgumentError, OperationalError, SQLAlchemyError
from sqlalchemy.schema import CreateTable
from tenacity import retry, retry_if_exception, stop_after_delay, wait_random

from followup_agent.customers.tables import Instant
from followup_agent.service.errors import ConfigurationError
from followup_agent.service.settings import PREFIX, Settings

T = TypeVar("T")

SCHEMA_VERSION = "2"
"""Of the runs database. One of another version is refused rather than half understood."""
WAIT_FOR_LOCK_S = 5.0
"""How long SQLite waits for another writer before it says 'locked'."""
MAX_CONNECTIONS = 8
"""Connections of one process, beside the saver's: further work waits for one to be free."""
POSTGRES_OPTIONS = "-c lock_timeout=10s -c idle_in_transaction_session_timeout=5s"
"""Our transactions take milliseconds: one that stands open is a hung process, and the server ends
it, so that the lease which it holds on to can be taken over. Nobody waits for a lock for ever."""
_SETUP_LOCK = 6_104_871_523
"""PostgreSQL advisory lock of whoever makes the tables."""

metadata = MetaData()
meta = Table(
    "followup_meta",
    metadata,
    Column("key", String(50), primary_key=True),
    Column("value", Text, nullable=False),
)
threads = Table(
    "followup_threads",
    metadata,
    Column("thread_id", String(200), primary_key=True),
    Column("user_goal", Text, nullable=False),
    Column("status", String(20), nullable=False),
    Column("stop_reason", String(30)),
    Column("updated_at", Instant, nullable=False),
    Column("waiting_for", String(20)),
)
leases = Table(
    "followup_leases",
    metadata,
    Column("thread_id", String(200), primary_key=True),
    Column("holder", String(50), nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("expires_at", Float, nullable=False),
)
effects = Table(
    "followup_effects",
    metadata,
    Column("idempotency_key", String(64), primary_key=True),
    Column("tenant", String(100), nullable=False),
    Column("customer_id", String(200)),
    Column("action", String(100), nullable=False),
    Column("reason_class", String(100), nullable=False),
    Column("day", String(10), nullable=False),
    Column("state", String(10), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("args", JSON, nullable=False),
    Column("result", JSON),
    Column("found", Boolean),
    Column("thread_id", String(200), nullable=False),
    Column("run_id", String(50), nullable=False),
    Column("approved_by", String(200), nullable=False),
    Column("intended_at", Instant, nullable=False),
    Column("settled_at", Instant),
)


def runs_url(settings: Settings) -> URL:
    """Where runs are kept; ConfigurationError for a URL of another kind of database."""
    if settings.runs_url is None:
        return URL.create("sqlite", database=str(settings.home / "runs.db"))
    try:
        url = make_url(settings.runs_url)
    except ArgumentError as error:
        shown = re.sub(r"://[^@]*@", "://***@", settings.runs_url)
        raise ConfigurationError(
            f"{PREFIX}RUNS_URL {shown!r} is not a database URL: use sqlite:///FILE or "
            "postgresql+psycopg://USER@HOST/NAME"
        ) from error
    kind = url.get_backend_name()
    if kind == "postgresql":
        return url.set(drivername="postgresql+psycopg")
    if kind != "sqlite" or not url.database or url.database == ":memory:":
        raise ConfigurationError(
            f"{PREFIX}RUNS_URL names {kind if kind != 'sqlite' else 'no file'}: runs are kept in "
            "SQLite (sqlite:///FILE) or PostgreSQL (postgresql+psycopg://USER@HOST/NAME)"
        )
    return url


class RunsDatabase:
    """One engine for the agent's own tables. Safe to share between threads and event loops."""

    def __init__(self, url: URL | str, *, read_only: bool = False) -> None:
        """Connect and make the missing tables; nothing is made when only to be read.

        ConfigurationError when that fails. Any number of processes may open a new one at once.
        """
        self.url = make_url(url)
        self.is_postgres = self.url.get_backend_name() == "postgresql"
        # Not shut down: who gives back a lease after the agent was closed must not be refused.
        self._threads = ThreadPoolExecutor(MAX_CONNECTIONS, "followup-runs")
        try:
            self.engine = _make_engine(self.url)
            if not read_only:
                if not self.is_postgres:
                    self._let_readers_read()
                with self.writing() as connection:
                    self._make_tables(connection)
            self.is_new = read_only and not inspect(self.engine).has_table(meta.name)
            """Nothing was ever kept here, and nothing was made now: there is nothing to read."""
            if self.is_new:
                return
            with self.reading() as connection:
                version = connection.execute(
                    select(meta.c.value).where(meta.c.key == "schema_version")
                ).scalar()
        except ImportError as error:
            raise ConfigurationError(
                "runs on PostgreSQL need the extra: pip install 'followup-agent[postgres]'"
            ) from error
        except SQLAlchemyError as error:
            raise ConfigurationError(self._why(error)) from error
        if version not in (None, SCHEMA_VERSION):
            raise ConfigurationError(
                f"the runs database {self.name} is of version {version}, this program reads version "
                f"{SCHEMA_VERSION}: use the program that wrote it, or another {PREFIX}RUNS_URL"
            )

    @property
    def name(self) -> str:
        """The database as a person would name it: a path, or a URL without its password."""
        if self.is_postgres:
            return self.url.render_as_string(hide_password=True)
        return str(self.url.database)

    @property
    def path(self) -> Path:
        """The file; only of SQLite."""
        return Path(str(self.url.database))

    def insert(self, table: Table) -> Any:
        """An INSERT that knows `on_conflict_do_…`, in this database's dialect."""
        # Imported here: `followup threads` on SQLite need not wait for the other dialect.
        if self.is_postgres:
            from sqlalchemy.dialects import postgresql

            return postgresql.insert(table)
        from sqlalchemy.dialects import sqlite

        return sqlite.insert(table)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction; on SQLite it takes the write lock at once, and so never has to upgrade."""
        with self.engine.begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection to read from, beside any writer."""
        with self.engine.connect() as connection:
            yield connection.execution_options(isolation_level="AUTOCOMMIT")

    async def call(self, function: Callable[[], T]) -> T:
        """Return `function()`, run in a thread; one that has begun goes on to its end when the task
        is cancelled. More calls than connections wait for each other."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)

    @retry(
        retry=retry_if_exception(
            lambda error: isinstance(error, OperationalError) and "locked" in str(error)
        ),
        stop=stop_after_delay(WAIT_FOR_LOCK_S),
        wait=wait_random(0.0, 0.05),
        reraise=True,
    )
    def _let_readers_read(self) -> None:
        """Write-ahead log: readers never wait for a writer; the file keeps it.

        SQLite refuses the change at once, without waiting, when two make it at one moment.
        """
        with self.reading() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")

    def _make_tables(self, connection: Connection) -> None:
        if self.is_postgres:  # IF NOT EXISTS alone fails when two make a table at one moment
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_SETUP_LOCK})"))
        for table in metadata.sorted_tables:
            connection.execute(CreateTable(table, if_not_exists=True))
        first = self.insert(meta).values(key="schema_version", value=SCHEMA_VERSION)
        connection.execute(first.on_conflict_do_nothing())

    def _why(self, error: SQLAlchemyError) -> str:
        reason = short(error)
        broken = "not a database" in reason or "malformed" in reason
        advice = "move it away" if broken else "try again"
        return (
            f"cannot use the runs database {self.name}: {reason}; "
            f"{advice}, or choose another with {PREFIX}RUNS_URL"
        )

    def close(self) -> None:
        """Close the connections."""
        self.engine.dispose()


def _make_engine(url: URL) -> Engine:
    if url.get_backend_name() == "postgresql":
        return create_engine(
            url,
            pool_pre_ping=True,
            pool_size=MAX_CONNECTIONS,
            max_overflow=0,
            connect_args={"options": POSTGRES_OPTIONS},
        )
    engine = create_engine(
        url, connect_args={"timeout": WAIT_FOR_LOCK_S, "check_same_thread": False}
    )

    # SQLAlchemy's recipe for SQLite: the driver begins no transaction by itself, we do.
    @event.listens_for(engine, "connect")
    def _no_implicit_begin(connection: Any, _: Any) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def short(error: BaseException) -> str:
    """The driver's own words in one line, without SQL and parameters."""
    cause = getattr(error, "orig", None) or error
    return str(cause).splitlines()[0][:200] if str(cause) else type(cause).__name__
