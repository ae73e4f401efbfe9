"""Bring the customer database in step with an export: all of it in one transaction, or nothing.

The rows are put into temporary tables first, which nobody else sees and nothing waits for. Then, in
one short transaction, what the export no longer has is removed, what differs is changed and what is
new is added; a relation that the export does not have is left as it is.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import (
    Column,
    Connection,
    Integer,
    MetaData,
    Table,
    and_,
    case,
    exists,
    func,
    inspect,
    literal,
    or_,
    select,
    union_all,
)
from sqlalchemy.exc import SQLAlchemyError

from followup_agent.customers.database import SQLITE_BEGIN, CustomerDatabase
from followup_agent.customers.tables import (
    READ_RELATIONS,
    customers,
    metadata,
)
from followup_agent.service.errors import CustomerDataError

Row = dict[str, Any]
CHUNK = 5000
SAMPLE_MARK = Table("followup_sample", MetaData(), Column("made_up", Integer))
"""A table that says that the data were made up, and may be replaced without a word."""
_ONE_IMPORT_AT_A_TIME = 4_201_337
"""The key of PostgreSQL's advisory lock; any number that nobody else uses."""


@dataclass
class Rows:
    """Rows of the four relations, by column name."""

    customers: list[Row] = field(default_factory=list)
    activity_events: list[Row] = field(default_factory=list)
    orders: list[Row] = field(default_factory=list)
    tickets: list[Row] = field(default_factory=list)

    def by_relation(self) -> dict[str, list[Row]]:
        """In the order they are written."""
        return {table.name: getattr(self, table.name) for table in READ_RELATIONS}

    def counts(self) -> dict[str, int]:
        """Relation to number of rows."""
        return {name: len(rows) for name, rows in self.by_relation().items()}


class Change(NamedTuple):
    """What an import did to one relation, in rows."""

    added: int
    changed: int
    removed: int


def replace_all(
    database: CustomerDatabase, rows: Rows, *, is_sample: bool, replace: bool = False
) -> dict[str, Change]:
    """Make the four relations what these rows are; see `load`."""
    return load(database, rows.by_relation(), is_sample=is_sample, replace=replace)


def load(
    database: CustomerDatabase,
    content: Mapping[str, Iterable[Row]],
    *,
    is_sample: bool,
    replace: bool = False,
    ready: Callable[[], None] = lambda: None,
) -> dict[str, Change]:
    """Make each relation in `content` what its rows are; the others, and follow-up tasks, are kept.

    `ready` is called when every row has been read and nothing was written yet: what it raises
    refuses all. Without `replace`, CustomerDataError where made-up data would replace others, or
    where an export would remove more than half of a relation. It also says when a relation is a
    view, and what the database refused. Nothing is half-written then.
    """
    with _new_file(database), _explained(database):
        _refuse_views(database)
        with database.engine.connect() as connection:
            try:
                staged = _stage(connection, content)
                ready()
                connection.commit()
                connection = connection.execution_options(**{SQLITE_BEGIN: "BEGIN IMMEDIATE"})
                with connection.begin():
                    return _apply(
                        database, connection, staged, is_sample=is_sample, replace=replace
                    )
            finally:
                connection.invalidate()  # closed, and its temporary tables gone with it


# --- staging ---


def _stage(connection: Connection, content: Mapping[str, Iterable[Row]]) -> dict[Table, Table]:
    """Each relation's rows in a temporary table."""
    staged = {}
    for table in READ_RELATIONS:
        if table.name in content:
            staged[table] = _temporary(connection, table)
            _insert(connection, staged[table], content[table.name])
    return staged


def _temporary(connection: Connection, table: Table) -> Table:
    columns = [
        Column(c.name, c.type, primary_key=c.primary_key, nullable=c.nullable) for c in table.c
    ]
    stage = Table(
        f"followup_new_{table.name}", MetaData(), *columns,
        prefixes=["TEMPORARY"], mysql_charset="utf8mb4", mysql_collate="utf8mb4_bin",
    )  # fmt: skip
    stage.create(connection)
    return stage


def _insert(connection: Connection, table: Table, rows: Iterable[Row]) -> None:
    iterator = iter(rows)
    if connection.dialect.driver == "psycopg":
        _copy(connection, table, iterator)
        return
    while chunk := list(islice(iterator, CHUNK)):
        connection.execute(table.insert(), chunk)


def _copy(connection: Connection, table: Table, rows: Iterator[Row]) -> None:
    """PostgreSQL's own way for many rows; ten times as fast as INSERT."""
    from psycopg import sql

    names = [column.name for column in table.columns]
    command = sql.SQL("COPY {} ({}) FROM STDIN").format(
        sql.Identifier(table.name), sql.SQL(", ").join(map(sql.Identifier, names))
    )
    raw: Any = connection.connection.driver_connection
    with raw.cursor() as cursor, cursor.copy(command) as copy:
        for row in rows:
            copy.write_row([row[name] for name in names])


# --- applying ---


def _apply(
    database: CustomerDatabase,
    connection: Connection,
    staged: Mapping[Table, Table],
    *,
    is_sample: bool,
    replace: bool,
) -> dict[str, Change]:
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_ONE_IMPORT_AT_A_TIME)))
    was_sample = inspect(connection).has_table(SAMPLE_MARK.name)
    metadata.create_all(connection)
    held = connection.execute(select(func.count()).select_from(customers)).scalar_one()
    if is_sample and held and not was_sample and not replace:
        raise CustomerDataError(
            f"{database.name} holds {held:,} customers already: add --replace to replace "
            "them (follow-up tasks are kept), or choose another --home"
        )
    if was_sample and not is_sample:
        if customers not in staged:
            raise CustomerDataError(
                f"{database.name} holds made-up customers: import your own customers first, or "
                "with these files"
            )
        for table in reversed(READ_RELATIONS):
            connection.execute(table.delete())
    free = replace or was_sample or is_sample
    changes = {
        table.name: (_by_key if table.primary_key.columns else _as_a_whole)(
            database, connection, table, stage, free=free
        )
        for table, stage in staged.items()
    }
    (SAMPLE_MARK.create if is_sample else SAMPLE_MARK.drop)(connection, checkfirst=True)
    return changes


def _by_key(
    database: CustomerDatabase, connection: Connection, table: Table, stage: Table, *, free: bool
) -> Change:
    """Remove, change and add rows by their key."""
    (key,) = table.primary_key.columns
    new_key = stage.c[key.name]
    gone = ~exists().where(new_key == key)
    removed = _count(connection, table, gone)
    _allow(database, table, removed, _count(connection, table), free=free)
    missing = ~exists().where(key == new_key)
    added = _count(connection, stage, missing)
    differs = or_(*(stage.c[c.name].is_distinct_from(c) for c in table.c if c is not key))
    changed = connection.execute(
        table.delete().where(exists().where(and_(new_key == key, differs)))
    ).rowcount
    connection.execute(table.delete().where(gone))
    names = [column.name for column in table.c]
    rows = select(*(stage.c[name] for name in names)).where(missing)
    connection.execute(table.insert().from_select(names, rows))
    return Change(added, changed, removed)


def _as_a_whole(
    database: CustomerDatabase, connection: Connection, table: Table, stage: Table, *, free: bool
) -> Change:
    """Rows without a key: equal ones are counted, and all are written anew if a count differs."""
    held = _count(connection, table)
    added, removed = (
        _difference(connection, stage, table) if held else (_count(connection, stage), 0)
    )
    if added or removed:
        _allow(database, table, removed, held, free=free)
        connection.execute(table.delete())
        names = [column.name for column in table.c]
        rows = select(*(stage.c[name] for name in names))
        connection.execute(table.insert().from_select(names, rows))
    return Change(added, 0, removed)


def _difference(connection: Connection, new: Table, old: Table) -> tuple[int, int]:
    """How many rows the new table has more than the old, and how many less; equal rows counted."""

    def signed(table: Table, sign: int) -> Any:
        return select(*table.c, literal(sign, Integer).label("n"))

    both = union_all(signed(new, 1), signed(old, -1)).subquery()
    columns = [both.c[column.name] for column in old.c]
    more = select(func.sum(both.c.n).label("n")).group_by(*columns).subquery().c.n
    added, removed = (
        func.coalesce(func.sum(case((sign * more > 0, sign * more), else_=0)), 0)
        for sign in (1, -1)
    )
    counts = connection.execute(select(added, removed)).one()
    return int(counts[0]), int(counts[1])


def _count(connection: Connection, table: Table, *where: Any) -> int:
    counted = select(func.count()).select_from(table).where(*where)
    return int(connection.execute(counted).scalar_one())


def _allow(
    database: CustomerDatabase, table: Table, removed: int, held: int, *, free: bool
) -> None:
    if not free and removed * 2 > held:
        raise CustomerDataError(
            f"{removed:,} of the {held:,} {table.name} in {database.name} are not in this export: "
            "is it a part of one? add --replace if it is all there is; nothing was changed"
        )


# --- what can go wrong ---


def _refuse_views(database: CustomerDatabase) -> None:
    views = {*inspect(database.engine).get_view_names()}
    own = [table.name for table in READ_RELATIONS if table.name in views]
    if own:
        raise CustomerDataError(
            f"{', '.join(own)} in {database.name} is a view: this is your own database, and "
            "nothing is loaded into it; point FOLLOWUP_CUSTOMERS_URL somewhere else"
        )


@contextmanager
def _new_file(database: CustomerDatabase) -> Iterator[None]:
    """Leave no empty database behind where there was none."""
    path = Path(database.url.database or "")
    is_new = database.is_file and not path.exists()
    try:
        yield
    except BaseException:
        if is_new:
            database.engine.dispose()
            for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
                path.with_name(name).unlink(missing_ok=True)
        raise


@contextmanager
def _explained(database: CustomerDatabase) -> Iterator[None]:
    try:
        database.use_wal()
        yield
    except SQLAlchemyError as error:
        raise CustomerDataError(f"{database.why(error)}; nothing was changed") from error
    except Exception as error:
        if _is_drivers(error):
            raise CustomerDataError(f"{database.why(error)}; nothing was changed") from error
        raise


def _is_drivers(error: Exception) -> bool:
    """Whether it is an error of the driver itself, which COPY raises as it is."""
    with suppress(ImportError):
        import psycopg

        return isinstance(error, psycopg.Error)
    return False
