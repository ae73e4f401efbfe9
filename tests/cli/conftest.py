"""The installed command, run as a user runs it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


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
def followup(tmp_path: Path) -> Run:
    """Run `followup ARGS` in an empty folder with an empty home."""

    def run(*arguments: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> Result:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("FOLLOWUP_")
        }
        environment |= {"FOLLOWUP_HOME": str(tmp_path / "home"), **(env or {})}
        done = subprocess.run(
            [sys.executable, "-m", "followup_agent.cli.start", *arguments],
            capture_output=True, env=environment, cwd=cwd or tmp_path, timeout=120, check=False,
        )  # fmt: skip
        return Result(done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8"))

    return run
