"""How runs are stored: LangGraph's own savers, strict about what may be read back, and fenced.

A fenced saver writes for a thread only while this agent holds the thread's lease: the lease is
looked at in the very transaction of the write, so that a writer which was overtaken writes nothing.
A node's events are written to the log once its result is stored, and not before.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import aiosqlite
from anyio import CancelScope
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from sqlalchemy import URL
from typing_extensions import override

from followup_agent.graph.context import Event
from followup_agent.runs.database import POSTGRES_OPTIONS, WAIT_FOR_LOCK_S, RunsDatabase
from followup_agent.runs.leases import Leases, lost
from followup_agent.service.errors import LeaseLost

if TYPE_CHECKING:
    from psycopg import AsyncConnection, AsyncCursor
    from psycopg.rows import DictRow

T = TypeVar("T")

LOST = "followup: the lease is lost"
POSTGRES_WAIT_S = 30.0
"""How long a step waits for a connection, and for one that a restarted server has to open anew."""


def strict_serializer() -> JsonPlusSerializer:
    """Plain JSON and LangChain's messages only: any other class is refused, never guessed."""
    return JsonPlusSerializer(allowed_msgpack_modules=[])


class HeldEvents:
    """Events of nodes whose results are not stored yet, by thread."""

    def __init__(self, write: Callable[[Iterable[Event]], None]) -> None:
        """`write` is called with a node's events once its result is stored."""
        self._write = write
        self._held: dict[str, Sequence[Event]] = {}

    def hold(self, thread_id: str, events: Sequence[Event]) -> None:
        """Keep the events of a node that has just ended, and nothing of one before whose result was
        never stored."""
        self._held[thread_id] = events

    def discard(self, thread_id: str) -> None:
        """Nobody will store this thread's last result any more."""
        self._held.pop(thread_id, None)

    async def after(self, thread_id: str, storing: Awaitable[T]) -> T:
        """Store a node's result, then write its events."""
        events = self._held.pop(thread_id, ())
        stored = await storing
        self._write(events)
        return stored


class Fenced(BaseCheckpointSaver[Any]):
    """Wraps the writes of a LangGraph saver; goes before it in the list of bases."""

    _events: HeldEvents

    async def fenced(self, config: RunnableConfig, storing: Awaitable[T]) -> T:
        """Do one write as the holder of its thread's lease; LeaseLost, and nothing is written."""
        raise NotImplementedError

    @override
    async def aput(self, config: RunnableConfig, *args: Any) -> RunnableConfig:
        return await self.fenced(config, super().aput(config, *args))

    @override
    async def aput_writes(self, config: RunnableConfig, *args: Any, **more: Any) -> None:
        storing = self.fenced(config, super().aput_writes(config, *args, **more))
        await self._events.after(_thread(config), storing)


class FencedSqliteSaver(Fenced, AsyncSqliteSaver):
    """LangGraph's SQLite saver; a trigger of this connection refuses writes without the lease."""

    def __init__(self, connection: aiosqlite.Connection, held_events: HeldEvents) -> None:
        """On a connection that `open_saver` has prepared."""
        super().__init__(connection, serde=strict_serializer())
        self._events = held_events

    @override
    async def fenced(self, config: RunnableConfig, storing: Awaitable[T]) -> T:
        """All of it or nothing: a write that is refused, or whose caller has gone, must not leave
        its transaction open, which would lock out everybody else."""
        try:
            return await storing
        except BaseException as error:
            with CancelScope(shield=True):
                async with self.lock:
                    await self.conn.rollback()
            if isinstance(error, sqlite3.IntegrityError) and LOST in str(error):
                raise LeaseLost(lost(_thread(config))) from error
            raise


def _thread(config: RunnableConfig) -> str:
    return str(config["configurable"]["thread_id"])


@asynccontextmanager
async def open_saver(
    database: RunsDatabase, leases: Leases, write_events: Callable[[Iterable[Event]], None]
) -> AsyncIterator[tuple[BaseCheckpointSaver[Any], HeldEvents]]:
    """A fenced saver in the runs database, open until the block ends, and what its events go by."""
    events = HeldEvents(write_events)
    if database.is_postgres:
        async with _open_postgres(database, leases, events) as saver:
            yield saver, events
        return
    async with aiosqlite.connect(database.path, timeout=WAIT_FOR_LOCK_S) as connection:
        sqlite_saver = FencedSqliteSaver(connection, events)
        await sqlite_saver.setup()
        await connection.create_function("held_fence", 1, leases.fence_of)
        for table in ("checkpoints", "writes"):
            await connection.execute(_TRIGGER.format(table=table))
        yield sqlite_saver, events


_TRIGGER = f"""
CREATE TEMP TRIGGER fence_{{table}} BEFORE INSERT ON main.{{table}}
WHEN NOT EXISTS (
    SELECT 1 FROM followup_leases
    WHERE thread_id = NEW.thread_id AND fence = held_fence(NEW.thread_id)
)
BEGIN SELECT RAISE(ABORT, '{LOST}'); END
"""  # noqa: S608 - of our own two names


@asynccontextmanager
async def open_sqlite_saver(path: Path) -> AsyncIterator[AsyncSqliteSaver]:
    """LangGraph's saver on this file without leases, for tools that own the file alone.

    WAL: several processes may read and write. synchronous=FULL is SQLite's default in WAL mode and
    is kept: a finished step survives a power cut, not only a killed process.
    """
    async with aiosqlite.connect(path) as connection:
        saver = AsyncSqliteSaver(connection, serde=strict_serializer())
        await saver.setup()
        yield saver


# --- PostgreSQL; its packages are an extra ---

_FENCE_FUNCTION = f"""
CREATE OR REPLACE FUNCTION followup_check_fence(thread text, held bigint) RETURNS void AS $$
BEGIN
    PERFORM 1 FROM followup_leases WHERE thread_id = thread AND fence = held FOR SHARE;
    IF NOT FOUND THEN RAISE EXCEPTION '{LOST}'; END IF;
END
$$ LANGUAGE plpgsql
"""
_WRITING_TO: ContextVar[str | None] = ContextVar("followup_writing_to", default=None)


def conninfo(url: URL) -> str:
    """The URL as the driver reads it."""
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


@asynccontextmanager
async def _open_postgres(
    database: RunsDatabase, leases: Leases, events: HeldEvents
) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from psycopg.errors import RaiseException
    from psycopg.rows import dict_row
    from psycopg_pool import AsyncConnectionPool

    class FencedPostgresSaver(Fenced, AsyncPostgresSaver):
        """LangGraph's PostgreSQL saver; each write checks the lease in its own transaction."""

        _events = events

        @override
        async def fenced(self, config: RunnableConfig, storing: Awaitable[T]) -> T:
            """Let `_cursor` know for which thread it is."""
            token = _WRITING_TO.set(_thread(config))
            try:
                return await storing
            except RaiseException as error:
                raise LeaseLost(lost(_thread(config))) from error
            finally:
                _WRITING_TO.reset(token)

        @asynccontextmanager
        async def _cursor(self, *, pipeline: bool = False) -> "AsyncIterator[AsyncCursor[DictRow]]":
            async with super()._cursor(pipeline=pipeline) as cursor:
                thread_id = _WRITING_TO.get()
                if thread_id is None:
                    yield cursor
                    return
                async with cursor.connection.transaction():
                    fence = leases.fence_of(thread_id)
                    await cursor.execute("SELECT followup_check_fence(%s, %s)", (thread_id, fence))
                    yield cursor

    pool: AsyncConnectionPool[AsyncConnection[DictRow]] = AsyncConnectionPool(
        conninfo(database.url),
        min_size=1,
        max_size=2,  # the saver does one thing at a time
        timeout=POSTGRES_WAIT_S,
        check=AsyncConnectionPool.check_connection,  # the server may have closed it meanwhile
        kwargs={
            "autocommit": True,
            "prepare_threshold": 0,
            "row_factory": dict_row,
            "options": POSTGRES_OPTIONS,
        },
        open=False,
    )
    async with pool:
        saver = FencedPostgresSaver(pool, serde=strict_serializer())
        await _set_up(saver, database)
        yield saver


async def _set_up(saver: Any, database: RunsDatabase) -> None:
    """LangGraph's tables and our function, made by one process at a time.

    LangGraph makes indexes CONCURRENTLY, which waits for everybody who waits for a lock: so the
    lock is tried, not waited for.
    """
    lock = "SELECT pg_try_advisory_lock(610487152)"
    unlock = "SELECT pg_advisory_unlock(610487152)"
    from sqlalchemy import inspect, text

    def is_done() -> bool:
        with database.reading() as connection:
            if not inspect(connection).has_table("checkpoint_migrations"):
                return False
            newest = connection.execute(text("SELECT max(v) FROM checkpoint_migrations")).scalar()
            function = text("SELECT 1 FROM pg_proc WHERE proname = 'followup_check_fence'")
            known = connection.execute(function).first() is not None
            return known and newest is not None and newest >= len(saver.MIGRATIONS) - 1

    if await database.call(is_done):
        return
    async with saver.conn.connection() as connection:
        while not next(iter((await (await connection.execute(lock)).fetchone()).values())):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)
        try:
            await saver.setup()
            await connection.execute(_FENCE_FUNCTION)
        finally:
            await connection.execute(unlock)
