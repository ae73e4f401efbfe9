"""Which output method an endpoint takes: as set, or found out once and remembered.

Found out by the first real request: the strictest method goes first, and the next one when the
server says that it does not know it. Nothing is sent only to find out (`followup doctor --probe`
does that), and what a model replies is no part of it.
"""

import json
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, get_args

from followup_agent.goals.limits import OutputMethod

METHODS: tuple[OutputMethod, ...] = get_args(OutputMethod)
FILE = "output_methods.json"
"""In the home: endpoint and model to method."""


class Methods:
    """The method of one endpoint and model. Safe to share."""

    def __init__(
        self,
        setting: OutputMethod | Literal["auto"],
        key: str,
        folder: Path | None,
        now: Callable[[], datetime],
    ) -> None:
        """`key` names endpoint and model; without a folder nothing outlives the process."""
        self.setting = setting
        self._key = key
        self._path = folder / FILE if folder is not None else None
        self._now = now
        self._lock = threading.Lock()
        self._refused: set[OutputMethod] = set()
        self._proved: OutputMethod | None = None if setting == "auto" else setting
        if setting == "auto":
            known = self._remembered().get(key)
            method = known.get("method") if isinstance(known, dict) else None
            self._proved = method if method in METHODS else None

    @property
    def current(self) -> OutputMethod:
        """The method to use now."""
        with self._lock:
            if self._proved is not None:
                return self._proved
            return next(method for method in METHODS if method not in self._refused)

    @property
    def known(self) -> OutputMethod | None:
        """The method as it is set or remembered; None while it is to be found out."""
        return self._proved

    def refused(self, method: OutputMethod) -> bool:
        """The server does not know this method. Whether there is another one to try."""
        with self._lock:
            if self.setting != "auto" or method == METHODS[-1]:
                return False
            self._refused.add(method)
            if self._proved == method:  # the server has changed since it was found out
                self._proved = None
            return True

    def proved(self, method: OutputMethod) -> None:
        """A decision came by this method: remember it, if it was to be found out."""
        with self._lock:
            if self.setting != "auto" or self._proved == method:
                return
            self._proved = method
        self.remember(method)

    def remember(self, method: OutputMethod) -> None:
        """Write it down; a home that cannot be written costs a request the next time, no more."""
        if self._path is None:
            return
        with suppress(OSError):
            known = self._remembered()
            known[self._key] = {"method": method, "found_at": self._now().isoformat()}
            part = self._path.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
            part.write_text(json.dumps(known, ensure_ascii=False, indent=1), encoding="utf-8")
            part.replace(self._path)

    def _remembered(self) -> dict[str, Any]:
        if self._path is None:
            return {}
        try:
            known = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}
