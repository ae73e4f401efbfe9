"""What the commands print: one JSON document, or text for people."""

import json
import sys
from typing import Any

from rich.console import Console


def console(*, to_stderr: bool = False) -> Console:
    """Text for people: coloured on a terminal, plain elsewhere or with NO_COLOR, never wrapped."""
    return Console(stderr=to_stderr, highlight=False, soft_wrap=True, markup=False, emoji=False)


def print_json(document: Any) -> None:
    """One JSON document on stdout, Chinese as it is."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False) + "\n")


def notice(text: str) -> None:
    """A remark that is not part of the result."""
    sys.stderr.write(text + "\n")
