"""`followup threads` and `followup tools`: lists that need no graph."""

from contextlib import closing
from pathlib import Path
from typing import Any

from followup_agent.cli.output import console, print_json


def threads(*, as_json: bool, home: Path | None) -> int:
    """What ran, the latest first, and what waits."""
    from followup_agent.runs.database import RunsDatabase, runs_url
    from followup_agent.runs.index import ThreadIndex
    from followup_agent.service.settings import load_settings

    url = runs_url(load_settings(home=home))
    entries = []
    if url.get_backend_name() != "sqlite" or Path(str(url.database)).exists():
        with closing(RunsDatabase(url, read_only=True)) as database:
            entries = [] if database.is_new else ThreadIndex(database).entries()
    if as_json:
        print_json([entry.model_dump(mode="json") for entry in entries])
        return 0
    out = console()
    if not entries:
        out.print("No threads yet. Start one: followup ask GOAL")
    width = max((len(entry.thread_id) for entry in entries), default=0)
    for entry in entries:
        state = f"waits for {entry.waiting_for}" if entry.waiting_for else entry.status
        when = entry.updated_at.strftime("%Y-%m-%d %H:%M UTC")
        out.print(f"{entry.thread_id:<{width}}  {when}  {state:<18}  {entry.user_goal}")
    return 0


def tools(*, as_json: bool) -> int:
    """The built-in tools, as a planner sees them."""
    from followup_agent.tools import BUILT_IN

    if as_json:
        print_json(
            [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "effect": tool.effect,
                    "timeout_s": tool.timeout_s,
                    "max_attempts": tool.max_attempts,
                    "input_schema": tool.input_schema,
                }
                for tool in BUILT_IN
            ]
        )
        return 0
    out = console()
    for tool in BUILT_IN:
        note = "  (write: needs an approval)" if tool.effect == "write" else ""
        out.print(f"{tool.name}{note}", style="bold")
        out.print(f"  {tool.description}")
        schema: dict[str, Any] = dict(tool.input_schema)
        for name, inner in schema["properties"].items():
            mark = "" if name in schema.get("required", ()) else "?"
            out.print(f"    {name}{mark}: {inner['description']}")
    return 0
