"""The home folder."""

import tempfile
from pathlib import Path

from followup_agent.service.errors import ConfigurationError
from followup_agent.service.settings import PREFIX


def make_home(home: Path) -> None:
    """Make the folder if it is missing; ConfigurationError when it cannot be written."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=home).close()
    except OSError as error:
        raise ConfigurationError(
            f"cannot write to {home}: {error.strerror}; choose another folder with --home or "
            f"{PREFIX}HOME"
        ) from error
