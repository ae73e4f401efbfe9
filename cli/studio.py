"""`followup studio`: the LangGraph development server on this agent's graph."""

import importlib.util
import json
import os
import sys
from pathlib import Path

from followup_agent.service.errors import ConfigurationError
from followup_agent.service.home import make_home
from followup_agent.service.settings import PREFIX, load_settings

CONFIG = {"dependencies": ["."], "graphs": {"followup": "followup_agent.graph:graph"}}


def studio(*, port: int, open_browser: bool, home: Path | None) -> int:
    """Replace this process by the server. Works from any folder: it writes its own configuration."""
    if importlib.util.find_spec("langgraph_cli") is None or (
        importlib.util.find_spec("langgraph_api") is None
    ):
        raise ConfigurationError(
            "the development server is not installed: pip install 'followup-agent[studio]'"
        )
    settings = load_settings(home=home)
    folder = settings.home.resolve() / "studio"
    make_home(folder)
    config = folder / "langgraph.json"
    config.write_text(json.dumps(CONFIG, indent=2), encoding="utf-8")
    environment = {**os.environ, f"{PREFIX}HOME": str(settings.home.resolve())}
    arguments = [sys.executable, "-m", "langgraph_cli", "dev", "--config", str(config)]
    arguments += ["--port", str(port), "--no-reload"]
    if not open_browser:
        arguments.append("--no-browser")
    sys.stdout.flush()
    os.chdir(folder)
    os.execve(sys.executable, arguments, environment)  # noqa: S606 - our own interpreter
