"""The installed command, run as a user runs it."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from warm import Warm


@dataclass
class Result:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its document."""
        return json.loads(self.out)


Run = Callable[..., Result]


@pytest.fixture
def followup(tmp_path: Path, warm: Warm) -> Run:
    """Run `followup ARGS` in an empty folder with an empty home."""

    def run(*arguments: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> Result:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("FOLLOWUP_")
        }
        environment |= {"FOLLOWUP_HOME": str(tmp_path / "home"), **(env or {})}
        return Result(*warm.run(arguments, environment, cwd or tmp_path))

    return run
