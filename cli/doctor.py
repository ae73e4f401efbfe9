"""`followup doctor`: each setting, where it came from, and what is wrong with the installation."""

import os
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from dotenv import dotenv_values

from followup_agent.cli.output import console, print_json
from followup_agent.cli.start import OK, USAGE
from followup_agent.customers.database import CustomerDatabase
from followup_agent.runs.database import RunsDatabase, runs_url
from followup_agent.service.errors import ConfigurationError
from followup_agent.service.home import make_home
from followup_agent.service.settings import PREFIX, Settings, load_settings

SECRETS = ("OPENAI_API_KEY", "LANGSMITH_API_KEY")
FOREIGN = ("OPENAI_BASE_URL", *SECRETS)
"""Settings of the libraries that change what the agent does."""


def doctor(*, as_json: bool, home: Path | None) -> int:
    """Print settings and checks; exit 2 when something is wrong."""
    dotenv = _dotenv()
    given: dict[str, Any] = {"home": home} if home is not None else {}
    try:
        settings: Settings | None = load_settings(**given)
        problems: list[str] = []
    except ConfigurationError as error:
        settings, problems = None, [str(error)]
    rows = [_setting(name, settings, given, dotenv) for name in Settings.model_fields]
    rows += [_foreign(name, dotenv) for name in FOREIGN]
    problems += _unknown_names(dotenv)
    checks = [] if settings is None else _checks(settings)
    problems += [check["message"] for check in checks if not check["ok"]]
    if as_json:
        print_json({"ok": not problems, "settings": rows, "checks": checks, "problems": problems})
        return USAGE if problems else OK
    out = console()
    out.print(f"Python {sys.version.split()[0]}")
    for row in rows:
        out.print(
            f"{row['name']:<32} {row['value'] if row['value'] is not None else '-':<28} {row['source']}"
        )
    for check in checks:
        out.print(f"{'ok ' if check['ok'] else 'BAD'}  {check['name']}: {check['message']}")
    for problem in problems:
        out.print(f"problem: {problem}", style="red")
    return USAGE if problems else OK


def _dotenv() -> dict[str, str | None]:
    try:
        return dict(dotenv_values(".env")) if Path(".env").is_file() else {}
    except UnicodeDecodeError:
        return {}


def _source(variable: str, dotenv: dict[str, str | None]) -> str:
    if os.environ.get(variable):
        return "environment"
    return ".env" if dotenv.get(variable) else "default"


def _setting(
    name: str, settings: Settings | None, given: dict[str, Any], dotenv: dict[str, str | None]
) -> dict[str, Any]:
    variable = f"{PREFIX}{name.upper()}"
    source = "option" if name in given else _source(variable, dotenv)
    value = getattr(settings, name) if settings is not None else os.environ.get(variable)
    if value is None and settings is not None and name == "customers_url":
        value = settings.customers_database_url
    if value is None and settings is not None and name == "runs_url":
        value = runs_url(settings).render_as_string(hide_password=False)
    shown = (
        None if value is None else _masked_url(str(value)) if name.endswith("_url") else str(value)
    )
    return {
        "name": variable,
        "value": shown,
        "source": source,
        "description": Settings.model_fields[name].description,
    }


def _masked_url(url: str) -> str:
    """The URL without its password."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return "***"


def _foreign(name: str, dotenv: dict[str, str | None]) -> dict[str, Any]:
    value = os.environ.get(name) or dotenv.get(name)
    shown = "***" if value and name in SECRETS else value
    return {"name": name, "value": shown, "source": _source(name, dotenv), "description": None}


def _unknown_names(dotenv: dict[str, str | None]) -> list[str]:
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    present = sorted({*os.environ, *dotenv})
    return [
        f"{name} is no setting of this version: a misspelling? The names are listed above"
        for name in present
        if name.startswith(PREFIX) and name.upper() not in known and "_TEST_" not in name
    ]


def _checks(settings: Settings) -> list[dict[str, Any]]:
    def home() -> str:
        make_home(settings.home)
        return f"{settings.home} can be written"

    def customers() -> str:
        database = CustomerDatabase(settings.customers_database_url)
        try:
            database.check()
        finally:
            database.close()
        return f"{database.name} has the four relations"

    def runs() -> str:
        with closing(RunsDatabase(runs_url(settings))) as database:
            return f"{database.name} can be used"

    def planner() -> str:
        if settings.planner == "llm" or (settings.planner == "auto" and settings.model_configured):
            raise ConfigurationError(
                f"this version has no model planner yet: set {PREFIX}PLANNER=rules"
            )
        return "the built-in rules decide"

    results = []
    for check in (home, customers, runs, planner):
        try:
            results.append({"name": check.__name__, "ok": True, "message": check()})
        except ConfigurationError as error:
            results.append({"name": check.__name__, "ok": False, "message": str(error)})
    return results
