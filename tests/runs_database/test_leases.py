"""One writer per thread: who holds the lease, when it ends, and what a fenced-out writer may do."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from postgres_server import PostgresServer

from followup_agent.runs.database import RunsDatabase
from followup_agent.runs.leases import Leases
from followup_agent.service.errors import LeaseLost, ThreadBusy


@pytest.fixture
def database(tmp_path: Path) -> Iterator[RunsDatabase]:
    """A runs database in a file."""
    with closing(RunsDatabase(f"sqlite:///{tmp_path / 'runs.db'}")) as opened:
        yield opened


def release(leases: Leases, thread: str = "t") -> None:
    """Give a lease back."""
    with leases.releasing(thread):
        pass


def check(leases: Leases, database: RunsDatabase, thread: str = "t") -> None:
    """As every write does."""
    with database.writing() as connection:
        leases.check(thread, connection)


def test_the_loser_is_told_at_once_and_a_lease_given_back_is_free(database: RunsDatabase) -> None:
    with closing(Leases(database)) as one, closing(Leases(database)) as two:
        one.acquire("t")
        for loser in (one, two):  # also a second call of the same agent
            with pytest.raises(ThreadBusy):
                loser.acquire("t")
        two.acquire("other")
        assert one.held() == {"t", "other"}
        release(one)
        two.acquire("t")
        check(two, database)


def test_of_many_who_come_at_once_one_gets_it(database: RunsDatabase) -> None:
    agents = [Leases(database) for _ in range(8)]

    def take(leases: Leases) -> bool:
        try:
            leases.acquire("t")
        except ThreadBusy:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(take, agents)) == 1
    for leases in agents:
        leases.close()


def test_a_hung_holder_is_fenced_out_and_its_late_write_refused(database: RunsDatabase) -> None:
    now = [1000.0]
    with (
        closing(Leases(database, lease_s=30, clock=lambda: now[0])) as hung,
        closing(Leases(database, lease_s=30, clock=lambda: now[0])) as other,
    ):
        hung.acquire("t")
        now[0] += 29
        with pytest.raises(ThreadBusy):
            other.acquire("t")
        now[0] += 2
        other.acquire("t")
        with pytest.raises(LeaseLost, match="taken over"):
            check(hung, database)
        check(other, database)
        release(hung)  # must not take the other's lease away
        check(other, database)
        hung.renew()
        check(other, database)


def test_a_lease_that_is_renewed_lasts(database: RunsDatabase) -> None:
    now = [1000.0]
    with (
        closing(Leases(database, lease_s=30, clock=lambda: now[0])) as busy,
        closing(Leases(database, lease_s=30, clock=lambda: now[0])) as other,
    ):
        busy.acquire("t")
        for _ in range(5):
            now[0] += 20
            busy.renew()
        with pytest.raises(ThreadBusy):
            other.acquire("t")
        check(busy, database)


def test_a_lease_that_could_not_be_given_back_is_taken_over_at_once(database: RunsDatabase) -> None:
    """The database was away in that moment: the row stays, and its agent lives on."""
    now = [1000.0]
    with closing(Leases(database, clock=lambda: now[0])) as leases:
        leases.acquire("t")
        leases.acquire("renewed")
        with pytest.raises(ConnectionError), leases.releasing("t"):
            raise ConnectionError
        assert leases.held() == {"renewed"}
        now[0] += 20
        leases.renew()
        leases.acquire("t")
        check(leases, database)
        with pytest.raises(ThreadBusy):
            leases.acquire("t")


def test_a_lease_left_behind_ends_however_long_its_agent_lives(database: RunsDatabase) -> None:
    now = [1000.0]
    clock = lambda: now[0]  # noqa: E731
    with (
        closing(Leases(database, clock=clock)) as agent,
        closing(Leases(database, clock=clock)) as other,
    ):
        agent.acquire("kept")
        agent.acquire("t")
        with pytest.raises(ConnectionError), agent.releasing("t"):
            raise ConnectionError
        for _ in range(2):
            now[0] += 20
            agent.renew()  # what it still holds, and no more
        other.acquire("t")
        with pytest.raises(ThreadBusy):
            other.acquire("kept")


def test_a_lease_whose_taking_failed_is_nobodys(database: RunsDatabase) -> None:
    def fail(*_: object) -> None:
        raise ConnectionError

    with closing(Leases(database)) as leases:
        with pytest.raises(ConnectionError):
            leases.acquire("t", fail)
        assert leases.fence_of("t") is None
        leases.acquire("t")


def test_writing_without_a_lease_is_refused(database: RunsDatabase) -> None:
    with closing(Leases(database)) as leases, pytest.raises(LeaseLost):
        check(leases, database)


def test_what_an_agent_left_is_given_back_when_it_closes(database: RunsDatabase) -> None:
    leases = Leases(database)
    leases.acquire("t")
    leases.close()
    with closing(Leases(database)) as other:
        other.acquire("t")
    assert list((database.path.parent / "runs.db.holders").iterdir()) == []


DIE_HOLDING = """
import os, signal, sys
from followup_agent.runs.database import RunsDatabase
from followup_agent.runs.leases import Leases
Leases(RunsDatabase(sys.argv[1])).acquire("t")
os.kill(os.getpid(), signal.SIGKILL)
"""


def die_holding(url: str) -> None:
    """A process takes the lease and is killed."""
    done = subprocess.run([sys.executable, "-c", DIE_HOLDING, url], check=False, timeout=60)
    assert done.returncode == -9


@pytest.mark.slow
def test_a_dead_holders_lease_ends_at_once_on_sqlite(database: RunsDatabase) -> None:
    die_holding(str(database.url))
    with closing(Leases(database)) as leases:
        assert leases.held() == set()
        leases.acquire("t")
        check(leases, database)


@pytest.mark.slow
def test_a_dead_holders_lease_ends_at_once_on_postgres(postgres: PostgresServer) -> None:
    url = postgres.database()
    with closing(RunsDatabase(url)) as database:
        die_holding(url)
        with closing(Leases(database)) as leases, closing(Leases(database)) as other:
            leases.acquire("t")
            check(leases, database)
            with pytest.raises(ThreadBusy):
                other.acquire("t")
            assert other.held() == {"t"}
