"""`followup doctor`: each setting, where it came from, and what is wrong with the installation."""

import os
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dotenv import dotenv_values

from followup_agent.cli.output import console, print_json
from followup_agent.cli.start import OK, USAGE
from followup_agent.graph.context import utc_now
from followup_agent.judgement.policy import load_policy
from followup_agent.planners.methods import Methods
from followup_agent.planners.usage import load_prices
from followup_agent.runs.database import RunsDatabase, runs_url
from followup_agent.service.data import customer_database
from followup_agent.service.errors import ConfigurationError
from followup_agent.service.home import make_home
from followup_agent.service.settings import PREFIX, Settings, load_settings, shown_url
from followup_agent.service.wiring import choose_planner, endpoint_name, make_chat, uses_model

if TYPE_CHECKING:
    from rich.console import Console

    from followup_agent.planners.probe import Probe

SECRETS = ("OPENAI_API_KEY", "LANGSMITH_API_KEY")
FOREIGN = ("OPENAI_BASE_URL", *SECRETS)
"""Settings of the libraries that change what the agent does."""


def doctor(*, probe: bool, as_json: bool, home: Path | None) -> int:
    """Print settings and checks; exit 2 when something is wrong.

    `probe` sends the configured model six small requests, and remembers the output method.
    """
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
    found = _probe(settings, problems) if probe and settings is not None else None
    if as_json:
        document = {"ok": not problems, "settings": rows, "checks": checks, "problems": problems}
        if probe:
            document["probe"] = found.model_dump(mode="json") if found else None
        print_json(document)
        return USAGE if problems else OK
    out = console()
    out.print(f"Python {sys.version.split()[0]}")
    for row in rows:
        out.print(
            f"{row['name']:<32} {row['value'] if row['value'] is not None else '-':<28} {row['source']}"
        )
    for check in checks:
        out.print(f"{'ok ' if check['ok'] else 'BAD'}  {check['name']}: {check['message']}")
    if found is not None:
        _print_probe(out, found)
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
    if value and name == "OPENAI_BASE_URL":
        shown = shown_url(value)
    return {"name": name, "value": shown, "source": _source(name, dotenv), "description": None}


def _unknown_names(dotenv: dict[str, str | None]) -> list[str]:
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    present = sorted({*os.environ, *dotenv})
    return [
        f"{name} is no setting of this version: a misspelling? The names are listed above"
        for name in present
        if name.startswith(PREFIX) and name.upper() not in known and "_TEST_" not in name
    ]


def _probe(settings: Settings, problems: list[str]) -> "Probe | None":
    """What the configured model is found to do; None, and a problem, when none is."""
    if not uses_model(settings):
        problems.append(
            f"there is no model to probe: set OPENAI_API_KEY or OPENAI_BASE_URL, and {PREFIX}MODEL"
        )
        return None
    import asyncio

    from followup_agent.planners.forms import Forms
    from followup_agent.planners.probe import Probe, probe
    from followup_agent.tools import BUILT_IN
    from followup_agent.tools.registry import ToolRegistry

    async def run() -> Probe:
        chat = make_chat(settings)
        try:
            return await probe(chat, Forms(ToolRegistry(BUILT_IN)))
        finally:
            await chat.aclose()

    found = asyncio.run(run())
    if found.advised_method is None:
        problems.append(f"{found.endpoint} gave no usable decision by any output method")
    elif settings.output_method == "auto":
        Methods("auto", found.endpoint, settings.home, utc_now).remember(found.advised_method)
    return found


def _print_probe(out: "Console", found: "Probe") -> None:
    out.print(f"\n{found.endpoint}", style="bold")
    for one in found.methods:
        out.print(
            f"{one.method:<17} {one.result:<11} {one.milliseconds:>6} ms  {one.detail}",
            soft_wrap=True,
        )
    if found.advised_method is None:
        return
    out.print(f"{found.right} of {found.rounds} made-up rounds were decided sensibly")
    out.print(
        f"advised: {PREFIX}OUTPUT_METHOD={found.advised_method} {PREFIX}GUIDANCE={found.advised_guidance}"
    )


def _checks(settings: Settings) -> list[dict[str, Any]]:
    def home() -> str:
        make_home(settings.home)
        return f"{settings.home} can be written"

    def customers() -> str:
        database = customer_database(settings, load_policy(settings.policy))
        try:
            database.check()
        finally:
            database.close()
        return f"{database.name} has the four relations"

    def runs() -> str:
        with closing(RunsDatabase(runs_url(settings))) as database:
            return f"{database.name} can be used"

    def planner() -> str:
        chosen = choose_planner(settings).removeprefix("planner: ")
        if not uses_model(settings):
            return chosen
        load_prices(settings.prices)
        key = endpoint_name(settings)
        known = Methods(settings.output_method, key, settings.home, utc_now).known
        return f"{chosen}; output method: {known or 'found out by the first request'}"

    results = []
    for check in (home, customers, runs, planner):
        try:
            results.append({"name": check.__name__, "ok": True, "message": check()})
        except ConfigurationError as error:
            results.append({"name": check.__name__, "ok": False, "message": str(error)})
    return results
