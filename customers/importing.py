"""Import an export: read its files, check every row, and bring the database in step with it."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from followup_agent.customers.database import CustomerDatabase
from followup_agent.customers.files import Table, open_table
from followup_agent.customers.load import Change, Row, load
from followup_agent.customers.mapping import MappingFile, Watch, mapped_tables
from followup_agent.customers.rows import (
    RELATIONS,
    Problem,
    Reading,
    Rejects,
    Source,
    require_columns,
    typed_rows,
)
from followup_agent.customers.tables import customers
from followup_agent.service.errors import CustomerDataError


@dataclass(frozen=True)
class Export:
    """What is imported: a file for each relation, or a mapping and the folder of its files."""

    files: Mapping[str, Path] = field(default_factory=dict)
    mapping: tuple[MappingFile, Path] | None = None
    """The mapping, and the file it was read from."""
    folder: Path | None = None
    """Where the mapping's files are; beside it by default."""
    reading: Reading = field(default_factory=Reading)
    encoding: str | None = None
    delimiter: str | None = None


@dataclass(frozen=True)
class Imported:
    """What came of it."""

    rows: dict[str, int]
    """Relation to the good rows of the export."""
    changes: dict[str, Change]
    rejected: int
    problems: list[Problem]
    """Of the first rejected rows."""


def import_export(
    database: CustomerDatabase,
    export: Export,
    *,
    rejects: Path | None = None,
    strict: bool = False,
    replace_held: bool = False,
    watch: Watch = lambda _, table: table,
) -> Imported:
    """Read, check and load; CustomerDataError when nothing was changed, and why.

    A bad row is left out, and told; with `strict` it refuses all. `watch(name, table)` sees the rows
    of every file and relation go by.
    """
    counts: dict[str, int] = {}
    with Rejects(rejects) as rejected, _tables(export, rejected, watch) as tables:
        known = set() if "customers" in tables else _known_customers(database)
        for relation, (table, source) in tables.items():
            require_columns(relation, table, source)
        content = {
            relation: _counted(
                counts,
                relation,
                typed_rows(
                    relation, watch(relation, table), source, export.reading, rejected, known
                ),
            )
            for relation, (table, source) in tables.items()
        }

        def ready() -> None:
            if strict and rejected.total:
                raise CustomerDataError(
                    f"{rejected.total:,} bad rows, and --strict: nothing was changed; the first is "
                    f"{rejected.shown[0]}"
                )

        changes = load(database, content, is_sample=False, replace=replace_held, ready=ready)
        return Imported(counts, changes, rejected.total, rejected.shown)


def _tables(
    export: Export, rejects: Rejects, watch: Watch
) -> AbstractContextManager[Mapping[str, tuple[Table, Source]]]:
    """The relations' tables, and where each comes from."""
    if export.mapping is not None:
        mapping, path = export.mapping
        return mapped_tables(mapping, path, export.folder or path.parent, rejects, watch)
    opened = {
        relation: open_table(
            export.files[relation], encoding=export.encoding, delimiter=export.delimiter
        )
        for relation in RELATIONS
        if relation in export.files
    }
    return nullcontext(
        {
            relation: (table, Source(str(export.files[relation]), table.counts))
            for relation, table in opened.items()
        }
    )


def _counted(counts: dict[str, int], relation: str, rows: Iterable[Row]) -> Iterator[Row]:
    counts[relation] = 0
    for row in rows:
        counts[relation] += 1
        yield row


def _known_customers(database: CustomerDatabase) -> set[str]:
    """The customers there are, when the export has none of its own."""
    database.require()
    try:
        with database.reader.connect() as connection:
            return {str(i) for i in connection.execute(select(customers.c.customer_id)).scalars()}
    except SQLAlchemyError as error:
        raise CustomerDataError(database.why(error)) from error
