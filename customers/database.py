"""Open the customer database and run queries on it without blocking the event loop.

Reads have connections of their own, on which nothing can be written, with UTC as their zone and a
limit on how long a statement may take. A call that nobody waits for any more is stopped in the
database too.
"""

import re
import threading
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from followup_agent.customers.structure import faults_of
from followup_agent.service.errors import CustomerDataError
from followup_agent.tools.definition import ToolUnavailable
from followup_agent.tools.threads import Threads

T = TypeVar("T")

BUSY_TIMEOUT_S = 2.0
"""How long SQLite waits for another writer before it says 'locked'."""
CONNECTIONS = 16
"""Connections that reads share, by default. A read is over in milliseconds; many more would only
crowd the server (PostgreSQL allows 100 to all its users together, by default)."""
QUERY_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 10
LOCK_TIMEOUT_S = 10
MAX_THREADS = 256
"""Calls under way at once, those that wait for a connection included."""
SQLITE_BEGIN = "followup_sqlite_begin"
"""Execution option: how a transaction begins on SQLite."""
CANCELLED = "followup_cancelled"
_DRIVERS = {"postgresql": "postgres", "mysql": "mysql", "mariadb": "mysql"}
"""The extra that installs a driver."""


def sqlite_url(path: Path) -> str:
    """The SQLAlchemy URL of a SQLite file."""
    return f"sqlite:///{path}"


class CustomerDatabase:
    """Two engines for any number of runs. Safe to share between threads and event loops."""

    def __init__(
        self,
        url: str,
        *,
        connections: int = CONNECTIONS,
        query_timeout_s: float = QUERY_TIMEOUT_S,
        max_threads: int = MAX_THREADS,
        stale_after_days: Mapping[str, int] | None = None,
        may_be_new: bool = False,
    ) -> None:
        """Connect lazily; CustomerDataError when the URL or its driver is unusable.

        A SQLite file has to be there, unless it `may_be_new`.

        `stale_after_days`: relation to the days without any new row after which it no longer counts
        as connected; one that is not named is not looked at (`customers/freshness.py`).
        """
        self._threads = Threads(max_threads)
        self._may_be_new = may_be_new
        self.stale_after_days = dict(stale_after_days or {})
        self.found_fresh: set[tuple[str, date]] = set()
        try:
            self.url = make_url(url)
            self._reader = self._engine(connections, query_timeout_s)
        except ArgumentError as error:
            raise CustomerDataError(_no_url(url)) from error
        except NoSuchModuleError as error:
            raise CustomerDataError(_no_url(url)) from error
        except ImportError as error:
            extra = _DRIVERS.get(self.url.get_backend_name())
            how = f": pip install 'followup-agent[{extra}]'" if extra else ""
            raise CustomerDataError(
                f"the driver {error.name!r} for {self.url.drivername} is not installed{how}"
            ) from error

    def _engine(self, connections: int, query_timeout_s: float | None) -> Engine:
        """An engine that only reads, or, without a limit for its statements, one that writes too."""
        engine = create_engine(
            self.url,
            connect_args=_connect_args(self.url.get_backend_name()),
            pool_pre_ping=True,  # a restarted server costs no call
            pool_size=connections,
            max_overflow=0,
            pool_timeout=QUERY_TIMEOUT_S,
        )

        @event.listens_for(engine, "connect")
        def _prepare(raw: Any, record: Any) -> None:
            if engine.dialect.name == "sqlite":
                raw.isolation_level = None  # transactions begin where we say, DDL included
            with closing(raw.cursor()) as cursor:
                for statement in _session(engine, query_timeout_s):
                    cursor.execute(statement)
            raw.commit()

        @event.listens_for(engine, "begin")
        def _begin(connection: Connection) -> None:
            if engine.dialect.name == "sqlite":
                begin = connection.get_execution_options().get(SQLITE_BEGIN, "BEGIN")
                if begin:
                    connection.exec_driver_sql(begin)

        event.listen(engine, "before_cursor_execute", _stop_if_cancelled)
        return engine

    @cached_property
    def engine(self) -> Engine:
        """For what fills the database or writes to it."""
        return self._engine(4, None)

    @property
    def reader(self) -> Engine:
        """For commands that look into the database, outside any event loop: nothing can be written."""
        return self._reader

    @property
    def is_file(self) -> bool:
        """Whether it is a SQLite file, named by its path."""
        path = self.url.database or ""
        is_path = path not in ("", ":memory:") and not path.startswith("file:")
        return self.url.get_backend_name() == "sqlite" and is_path

    @property
    def name(self) -> str:
        """The database as a person would name it: a path, or a URL without its password."""
        if self.url.get_backend_name() == "sqlite":
            return str(Path(self.url.database).resolve()) if self.url.database else "in memory"
        return self.url.render_as_string(hide_password=True)

    async def read(self, query: Callable[[Connection], T]) -> T:
        """Return `query(connection)`, run in a thread; nothing is written.

        When the waiting task is cancelled (a tool's timeout), the running statement is cancelled
        in the database too. ToolUnavailable when the database is missing, locked or broken.
        """
        return await self._in_thread(query, write=False)

    async def write(self, change: Callable[[Connection], T]) -> T:
        """Return `change(connection)`, run in a thread and in one transaction."""
        return await self._in_thread(change, write=True)

    async def _in_thread(self, work: Callable[[Connection], T], *, write: bool) -> T:
        running: list[Any] = []
        cancelled = threading.Event()

        def call() -> T:
            self._require_file()
            engine = self.engine if write else self._reader
            options = {SQLITE_BEGIN: "BEGIN IMMEDIATE"} if write else {}
            with engine.connect().execution_options(**options) as connection:
                connection.info[CANCELLED] = cancelled
                running.append(connection.connection.driver_connection)
                try:
                    result = work(connection)
                    if write:
                        connection.commit()
                    return result
                finally:
                    running.clear()

        def cancel() -> None:
            cancelled.set()
            for connection in tuple(running):
                self._stop(connection)

        try:
            return await self._threads.call(call, on_cancel=cancel)
        except (DBAPIError, PoolTimeoutError) as error:
            raise ToolUnavailable(f"customer database: {_short(error)}") from error

    def _stop(self, raw: Any) -> None:
        """Stop what runs on this connection of the driver, in the database. Does not block."""
        if (interrupt := getattr(raw, "interrupt", None)) is not None:
            interrupt()
            return

        def stop() -> None:  # over a connection of its own
            with suppress(Exception):  # it has just ended by itself, or is gone
                if hasattr(raw, "cancel"):
                    raw.cancel()
                else:
                    with self.engine.connect() as connection:
                        connection.exec_driver_sql("KILL QUERY %s", (raw.thread_id(),))

        threading.Thread(target=stop, daemon=True, name="followup-cancel").start()

    def _require_file(self) -> None:
        if self.is_file and not self._may_be_new and not Path(str(self.url.database)).exists():
            raise ToolUnavailable(f"customer database {self.url.database} does not exist")

    def check(self) -> Self:
        """Return self when the four relations and their columns are there and of the right types.

        CustomerDataError with what to do when the database is missing, locked, not a database, out
        of reach, or of another version. Blocks: not for the event loop.
        """
        self.require()
        try:
            with self._reader.connect() as connection:
                for fault in faults_of(connection):
                    raise CustomerDataError(f"customer database {self.name}: {fault.message}")
                connection.execute(text("SELECT 1 FROM customers LIMIT 1")).first()
        except SQLAlchemyError as error:
            raise CustomerDataError(self.why(error)) from error
        return self

    def require(self) -> None:
        """CustomerDataError with the commands that make a database, when its file is missing."""
        if self.is_file and not Path(str(self.url.database)).exists():
            raise CustomerDataError(
                f"no customer database at {self.name}: run `followup data sample` for a made-up "
                "company, `followup data import` for your own, or name another --home"
            )

    def why(self, error: Exception) -> str:
        """What the database has refused, and what to do, in one line without a password."""
        reason, name = _short(error), self.name
        if self.url.password:
            reason = reason.replace(str(self.url.password), "***")
        said = reason.lower()
        for words, what in _ADVICE:
            if re.search(words, said):
                return f"customer database {name} {what} ({reason})"
        return f"customer database {name} cannot be used: {reason}"

    def use_wal(self) -> None:
        """Let readers of a SQLite file never wait for a writer; the file keeps the setting."""
        if self.is_file:
            with self.engine.connect().execution_options(**{SQLITE_BEGIN: ""}) as connection:
                connection.execute(text("PRAGMA journal_mode=WAL"))

    def close(self) -> None:
        """Close the pooled connections."""
        self._reader.dispose()
        if "engine" in self.__dict__:
            self.engine.dispose()


_ADVICE = (
    ("locked|lock timeout|lock wait", "is locked by another program: try again"),
    (
        "not a database|malformed",
        "is not a database, or it is damaged: move it away, or point FOLLOWUP_CUSTOMERS_URL at the "
        "right one",
    ),
    ("is full|no space left|disk full", "has no room left: its disk is full"),
    ("readonly|read-only", "may only be read: check its permissions"),
    ("password|authentication|access denied", "refuses the user or the password of its URL"),
    (
        "permission denied|denied to user|command denied",
        "does not permit that to its user: see GRANT",
    ),
    (
        "refused|could not translate|resolve|timed? ?out|can't connect|unreachable|does not exist"
        "|unknown database",
        "is not there: check host, port and name in FOLLOWUP_CUSTOMERS_URL, and whether it runs",
    ),
)
"""How drivers say it, and what a person can do."""


def _no_url(url: str) -> str:
    shown = re.sub(r"^([^:]*:)[^@]*@", r"\1//***@", url)
    return (
        f"customers URL {shown!r} is not a database URL; use sqlite:///FILE or "
        "postgresql+psycopg://USER@HOST/NAME"
    )


def _stop_if_cancelled(connection: Connection, *_: Any) -> None:
    """Start no further statement of a call that nobody waits for."""
    cancelled = connection.info.get(CANCELLED)
    if cancelled is not None and cancelled.is_set():
        raise ToolUnavailable("the call was cancelled")


def _connect_args(backend: str) -> dict[str, Any]:
    if backend == "sqlite":
        return {"timeout": BUSY_TIMEOUT_S, "check_same_thread": False}
    if backend in ("postgresql", "mysql", "mariadb"):
        return {"connect_timeout": CONNECT_TIMEOUT_S}
    return {}


def _session(engine: Engine, query_timeout_s: float | None) -> list[str]:
    """What is said once to a new connection."""
    dialect: Any = engine.dialect
    only_reads = query_timeout_s is not None
    limit_ms = int((query_timeout_s or 0) * 1000)
    if dialect.name == "sqlite":
        return ["PRAGMA query_only = ON"] if only_reads else []
    if dialect.name == "postgresql":
        # The statements of one call see one state of the data.
        reading = [
            "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
            f"SET statement_timeout = {limit_ms}",
        ]
        writing = [f"SET lock_timeout = {LOCK_TIMEOUT_S * 1000}"]
        return ["SET TIME ZONE 'UTC'", *(reading if only_reads else writing)]
    if dialect.name in ("mysql", "mariadb"):
        limit = (
            f"SET SESSION max_statement_time = {limit_ms / 1000}"
            if getattr(dialect, "is_mariadb", False)
            else f"SET SESSION max_execution_time = {limit_ms}"
        )
        reading = ["SET SESSION TRANSACTION READ ONLY", limit]
        writing = [f"SET SESSION innodb_lock_wait_timeout = {LOCK_TIMEOUT_S}"]
        return ["SET time_zone = '+00:00'", *(reading if only_reads else writing)]
    return []


def _short(error: Exception) -> str:
    """The driver's own words, without SQL and parameters: those may hold customer data."""
    cause = getattr(error, "orig", None) or error
    lines = [line for line in str(cause).splitlines() if line.strip()]
    return lines[0][:200] if lines else type(cause).__name__
