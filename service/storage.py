"""What a failing runs database, or a damaged thread, means for a run: said in one place."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import SQLAlchemyError

from followup_agent.runs.database import short
from followup_agent.service.errors import FollowupError, StorageError


def is_storage_error(error: BaseException) -> bool:
    """Whether the runs database failed, whichever driver says so."""
    driver = type(error).__module__.partition(".")[0]
    return isinstance(error, sqlite3.Error | SQLAlchemyError) or driver.startswith("psycopg")


@contextmanager
def storage_errors(thread_id: str) -> Iterator[None]:
    """Say what a failing runs database means for the run."""
    try:
        yield
    except Exception as error:
        if not is_storage_error(error):
            raise
        raise StorageError(
            f"the runs database failed: {short(error)}; what was stored of thread {thread_id} stays: "
            f"go on with `followup resume {thread_id}` once the database works"
        ) from error


@contextmanager
def unreadable(thread_id: str) -> Iterator[None]:
    """Say that what is stored of this thread cannot be read, whatever it is."""
    try:
        yield
    except FollowupError:
        raise
    except Exception as error:
        if is_storage_error(error):
            raise
        raise StorageError(
            f"what is stored of thread {thread_id} cannot be read ({type(error).__name__}: "
            f"{short(error)}): it is damaged; other threads are not affected. Ask on a new thread"
        ) from error
