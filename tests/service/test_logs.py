"""The event log: strict JSON, UTF-8, masked, and never in the way."""

import enum
import json
import logging
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field
from support import NOW, Scripted, fill, finish, read_log, tool

from followup_agent import FollowupAgent, ToolArgs, ToolDefinition, ToolResult
from followup_agent.service.logs import JsonLog, LogHandler, json_line, mask

EVENTS = {
    "agent.step.started",
    "agent.decision.made",
    "agent.plan.failed",
    "agent.tool.succeeded",
    "agent.tool.empty",
    "agent.tool.failed",
    "agent.tool.blocked",
    "agent.interrupted",
    "agent.resumed",
    "agent.run.finished",
}


class Color(enum.Enum):
    """Something JSON has no form for."""

    RED = "red"


class Hostile:
    """Cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


def parsed(record: dict[str, Any]) -> dict[str, Any]:
    """The line, read back by a strict parser."""

    def refuse(constant: str) -> Any:
        raise ValueError(constant)

    line = json_line(record).decode()
    assert line.endswith("\n")
    assert line.count("\n") == 1
    document: dict[str, Any] = json.loads(line, parse_constant=refuse)
    return document


def test_odd_values_are_written_in_a_documented_form() -> None:
    """B33."""
    document = parsed(
        {
            "eventName": "x",
            "amount": Decimal("12.50"),
            "at": datetime(2026, 3, 2, tzinfo=UTC),
            "color": Color.RED,
            "nan": float("nan"),
            "infinity": float("inf"),
            "set": {1},
            "bytes": b"\xff",
            "error": ValueError("boo"),
            "tuple_key": {(1, 2): 3},
            "name": "args",
            "broken": "a\ud800b",
        }
    )
    assert document["amount"] == "12.50"
    assert document["at"] == "2026-03-02T00:00:00Z"
    assert document["color"] == "red"
    assert document["nan"] == "NaN"
    assert document["set"] == [1]
    assert document["name"] == "args"


def test_a_value_that_cannot_be_written_loses_itself_and_not_the_line() -> None:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    for value in (Hostile(), loop):
        document = parsed({"timestamp": "t", "eventName": "x", "step": 1, "value": value})
        assert document["eventName"] == "x"


@given(
    st.dictionaries(
        st.text(max_size=10),
        st.recursive(
            st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary()),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.text(max_size=5), inner, max_size=3)
            ),
            max_leaves=8,
        ),
        max_size=5,
    )
)
@settings(max_examples=150, deadline=None)
def test_any_record_is_one_strict_json_line(record: dict[str, Any]) -> None:
    parsed({"eventName": "x", **record})


@pytest.mark.parametrize(
    "text",
    [
        "13800000000",
        "订单13800000000失败",
        "+86 138 0013 8000",
        "call +1 (415) 555-0100 now",
        "写信给zhang.san@example.com吧",
    ],
)
def test_phone_numbers_and_addresses_are_masked_in_either_language(text: str) -> None:
    """B11."""
    masked = parsed({"eventName": "x", "error": {"message": text}, "count": 7})
    assert "***" in masked["error"]["message"]
    assert not any(part in masked["error"]["message"] for part in ("0000", "8000", "0100", "@"))
    assert masked["count"] == 7


@pytest.mark.parametrize(
    "text", ["user_123", "2026-03-01T23:30:00.123456+00:00", "O-000138", "近 7 天"]
)
def test_what_is_not_private_is_left_alone(text: str) -> None:
    assert mask(text) == text


def test_a_run_logs_exactly_the_contracts_events_and_fields(tmp_path: Path) -> None:
    fill(tmp_path / "customers.db").close()
    goal = "帮我判断 user_123 最近是否需要重点跟进"
    with FollowupAgent.open(home=tmp_path, clock=lambda: NOW) as agent:
        agent.ask(goal, thread_id="t")
        agent.ask("create a follow-up task for user_123", thread_id="w")
        agent.reject("w")
    raw = (tmp_path / "logs" / "followup.jsonl").read_text(encoding="utf-8")
    assert goal in raw  # B76: Chinese is never escaped
    assert "\\u" not in raw
    events = read_log(tmp_path / "logs" / "followup.jsonl")
    assert {event["eventName"] for event in events} <= EVENTS
    top = {
        "timestamp",
        "eventName",
        "sessionId",
        "runId",
        "step",
        "userGoal",
        "decision",
        "tool",
        "error",
        "state",
    }
    for event in events:
        assert set(event) <= top
        assert set(event.get("decision", {})) <= {"type", "toolName", "reason"}
        assert set(event.get("tool", {})) <= {"args", "durationMs", "success", "outcome"}
        assert set(event.get("error", {})) <= {"kind", "message"}
        assert event["state"]["status"] in ("running", "needs_input", "completed", "failed")
    assert [event["eventName"] for event in events if event["sessionId"] == "t"] == [
        *["agent.step.started", "agent.decision.made", "agent.tool.empty"] * 2,
        *["agent.step.started", "agent.decision.made", "agent.tool.succeeded"],
        *["agent.step.started", "agent.decision.made", "agent.run.finished"],
    ]


class Args(ToolArgs):
    """Whose."""

    user_id: str = Field(description="Customer id.")


class Result(ToolResult):
    """Nothing."""

    x: int = 1


def test_what_a_tool_logs_from_its_thread_carries_its_run(tmp_path: Path) -> None:
    """B67."""
    fill(tmp_path / "customers.db").close()

    def run(args: Args) -> Result:
        logging.getLogger("my.tool").warning("looked at %s", args.user_id)
        return Result()

    score = ToolDefinition(
        name="get_health_score", description="Return the health score.", args=Args, result=Result,
        run=run, effect="read",
    )  # fmt: skip
    planner = Scripted(tool("r", "get_health_score", user_id="user_123"), finish())
    with FollowupAgent.open(
        home=tmp_path, tools=[score], planner_object=planner, clock=lambda: NOW
    ) as agent:
        agent.ask("user_123 怎么样", thread_id="t")
        logging.getLogger("my.tool").warning("outside any run")
    lines = [e for e in read_log(tmp_path / "logs" / "followup.jsonl") if "logger" in e]
    assert [(e["sessionId"], e["step"], e["message"]) for e in lines] == [
        ("t", 1, "looked at user_123")
    ]


def test_a_run_ends_the_same_with_logging_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "customers.db").close()

    def full(*args: Any) -> int:
        raise OSError(28, "No space left on device")

    with FollowupAgent.open(home=tmp_path, clock=lambda: NOW) as agent:
        monkeypatch.setattr("followup_agent.service.logs.os.write", full)
        assert agent.ask("user_123 要跟进吗").status == "completed"
        monkeypatch.undo()


def test_the_log_can_go_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    log = JsonLog()
    log.emit("agent.step.started", state={"status": "running"})
    log.error("abc", ValueError("boo"))
    log.close()
    log.emit("agent.step.started")
    err = capfd.readouterr().err
    assert '"eventName":"agent.step.started"' in err
    assert "error abc" in err


def test_a_message_that_cannot_be_shown_does_not_reach_who_logged_it(tmp_path: Path) -> None:
    log = JsonLog(tmp_path / "followup.jsonl")
    log.bind({"sessionId": "t"})
    LogHandler(log).handle(logging.makeLogRecord({"msg": Hostile(), "name": "my.tool"}))
    log.close()
    (line,) = read_log(tmp_path / "followup.jsonl")
    assert line["message"] == "a message that cannot be shown: RuntimeError"


def test_a_thread_named_by_an_address_can_be_found_in_the_log() -> None:
    event = parsed({"eventName": "x", "sessionId": "a@example.com", "userGoal": "a@example.com"})
    assert (event["sessionId"], event["userGoal"]) == ("a@example.com", "***")
