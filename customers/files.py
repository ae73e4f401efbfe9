"""Open an export: CSV in the forms that systems and spreadsheets write, or Parquet.

A file is read from its beginning to its end and never held whole. What cannot be a table of rows at
all raises CustomerDataError; a row that is no row of the table is handed on as such.
"""

import codecs
import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple

from followup_agent.service.errors import CustomerDataError

MAX_CELL = 10_000_000
"""Characters of a cell, and of a line: what is longer is no table of customers."""
DELIMITERS = (",", ";", "\t", "|")
_CHUNK = 1 << 20
_BATCH = 10_000
_COMMON_CHINESE = 0.9
"""Share of the ideographs that GB2312 must hold: text of another 8-bit encoding, read as GB18030, is
full of rare ones."""
_KNOWN = {
    b"PK\x03\x04": "a spreadsheet or a zip archive: save the sheet as CSV",
    b"\xd0\xcf\x11\xe0": "an old spreadsheet: save the sheet as CSV",
    b"\x1f\x8b": "compressed: unpack it first",
    b"SQLite format 3\x00": "a SQLite database: point FOLLOWUP_CUSTOMERS_URL at it, with four views",
}


class Record(NamedTuple):
    """One row: its line (or number) and its cells, None where empty; or what is wrong with it."""

    line: int
    cells: Sequence[Any]
    fault: str = ""


@dataclass(frozen=True)
class Table:
    """The columns, and the rows; those are read once."""

    columns: list[str]
    rows: Iterator[Record]
    expected: int | None = None
    """About how many rows there will be; None when that cannot be told."""
    counts: Literal["line", "row"] = "line"
    """What the numbers of its records count."""


def open_table(path: Path, *, encoding: str | None = None, delimiter: str | None = None) -> Table:
    """The file as a table; CustomerDataError says why it is none, and what to do."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise CustomerDataError(
            f"{path} is a pipe or a device: save it as a file, it is read twice"
        )
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError as error:
        raise CustomerDataError(f"cannot read {path}: {error.strerror}") from error
    if not head:
        raise CustomerDataError(f"{path} is empty: the first line must name the columns")
    if head.startswith(b"PAR1"):
        return _parquet(path)
    for magic, what in _KNOWN.items():
        if head.startswith(magic):
            raise CustomerDataError(f"{path} is {what}")
    return _csv(path, encoding or _encoding_of(path), delimiter)


# --- CSV ---


def _csv(path: Path, encoding: str, delimiter: str | None) -> Table:
    delimiter = delimiter or _delimiter_of(path, encoding)
    rows = _csv_rows(path, encoding, delimiter)
    first = next(rows, None)
    if first is None:
        raise CustomerDataError(f"{path} is empty: the first line must name the columns")
    columns = _named_once(path, [cell.strip() for cell in first[1]])

    def records() -> Iterator[Record]:
        for line, row in rows:
            if len(row) == len(columns):
                yield Record(line, [cell or None for cell in row])
            else:
                fault = f"the first line names {len(columns)} columns, this one has {len(row)}"
                yield Record(line, row, fault)

    return Table(columns, records(), _expected_rows(path))


def _expected_rows(path: Path) -> int | None:
    """By the length of its first lines."""
    with path.open("rb") as file:
        head = file.read(_CHUNK)
    lines = head.count(b"\n")
    return round(path.stat().st_size * lines / len(head)) if lines else None


def _named_once(path: Path, columns: list[str]) -> list[str]:
    twice = sorted({name for name in columns if columns.count(name) > 1 or not name})
    if twice:
        raise CustomerDataError(
            f"{path}, line 1: column {twice[0]!r} is named twice, or not at all: "
            "the first line must name each column once"
        )
    return columns


def _lines(file: io.TextIOBase, path: Path) -> Iterator[str]:
    """The lines, none of which is ever held beyond what a line may have."""
    for number, line in enumerate(iter(lambda: file.readline(MAX_CELL + 1), ""), start=1):
        if len(line) > MAX_CELL:
            raise CustomerDataError(
                f"{path}, line {number} has more than {MAX_CELL:,} characters: this is no CSV file"
            )
        yield line


def _csv_rows(path: Path, encoding: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(MAX_CELL)
    begun = 1
    try:
        with path.open(encoding=encoding, newline="") as file:
            reader = csv.reader(_lines(file, path), strict=True, delimiter=delimiter)
            for row in reader:
                if row:
                    yield begun, row
                begun = reader.line_num + 1
    except OSError as error:
        raise CustomerDataError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeError as error:
        raise CustomerDataError(
            f"{path}, from line {begun}: this is not {encoding} text; --encoding names another, "
            "or save it as UTF-8"
        ) from error
    except csv.Error as error:
        raise CustomerDataError(f"{path}, from line {begun}, is not a CSV file: {error}") from error


def _delimiter_of(path: Path, encoding: str) -> str:
    """What parts the first line into most columns; a comma, where nothing does."""
    columns = {}
    for delimiter in DELIMITERS:
        first = next(_csv_rows(path, encoding, delimiter), (0, []))
        columns[delimiter] = len(first[1])
    return max(DELIMITERS, key=lambda delimiter: columns[delimiter])


def _encoding_of(path: Path) -> str:
    """UTF-8 where the whole file is; UTF-16 with its mark; else GB18030, where it reads as Chinese."""
    utf8 = codecs.getincrementaldecoder("utf-8")()
    is_utf8 = True
    line = 0  # bytes since the last line break
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                if file.tell() == len(chunk) and chunk[:2] in (b"\xff\xfe", b"\xfe\xff"):
                    return "utf-16"
                if b"\0" in chunk:
                    raise CustomerDataError(
                        f"{path} is a binary file: CSV text or Parquet is needed"
                    )
                end = chunk.rfind(b"\n")
                line = line + len(chunk) if end < 0 else len(chunk) - end
                if line > 4 * MAX_CELL:
                    break  # reading it says so
                if is_utf8:
                    try:
                        utf8.decode(chunk)
                    except UnicodeDecodeError:
                        is_utf8 = False
        if is_utf8:
            return "utf-8-sig"
        return _as_chinese(path)
    except OSError as error:
        raise CustomerDataError(f"cannot read {path}: {error.strerror}") from error


def _as_chinese(path: Path) -> str:
    """GB18030 (which GBK and GB2312 are part of), where the beginning is Chinese that is used."""
    decoder = codecs.getincrementaldecoder("gb18030")()
    with path.open("rb") as file:
        try:
            text = decoder.decode(file.read(_CHUNK))
        except UnicodeDecodeError:
            text = ""
    ideographs = [c for c in text if "\u3400" <= c <= "\u9fff" or c >= "\U00020000"]
    common = sum(1 for character in ideographs if _is_common(character))
    if not ideographs or common < _COMMON_CHINESE * len(ideographs):
        raise CustomerDataError(
            f"{path} is neither UTF-8 nor GB18030 text: save it as UTF-8, or name its encoding, "
            "e.g. --encoding cp1252"
        )
    return "gb18030"


def _is_common(character: str) -> bool:
    try:
        return len(character.encode("gb2312")) == 2
    except UnicodeEncodeError:
        return False


def known_encoding(name: str) -> str:
    """The name when it is an encoding's; ValueError when it is none."""
    try:
        codecs.lookup(name)
    except LookupError as error:
        raise ValueError(f"{name!r} is no encoding; write e.g. utf-8, gb18030, cp1252") from error
    return name


# --- Parquet ---


def _parquet(path: Path) -> Table:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise CustomerDataError(
            f"{path} is a Parquet file: pip install 'followup-agent[parquet]' reads it"
        ) from error
    try:
        file = parquet.ParquetFile(path)
    except (ArrowException, OSError) as error:
        raise CustomerDataError(f"{path} is a damaged Parquet file: {_first(error)}") from error
    columns = _named_once(path, list(file.schema_arrow.names))

    def records() -> Iterator[Record]:
        number = 0
        try:
            for batch in file.iter_batches(batch_size=_BATCH):
                for cells in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    number += 1
                    yield Record(number, [_plain(cell) for cell in cells])
        except (ArrowException, OSError) as error:
            raise CustomerDataError(
                f"{path}, after row {number}, is damaged: {_first(error)}"
            ) from error

    return Table(columns, records(), file.metadata.num_rows, "row")


def _first(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _plain(cell: Any) -> Any:
    """What a CSV cell would hold, but for numbers and times, which stay what they are."""
    if cell is None or cell == "":
        return None
    if isinstance(cell, bool):
        return str(cell).upper()
    if isinstance(cell, float) and cell.is_integer():
        return int(cell)  # an id that a column with gaps has made a float
    if isinstance(cell, str | int | float | datetime | date):
        return cell
    if isinstance(cell, Decimal):
        return float(cell)
    return str(cell)
