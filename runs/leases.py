"""One writer per thread, across threads, processes and machines.

Who writes to a thread holds its lease: a row with a holder, a fence and a time at which it ends.
The row is there only while the lease is held, and every write for the thread is made in a
transaction that looks for this very fence first (`graph/checkpoints.py`, `runs/ledger.py`).

A lease ends when it is given back; at once when its holder is dead (the operating system has taken
back its file lock, PostgreSQL its advisory lock); or when it was not renewed in time, because its
holder hangs. Whoever takes it over writes a new fence, and what the old holder writes is refused.
"""

import secrets
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from filelock import FileLock, Timeout
from sqlalchemy import Connection, bindparam, or_, select, text
from sqlalchemy.exc import SQLAlchemyError

from followup_agent.runs.database import RunsDatabase, leases
from followup_agent.service.errors import LeaseLost, ThreadBusy

LEASE_S = 30.0
"""A lease that was not renewed for so long is anybody's. Renewed three times as often."""
_POSTGRES_CLOCK = text("SELECT extract(epoch FROM clock_timestamp())")


_ROWS = select(leases.c.thread_id, leases.c.holder, leases.c.fence)

WhenTaken = Callable[[str, Connection], None]


class _Lease(NamedTuple):
    """A row of the table."""

    thread_id: str
    holder: str
    fence: int


class Liveness(Protocol):
    """How one holder of leases knows whether another is still there."""

    def is_dead(self, holder: str) -> bool:
        """Whether this holder's process has ended. False when that cannot be told."""

    def renew(self) -> None:
        """Be alive still: take back what a restarted database has dropped."""

    def close(self) -> None:
        """End being alive."""


class Leases:
    """The leases of one agent. Blocks: not for the event loop, except `fence_of`."""

    def __init__(
        self,
        database: RunsDatabase,
        *,
        lease_s: float = LEASE_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Hold leases as a new holder, alive until closed or until the process ends."""
        self.holder = uuid.uuid4().hex
        self.lease_s = lease_s
        self._database = database
        self._clock = clock
        self._held: dict[str, int] = {}
        self._taking = self._statement()
        self._alive: Liveness = (
            AdvisoryLocks(database, self.holder)
            if database.is_postgres
            else LockFiles(database.path, self.holder)
        )

    def acquire(self, thread_id: str, when_taken: WhenTaken | None = None) -> None:
        """Take the lease of a thread; ThreadBusy at once when somebody else holds it.

        `when_taken` is called with the thread and the connection, in the same transaction.
        """
        other = self._take(thread_id, None, when_taken)
        if other is not None and self._is_left(other):
            other = self._take(thread_id, other.fence, when_taken)
        if other is not None:
            raise ThreadBusy(f"thread {thread_id} is being written to by another call; try again")

    def _take(
        self, thread_id: str, left: int | None, when_taken: WhenTaken | None
    ) -> "_Lease | None":
        """None when taken, else the lease that is in the way. `left`: the fence of a dead one."""
        fence = secrets.randbits(62)
        try:
            with self._database.writing() as connection:
                other = self._try(connection, thread_id, fence, left)
                if other is None and when_taken is not None:
                    when_taken(thread_id, connection)
        except BaseException:
            self._forget(thread_id, fence)  # the row may be there all the same: it is left
            raise
        return other

    def _try(
        self, connection: Connection, thread_id: str, fence: int, left: int | None
    ) -> "_Lease | None":
        now = self._now(connection)
        values = {
            "thread_id": thread_id,
            "holder": self.holder,
            "fence": fence,
            "expires_at": now + self.lease_s,
        }
        taken = connection.execute(self._taking, {**values, "now": now, "left": left})
        if taken.scalar() == fence:
            self._held[thread_id] = fence
            return None
        row = connection.execute(_ROWS.where(leases.c.thread_id == thread_id)).first()
        if row is None:  # given back in this moment: busy all the same
            return _Lease(thread_id, self.holder, self._held.get(thread_id, 0))
        return _Lease(*row)

    def _statement(self) -> Any:
        """Insert the lease, or take over one that has run out or was left."""
        insert = self._database.insert(leases)
        insert = insert.values({column.name: bindparam(column.name) for column in leases.c})
        free = or_(leases.c.expires_at < bindparam("now"), leases.c.fence == bindparam("left"))
        return insert.on_conflict_do_update(
            index_elements=["thread_id"],
            set_={name: insert.excluded[name] for name in ("holder", "fence", "expires_at")},
            where=free,
        ).returning(leases.c.fence)

    def _is_left(self, lease: "_Lease") -> bool:
        """Whether nobody writes under it any more: its holder is dead, or it is our own and was not
        given back, because the database was away just then."""
        if lease.holder == self.holder:
            return self._held.get(lease.thread_id) != lease.fence
        return self._alive.is_dead(lease.holder)

    @contextmanager
    def releasing(self, thread_id: str) -> Iterator[tuple[Connection, bool]]:
        """Give the lease back in a transaction of its own, and say whether it was still ours.

        What goes wrong leaves a row that nobody writes under, and that anybody here may take over.
        """
        fence = self._held.get(thread_id)
        row = (leases.c.thread_id == thread_id, leases.c.fence == fence)
        try:
            with self._database.writing() as connection:
                yield connection, connection.execute(leases.delete().where(*row)).rowcount == 1
        finally:
            self._forget(thread_id, fence)

    def _forget(self, thread_id: str, fence: int | None) -> None:
        if self._held.get(thread_id) == fence:
            self._held.pop(thread_id, None)

    def fence_of(self, thread_id: str) -> int | None:
        """The fence under which this agent writes to the thread, as far as it knows."""
        return self._held.get(thread_id)

    def check(self, thread_id: str, connection: Connection) -> None:
        """LeaseLost unless the lease is still ours; holds it until the transaction ends."""
        fence = self._held.get(thread_id)
        row = select(leases.c.fence).where(leases.c.thread_id == thread_id, leases.c.fence == fence)
        if fence is None or connection.execute(row.with_for_update(read=True)).first() is None:
            raise LeaseLost(lost(thread_id))

    def renew(self) -> None:
        """Put off the end of all held leases, but for those that were lost."""
        if not self._held:
            return
        self._alive.renew()
        with self._database.writing() as connection:
            connection.execute(
                leases.update()
                .where(leases.c.fence.in_(list(self._held.values())))
                .values(expires_at=self._now(connection) + self.lease_s)
            )

    def held(self) -> set[str]:
        """Threads that somebody alive is writing to."""
        with self._database.reading() as connection:
            rows = connection.execute(_ROWS.where(leases.c.expires_at >= self._now(connection)))
            found = [_Lease(*row) for row in rows]
        return {lease.thread_id for lease in found if not self._is_left(lease)}

    def _now(self, connection: Connection) -> float:
        """The database's clock where machines may differ, ours where there is one machine."""
        if self._database.is_postgres:
            return float(connection.execute(_POSTGRES_CLOCK).scalar_one())
        return self._clock()

    def close(self) -> None:
        """Give back everything."""
        with suppress(SQLAlchemyError), self._database.writing() as connection:
            connection.execute(leases.delete().where(leases.c.holder == self.holder))
        self._held.clear()
        self._alive.close()


def lost(thread_id: str) -> str:
    """What a writer is told that was fenced out."""
    return (
        f"thread {thread_id} was taken over by another writer, because this one did not renew its "
        "lease in time; nothing more was written"
    )


class LockFiles:
    """A holder is alive while its process holds the lock on its file: the operating system lets go
    of it when the process ends, however it ends."""

    def __init__(self, database: Path, holder: str) -> None:
        """Lock a file of our own beside the database."""
        self._folder = database.with_name(f"{database.name}.holders")
        self._folder.mkdir(parents=True, exist_ok=True)
        self._own = FileLock(self._folder / holder, thread_local=False)
        self._own.acquire(blocking=False)

    def is_dead(self, holder: str) -> bool:
        """Whether nobody locks this holder's file; what is left of a dead one is removed."""
        path = self._folder / holder
        if path == Path(self._own.lock_file):
            return False
        if not path.exists():
            return True
        try:
            with FileLock(path, blocking=False, thread_local=False):
                path.unlink(missing_ok=True)
        except Timeout:
            return False
        return True

    def renew(self) -> None:
        """Nothing: a file lock lasts as long as its process."""

    def close(self) -> None:
        """Unlock and remove the file."""
        self._own.release()
        Path(self._own.lock_file).unlink(missing_ok=True)


class AdvisoryLocks:
    """A holder is alive while its session holds its advisory lock: PostgreSQL lets go of it when
    the connection ends."""

    def __init__(self, database: RunsDatabase, holder: str) -> None:
        """Lock on a connection of our own."""
        self._database = database
        self._key = _lock_key(holder)
        self._connection: Connection | None = None
        self.renew()

    def renew(self) -> None:
        """Lock again after the connection was lost."""
        if self._connection is not None:
            try:
                self._connection.execute(text("SELECT 1"))
            except SQLAlchemyError:
                self._connection.close()
            else:
                return
        # Not from the pool: it is kept for as long as the agent is open.
        raw = self._database.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        raw.detach()
        raw.execute(text("SELECT pg_advisory_lock(:key)"), {"key": self._key})
        self._connection = raw

    def is_dead(self, holder: str) -> bool:
        """Whether nobody holds this holder's lock."""
        key = {"key": _lock_key(holder)}
        if key["key"] == self._key:
            return False
        with self._database.reading() as connection:
            if not connection.execute(text("SELECT pg_try_advisory_lock(:key)"), key).scalar():
                return False
            connection.execute(text("SELECT pg_advisory_unlock(:key)"), key)
        return True

    def close(self) -> None:
        """Unlock."""
        if self._connection is not None:
            self._connection.close()


def _lock_key(holder: str) -> int:
    """63 bits of the holder's id."""
    return int(holder[:16], 16) >> 1
