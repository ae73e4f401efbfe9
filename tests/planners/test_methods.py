"""The output method is found out once for an endpoint and model, and remembered."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from followup_agent.planners.methods import FILE, Methods


def methods(setting: Any, folder: Path | None, key: str = "m at u") -> Methods:
    """Of one endpoint."""
    return Methods(setting, key, folder, lambda: datetime(2026, 3, 2, tzinfo=UTC))


def test_a_set_method_is_used_and_never_left(tmp_path: Path) -> None:
    own = methods("json_object", tmp_path)
    assert own.current == "json_object"
    assert not own.refused("json_object")
    own.proved("json_object")
    assert not (tmp_path / FILE).exists()


def test_auto_goes_from_the_strictest_to_none(tmp_path: Path) -> None:
    own = methods("auto", tmp_path)
    seen = [own.current]
    while own.refused(own.current):
        seen.append(own.current)
    assert seen == ["json_schema", "function_calling", "json_object", "prompt"]


def test_what_was_found_is_remembered_for_this_model_alone(tmp_path: Path) -> None:
    first = methods("auto", tmp_path)
    assert first.known is None
    first.refused("json_schema")
    first.refused("function_calling")
    first.proved("json_object")
    assert methods("auto", tmp_path).current == "json_object"
    assert methods("auto", tmp_path, "other at u").current == "json_schema"
    assert json.loads((tmp_path / FILE).read_text("utf-8"))["m at u"]["method"] == "json_object"


def test_a_server_that_has_changed_is_found_out_again(tmp_path: Path) -> None:
    methods("auto", tmp_path).proved("json_schema")
    later = methods("auto", tmp_path)
    assert later.refused("json_schema")
    assert later.current == "function_calling"
    later.proved("function_calling")
    assert methods("auto", tmp_path).current == "function_calling"


def test_a_broken_or_unwritable_memory_costs_nothing_but_the_memory(tmp_path: Path) -> None:
    for broken in ("", "[]", '{"m at u": 1}', '{"m at u": {"method": "telepathy"}}', "\x00"):
        (tmp_path / FILE).write_text(broken, "utf-8")
        own = methods("auto", tmp_path)
        assert own.current == "json_schema"
        own.proved("json_schema")
        assert own.current == "json_schema"
    gone = methods("auto", tmp_path / "no such folder")
    gone.proved("json_schema")
    assert gone.current == "json_schema"
