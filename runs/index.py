"""The list of threads: what ran, what waits. Kept beside the checkpoints, readable without them."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel
from sqlalchemy import Connection, bindparam, select

from followup_agent.runs.database import RunsDatabase, threads


class ThreadEntry(BaseModel):
    """One line of `followup threads`."""

    thread_id: str
    user_goal: str
    status: str
    stop_reason: str | None
    updated_at: datetime
    waiting_for: str | None
    """'answer', 'approval' or None."""


class ThreadIndex:
    """Reads and writes the list. Blocks: not for the event loop."""

    def __init__(self, database: RunsDatabase) -> None:
        """In this runs database."""
        self._database = database
        self._recording = self._statement(but=())
        self._correcting = self._statement(but=("updated_at",))
        known = threads.c.thread_id == bindparam("thread")
        running = {"status": "running", "stop_reason": None, "waiting_for": None}
        self._marking = threads.update().where(known).values(running)

    def record(
        self, entry: ThreadEntry, connection: Connection, *, keep_time: bool = False
    ) -> None:
        """Note how a thread stands; with `keep_time`, as of when it was written to last."""
        connection.execute(self._correcting if keep_time else self._recording, entry.model_dump())

    def _statement(self, but: tuple[str, ...]) -> Any:
        """Insert the entry, or write over the one there is, but for these columns."""
        insert = self._database.insert(threads)
        insert = insert.values({column.name: bindparam(column.name) for column in threads.c})
        new = {
            column.name: insert.excluded[column.name]
            for column in threads.c
            if column.name not in but
        }
        return insert.on_conflict_do_update(index_elements=["thread_id"], set_=new)

    def mark_running(
        self, thread_id: str, goal: str | None, at: datetime, connection: Connection
    ) -> None:
        """Somebody begins to write to the thread: for a new goal, or to go on with what there is."""
        if goal is None:
            connection.execute(self._marking, {"thread": thread_id})
        else:
            entry = ThreadEntry(
                thread_id=thread_id, user_goal=goal, status="running", stop_reason=None,
                updated_at=at, waiting_for=None,
            )  # fmt: skip
            self.record(entry, connection)

    def entries(self) -> list[ThreadEntry]:
        """All threads, the latest first."""
        with self._database.reading() as connection:
            rows = connection.execute(
                select(threads).order_by(threads.c.updated_at.desc(), threads.c.thread_id)
            )
            return [ThreadEntry.model_validate(dict(row._mapping)) for row in rows]

    def finished_before(self, moment: datetime) -> list[str]:
        """Threads that ended before this time. One that waits, or was cut off, is not among them."""
        ended = threads.c.status.in_(("completed", "failed")) & (threads.c.updated_at < moment)
        with self._database.reading() as connection:
            return list(connection.execute(select(threads.c.thread_id).where(ended)).scalars())

    def is_older(self, thread_id: str, moment: datetime) -> bool:
        """Whether the thread was last written to before this time."""
        older = (threads.c.thread_id == thread_id) & (threads.c.updated_at < moment)
        with self._database.reading() as connection:
            return connection.execute(select(threads.c.thread_id).where(older)).first() is not None

    def forget(self, thread_id: str) -> None:
        """Take a thread off the list."""
        with self._database.writing() as connection:
            connection.execute(threads.delete().where(threads.c.thread_id == thread_id))
