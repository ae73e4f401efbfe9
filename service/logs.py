"""JSON logs: one event a line, UTF-8, every line readable by a strict JSON parser.

What has no JSON form is written in a documented one: times in ISO 8601, decimals as text, sets as
lists, bytes as base64, NaN and infinities as text, anything else by its `repr`. A value that cannot
be written, or a disk that is full, loses a line and never the run.
"""

import logging
import os
import re
import threading
import traceback
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from pydantic_core import to_json

_PRIVATE: Final = re.compile(
    r"(?<![\w.])(?:\+?86[\- ]?)?1[3-9][0-9](?:[\- ]?[0-9]{4}){2}(?!\w)"  # Chinese mobile numbers
    r"|\+[0-9]{1,3}[\- ]?(?:\(?[0-9]{2,4}\)?[\- ]?){2,4}[0-9]{2,4}"  # international numbers
    r"|[\w.+\-]+@[\w\-]+\.[\w.\-]+"  # e-mail addresses
)


def mask(text: str) -> str:
    """The text with phone numbers and e-mail addresses blacked out."""
    return _PRIVATE.sub("***", text)


def json_line(record: Mapping[str, Any]) -> bytes:
    """One masked JSON line; falls back to the bare event when a value cannot be written at all."""
    try:
        line = to_json(_clean(record), inf_nan_mode="strings", bytes_mode="base64", fallback=repr)
    except Exception as error:  # a hostile __repr__, a cycle: keep the event itself
        kept = {key: record.get(key) for key in ("timestamp", "eventName", "sessionId", "step")}
        kept["logError"] = type(error).__name__
        line = to_json(kept, fallback=lambda _: None)
    return line + b"\n"


def _clean(value: Any) -> Any:
    """Texts masked and free of broken Unicode; mappings with text keys; no empty fields."""
    if isinstance(value, str):
        return mask(value.encode("utf-8", "replace").decode("utf-8"))
    if isinstance(value, Mapping):
        return {
            _clean(str(key)): _clean(inner) for key, inner in value.items() if inner is not None
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [_clean(inner) for inner in value]
    if isinstance(value, BaseException):
        return _clean(f"{type(value).__name__}: {value}")
    return value


class JsonLog:
    """An event log on one file, or on stderr. Safe to share between threads and processes.

    Lines are written by a thread of the log's own, in order: a slow disk never holds up an event
    loop. `close` waits until they are written.
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
        self._path = path
        self._queue: SimpleQueue[tuple[Path | None, bytes] | None] = SimpleQueue()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.open("ab").close()
        self._writer = threading.Thread(target=self._write, daemon=True, name="followup-log")
        self._writer.start()

    def bind(self, fields: Mapping[str, Any]) -> None:
        """Set fields that every later event of this task carries, in its tools' threads too."""
        self._bound.set({**self._bound.get({}), **fields})

    def in_a_run(self) -> bool:
        """Whether the task, or the thread it started, belongs to a run of this log."""
        return bool(self._bound.get({}))

    def emit(self, event_name: str, /, **fields: Any) -> None:
        """Write one event. Never raises."""
        record = {
            "timestamp": self._clock().isoformat(),
            "eventName": event_name,
            **self._bound.get({}),
            **fields,
        }
        self._queue.put((self._path, json_line(record)))

    def error(self, error_id: str, error: BaseException) -> None:
        """Keep an error's traceback, masked, in `errors.log` under the id that the user was shown."""
        trace = mask("".join(traceback.format_exception(error))[-8000:])
        where = {key: value for key, value in self._bound.get({}).items() if key != "userGoal"}
        entry = f"--- error {error_id} at {self._clock().isoformat()} {where}\n{trace}"
        path = self._path and self._path.with_name("errors.log")
        self._queue.put((path, entry.encode("utf-8", "replace")))

    def attach(self) -> Callable[[], None]:
        """Take in what tools log with Python's `logging`; returns a function that ends it."""
        handler = LogHandler(self)
        root = logging.getLogger()
        root.addHandler(handler)
        return lambda: root.removeHandler(handler)

    def close(self, timeout_s: float = 5.0) -> None:
        """Write what is still queued and stop."""
        self._queue.put(None)
        self._writer.join(timeout_s)

    def _write(self) -> None:
        files: dict[Path | None, int] = {None: 2}
        while (entry := self._queue.get()) is not None:
            path, line = entry
            try:
                if path not in files and path is not None:
                    files[path] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                os.write(files[path], line)  # one write a line: O_APPEND keeps it whole
            except OSError:
                continue  # a full disk loses lines, never a run
        for path, descriptor in files.items():
            if path is not None:
                os.close(descriptor)


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
        except Exception:
            message = str(record.msg)
        self._log.emit(f"log.{record.levelname.lower()}", logger=record.name, message=message)
