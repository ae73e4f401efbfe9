"""The list of threads: what ran, what waits. Kept beside the checkpoints, readable without them."""

from datetime import datetime
from pathlib import Path

from pydantic import BaseModel
from sqlalchemy import Column, MetaData, String, Table, Text, create_engine, make_url, select
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.schema import CreateTable

from followup_agent.customers.tables import Instant
from followup_agent.service.errors import ConfigurationError
from followup_agent.service.settings import PREFIX, Settings
from followup_agent.tools.threads import Threads

SCHEMA_VERSION = "1"
"""Of the runs database. One of another version is refused rather than half understood."""

_metadata = MetaData()
_meta = Table(
    "followup_meta",
    _metadata,
    Column("key", String(50), primary_key=True),
    Column("value", Text, nullable=False),
)
_threads = Table(
    "followup_threads",
    _metadata,
    Column("thread_id", String(200), primary_key=True),
    Column("user_goal", Text, nullable=False),
    Column("status", String(20), nullable=False),
    Column("stop_reason", String(30)),
    Column("updated_at", Instant, nullable=False),
    Column("waiting_for", String(20)),
)


class ThreadEntry(BaseModel):
    """One line of `followup threads`."""

    thread_id: str
    user_goal: str
    status: str
    stop_reason: str | None
    updated_at: datetime
    waiting_for: str | None
    """'answer', 'approval' or None."""


def runs_path(settings: Settings) -> Path:
    """The file of the runs database; ConfigurationError for a URL that is not SQLite's."""
    if settings.runs_url is None:
        return settings.home / "runs.db"
    try:
        url = make_url(settings.runs_url)
    except ArgumentError as error:
        raise ConfigurationError(
            f"{PREFIX}RUNS_URL {settings.runs_url!r} is not a database URL: use sqlite:///FILE"
        ) from error
    if url.get_backend_name() != "sqlite" or not url.database:
        raise ConfigurationError(
            f"{PREFIX}RUNS_URL names {url.get_backend_name()}: this version keeps runs in SQLite "
            "only, use sqlite:///FILE"
        )
    return Path(url.database)


class ThreadIndex:
    """Reads and writes the list. `record` is for the event loop; the rest blocks."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """Open, and make the tables unless only to read; ConfigurationError when that fails.

        Any number of processes may open a new file at once.
        """
        self._path = path
        self._engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": 5.0})
        self._workers = Threads(8)
        try:
            if not read_only:
                with self._engine.begin() as connection:
                    for table in _metadata.sorted_tables:
                        connection.execute(CreateTable(table, if_not_exists=True))
                    first = _meta.insert().prefix_with("OR IGNORE")
                    connection.execute(first.values(key="schema_version", value=SCHEMA_VERSION))
            with self._engine.connect() as connection:
                version = connection.execute(
                    select(_meta.c.value).where(_meta.c.key == "schema_version")
                ).scalar()
        except SQLAlchemyError as error:
            reason = str(getattr(error, "orig", None) or error)
            broken = "not a database" in reason or "malformed" in reason
            advice = "move it away" if broken else "try again"
            raise ConfigurationError(
                f"cannot use the runs database {path}: {reason}; "
                f"{advice}, or choose another with {PREFIX}RUNS_URL"
            ) from error
        if version not in (None, SCHEMA_VERSION):
            raise ConfigurationError(
                f"the runs database {path} is of version {version}, this program reads version "
                f"{SCHEMA_VERSION}: use the program that wrote it, or another {PREFIX}RUNS_URL"
            )

    async def record(self, entry: ThreadEntry) -> None:
        """Note how a thread stands."""
        await self._workers.call(lambda: self._record(entry))

    def _record(self, entry: ThreadEntry) -> None:
        values = entry.model_dump()
        with self._engine.begin() as connection:
            known = connection.execute(
                _threads.update().where(_threads.c.thread_id == entry.thread_id).values(values)
            )
            if known.rowcount == 0:
                connection.execute(_threads.insert().values(values))

    def list(self) -> list[ThreadEntry]:
        """All threads, the latest first."""
        with self._engine.connect() as connection:
            rows = connection.execute(
                select(_threads).order_by(_threads.c.updated_at.desc(), _threads.c.thread_id)
            )
            return [ThreadEntry.model_validate(dict(row._mapping)) for row in rows]

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()
