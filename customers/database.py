"""Open the customer database and run queries on it without blocking the event loop."""

import re
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, inspect, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from followup_agent.customers.tables import READ_RELATIONS, metadata
from followup_agent.service.errors import CustomerDataError
from followup_agent.tools.definition import ToolUnavailable
from followup_agent.tools.threads import Threads

T = TypeVar("T")

BUSY_TIMEOUT_S = 2.0
"""How long SQLite waits for another writer before it says 'locked'."""


def sqlite_url(path: Path) -> str:
    """The SQLAlchemy URL of a SQLite file."""
    return f"sqlite:///{path}"


class CustomerDatabase:
    """One engine for any number of runs. Safe to share between threads and event loops."""

    def __init__(self, url: str, *, max_threads: int = 64) -> None:
        """Connect lazily; CustomerDataError when the URL or its driver is unusable."""
        try:
            self.url = make_url(url)
            self._engine: Engine = create_engine(
                self.url,
                connect_args=_connect_args(self.url.drivername),
                pool_pre_ping=True,
                pool_size=max_threads,  # a connection for each thread: none waits for another's
            )
            event.listen(self._engine, "before_cursor_execute", _stop_if_cancelled)
        except ArgumentError as error:
            shown = re.sub(r"://[^@]*@", "://***@", url)
            raise CustomerDataError(
                f"customers URL {shown!r} is not a database URL; use sqlite:///FILE or "
                "postgresql+psycopg://USER@HOST/NAME"
            ) from error
        except ImportError as error:
            raise CustomerDataError(
                f"the driver {error.name!r} for {self.url.drivername} is not installed; "
                "for PostgreSQL: pip install 'followup-agent[postgres]'"
            ) from error
        self._threads = Threads(max_threads)

    @property
    def engine(self) -> Engine:
        """For commands that fill or check the database, outside any event loop."""
        return self._engine

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
            if self.url.get_backend_name() == "sqlite":
                self._require_file()
            with self._engine.connect() as connection:
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
                with suppress(Exception):  # it has just ended by itself, or is gone
                    stop = getattr(connection, "interrupt", None) or connection.cancel
                    stop()

        try:
            return await self._threads.call(call, on_cancel=cancel)
        except (DBAPIError, PoolTimeoutError) as error:
            raise ToolUnavailable(f"customer database: {_short(error)}") from error

    def _require_file(self) -> None:
        path = self.url.database
        if path and path != ":memory:" and not Path(path).exists():
            raise ToolUnavailable(f"customer database {path} does not exist")

    def check(self) -> Self:
        """Return self when the four relations and their columns are there.

        CustomerDataError with what to do when the database is missing, locked, not a database, or
        of another version (a relation or column is missing). Blocks: not for the event loop.
        """
        path = self.url.database
        is_file = self.url.get_backend_name() == "sqlite" and path and path != ":memory:"
        if is_file and not Path(str(path)).exists():
            raise CustomerDataError(
                f"no customer database at {self.name}: run `followup data sample` for a made-up "
                "company, `followup data import` for your own, or name another --home"
            )
        try:
            inspector = inspect(self._engine)
            present = {*inspector.get_table_names(), *inspector.get_view_names()}
            for table in READ_RELATIONS:
                if table.name not in present:
                    raise CustomerDataError(
                        f"customer database {self.name} has no relation {table.name!r}: "
                        "fill it with `followup data sample` or `followup data import`, "
                        "or add a view of that name"
                    )
                columns = {column["name"] for column in inspector.get_columns(table.name)}
                missing = [column.name for column in table.columns if column.name not in columns]
                if missing:
                    raise CustomerDataError(
                        f"customer database {self.name}: relation {table.name!r} lacks "
                        f"{', '.join(missing)}; it is from another version: import it again, "
                        "or add the columns to your view"
                    )
            with self._engine.connect() as connection:
                connection.execute(text("SELECT 1 FROM customers LIMIT 1")).first()
        except SQLAlchemyError as error:
            raise CustomerDataError(self._why(error)) from error
        return self

    def _why(self, error: SQLAlchemyError) -> str:
        reason = _short(error)
        if "locked" in reason:
            return f"customer database {self.name} is locked by another program: try again"
        if "not a database" in reason or "malformed" in reason:
            return (
                f"{self.name} is not a database (or it is damaged): move it away, "
                "or point FOLLOWUP_CUSTOMERS_URL at the right file"
            )
        return f"customer database {self.name} cannot be used: {reason}"

    def create(self) -> None:
        """Make the relations that are missing; CustomerDataError when that is not possible."""
        try:
            if self.url.get_backend_name() == "sqlite":
                with self._engine.connect() as connection:
                    # Readers then never wait for a writer; the file keeps the setting.
                    connection.execute(text("PRAGMA journal_mode=WAL"))
            metadata.create_all(self._engine)
        except SQLAlchemyError as error:
            raise CustomerDataError(self._why(error)) from error

    def close(self) -> None:
        """Close the pooled connections."""
        self._engine.dispose()


CANCELLED = "followup_cancelled"


def _stop_if_cancelled(connection: Connection, *_: Any) -> None:
    """Start no further statement of a call that nobody waits for."""
    cancelled = connection.info.get(CANCELLED)
    if cancelled is not None and cancelled.is_set():
        raise ToolUnavailable("the call was cancelled")


def _connect_args(drivername: str) -> dict[str, Any]:
    if drivername.startswith("sqlite"):
        return {"timeout": BUSY_TIMEOUT_S, "check_same_thread": False}
    return {}


def _short(error: SQLAlchemyError) -> str:
    """The driver's own words, without SQL and parameters: those may hold customer data."""
    cause = getattr(error, "orig", None) or error
    return str(cause).splitlines()[0][:200] if str(cause) else type(cause).__name__
