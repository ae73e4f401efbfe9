"""JSON logs: one event a line, UTF-8, every line readable by a strict JSON parser.

What has no JSON form is written in a documented one: times in ISO 8601, decimals as text, sets as
lists, bytes as base64, NaN and infinities as text, anything else by its `repr`. A value that cannot
be written, or a disk that is full, loses a line and never the run.
"""

import logging
import os
import re
import stat
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pydantic_core import to_json

_MOBILE: Final = r"1(?<![A-Za-z0-9_.]1)[3-9][0-9](?:[\- ]?[0-9]{4}){2}(?![A-Za-z0-9_])"
"""Chinese mobile numbers."""
_INTERNATIONAL: Final = r"\+[0-9]{1,3}[\- ]?(?:\(?[0-9]{2,4}\)?[\- ]?){2,4}[0-9]{2,4}"
_PHONE: Final = re.compile(f"{_MOBILE}|{_INTERNATIONAL}")
# Apart, each begins with one literal character: a line without any is passed over three times as
# fast as by the two as alternatives.
_MOBILE_BYTES: Final = re.compile(_MOBILE.encode())
_INTERNATIONAL_BYTES: Final = re.compile(_INTERNATIONAL.encode())
_EMAIL: Final = re.compile(r"[A-Za-z0-9_.+\-]+@[A-Za-z0-9\-]+\.[A-Za-z0-9.\-]+")


def mask(text: str) -> str:
    """The text with phone numbers and e-mail addresses blacked out."""
    return _EMAIL.sub("***", _PHONE.sub("***", text)) if _is_private(text) else text


def _is_private(text: str) -> bool:
    return "@" in text or _PHONE.search(text) is not None


def json_line(record: Mapping[str, Any]) -> bytes:
    """One masked JSON line; falls back to the bare event when a value cannot be written at all."""
    try:
        line = _to_json(record)
        if b"@" in line or _MOBILE_BYTES.search(line) or _INTERNATIONAL_BYTES.search(line):
            line = _to_json(_masked_event(record))
    except Exception:
        line = _last_resort(record)
    return line + b"\n"


def _to_json(value: Any) -> bytes:
    return to_json(value, inf_nan_mode="strings", bytes_mode="base64", fallback=repr)


def _last_resort(record: Mapping[str, Any]) -> bytes:
    """Broken Unicode is mended; a hostile `repr` or a cycle keeps the event and loses the rest."""
    try:
        return _to_json(_masked_event(record))
    except Exception as error:
        kept = {key: record.get(key) for key in ("timestamp", "eventName", "sessionId", "step")}
        return to_json({**kept, "logError": type(error).__name__}, fallback=lambda _: None)


def _masked_event(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record masked, but for the ids one looks for: a thread may be named by an address."""
    kept = {key: record[key] for key in ("sessionId", "runId") if key in record}
    return {**_masked({key: value for key, value in record.items() if key not in kept}), **kept}


def _masked(value: Any) -> Any:
    """The value with every text in it masked and free of broken Unicode, numbers as they are."""
    if isinstance(value, str):
        return mask(value.encode("utf-8", "replace").decode("utf-8"))
    if isinstance(value, Mapping):
        return {_masked(str(key)): _masked(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_masked(inner) for inner in value]
    if value is None or isinstance(value, bool | int | float):
        return "***" if _PHONE.fullmatch(str(value)) else value
    return mask(_to_json(value).decode().strip('"'))


class JsonLog:
    """An event log on one file, or on stderr. Safe to share between threads and processes.

    Each line is one append to the page cache, of about a microsecond: cheaper than waking a thread
    for it, and kept when the process is killed. Descriptors do not block: a full pipe loses lines
    rather than hold up an event loop.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Append to `path`, made with its folder; stderr when None. OSError when it cannot be."""
        self._clock = clock
        self._bound: ContextVar[Mapping[str, Any]] = ContextVar("followup_log_fields")
        self._held: ContextVar[list[dict[str, Any]] | None] = ContextVar("followup_log_held")
        if path is None:
            self._events = self._errors = _open_stderr()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._events = _open_for_append(path)
            self._errors = _open_for_append(path.with_name("errors.log"))

    def bind(self, fields: Mapping[str, Any]) -> None:
        """Set fields that every later event of this task carries, in its tools' threads too."""
        self._bound.set({**self._bound.get(NOTHING), **fields})

    def in_a_run(self) -> bool:
        """Whether the task, or the thread it started, belongs to a run of this log."""
        return bool(self._bound.get(NOTHING))

    def emit(self, event_name: str, /, **fields: Any) -> None:
        """Write one event, or keep it while this task holds its events. Never raises."""
        event, held = self.event(event_name, **fields), self._held.get(None)
        if held is None:
            self.write((event,))
        else:
            held.append(event)

    def hold(self) -> list[dict[str, Any]]:
        """From now on keep what this task emits in this list, for `write`."""
        held: list[dict[str, Any]] = []
        self._held.set(held)
        return held

    def event(self, event_name: str, /, **fields: Any) -> dict[str, Any]:
        """The event as of now, with the fields bound to this task, to be written later."""
        record: dict[str, Any] = {"timestamp": self._clock().isoformat(), "eventName": event_name}
        record.update(self._bound.get(NOTHING))
        for name, value in fields.items():
            if value is not None:
                record[name] = value
        return record

    def write(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Write events. Never raises."""
        for record in events:
            with suppress(Exception):  # a full disk, a closed log: a run must not notice
                os.write(self._events, json_line(record))  # one write: O_APPEND keeps a line whole

    def error(self, error_id: str, error: BaseException) -> None:
        """Keep an error's traceback, masked, in `errors.log` under the id that the user was shown."""
        trace = mask("".join(traceback.format_exception(error))[-8000:])
        where = {key: value for key, value in self._bound.get(NOTHING).items() if key != "userGoal"}
        entry = f"--- error {error_id} at {self._clock().isoformat()} {where}\n{trace}"
        with suppress(OSError):
            os.write(self._errors, entry.encode("utf-8", "replace"))

    def attach(self) -> Callable[[], None]:
        """Take in what tools log with Python's `logging`; returns a function that ends it."""
        handler = LogHandler(self)
        root = logging.getLogger()
        root.addHandler(handler)
        return lambda: root.removeHandler(handler)

    def close(self) -> None:
        """Close the files; what is emitted afterwards is lost."""
        for descriptor in {self._events, self._errors}:
            with suppress(OSError):
                os.close(descriptor)
        self._events = self._errors = CLOSED


CLOSED: Final = -1
NOTHING: Final[Mapping[str, Any]] = {}


def _open_for_append(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o600)


def _open_stderr() -> int:
    """A description of our own for a terminal or a pipe, so that its other users still block; a
    file is shared as it is, offset included, or its writers would overwrite each other."""
    if stat.S_ISREG(os.fstat(2).st_mode):
        return os.dup(2)
    try:
        return os.open("/dev/stderr", os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
    except OSError:  # a socket, or no such device
        return os.dup(2)


class LogHandler(logging.Handler):
    """Python's `logging` into the same file: what a tool logs carries its run's fields."""

    def __init__(self, log: JsonLog) -> None:
        """Forward to this log, while a run of it is under way in the logging task."""
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """One event `log.<level>` with the logger's name and the message."""
        if not self._log.in_a_run():
            return
        try:
            message = record.getMessage()
        except Exception as error:
            message = f"a message that cannot be shown: {type(error).__name__}"
        level = f"log.{record.levelname.lower()}"  # at once: a tool that hangs has said so before
        self._log.write((self._log.event(level, logger=record.name, message=message),))
