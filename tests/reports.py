"""What tests have measured or counted: written by whichever process, printed at the end of all."""

from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "build" / "reports"


def report(name: str, lines: Iterable[str]) -> None:
    """Keep these lines for the end of the session."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name.replace(' ', '-')}.txt").write_text(
        "".join(f"{line}\n" for line in lines), encoding="utf-8"
    )
