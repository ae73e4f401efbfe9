"""The scripted server, as a tool of its own."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from followup_agent.testing.openai_server import OpenAIServer, read_script

pytestmark = pytest.mark.slow
FINISH = {"type": "finish", "answer_draft": "", "reason": "enough"}
TOOL = {
    "type": "tool", "tool_name": "get_open_tickets", "args": {"user_id": "user_123"},
    "reason": "还没有查", "expected_outcome": "x",
}  # fmt: skip
FUNCTION = {
    "type": "function",
    "function": {"name": "get_open_tickets", "parameters": {"type": "object", "properties": {}}},
}


def post(server: OpenAIServer, **body: Any) -> httpx.Response:
    """One request."""
    message = {"role": "user", "content": "JSON 请"}
    return httpx.post(
        f"{server.url}/chat/completions",
        json={"model": "m", "messages": [message], **body},
        timeout=5,
    )


def message(answer: httpx.Response) -> Any:
    """Its message."""
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["message"]


def test_a_decision_comes_in_the_form_that_the_request_asks_for() -> None:
    with OpenAIServer([{"decision": TOOL, "times": 2}, {"decision": FINISH}]).running() as server:
        assert json.loads(message(post(server))["content"]) == {"decision": TOOL}
        call = message(post(server, tools=[FUNCTION]))["tool_calls"][0]["function"]
        assert call["name"] == "get_open_tickets"
        assert json.loads(call["arguments"]) == {
            "user_id": "user_123", "reason": "还没有查", "expected_outcome": "x",
        }  # fmt: skip
        assert json.loads(message(post(server))["content"]) == {"decision": FINISH}
        assert server.left == 0
        assert post(server).status_code == 500  # the script has run out
    assert len(server.requests) == 4


def test_replies_may_be_broken_in_each_way() -> None:
    replies = [
        {"text": "hm", "finish_reason": "length", "usage": "none"},
        {"message": {"role": "assistant", "content": None, "refusal": "no"}},
        {"tool_call": {"name": "x", "arguments": "{"}},
        {"raw": "<html>", "content_type": "text/html"},
        {"status": 429, "headers": {"retry-after": "7"}, "error": {"message": "slow"}},
        {"status": 500, "body": "plain"},
    ]
    with OpenAIServer(replies).running() as server:
        first = post(server).json()
        assert first["choices"][0]["finish_reason"] == "length"
        assert "usage" not in first
        assert message(post(server))["refusal"] == "no"
        assert message(post(server))["tool_calls"][0]["function"]["arguments"] == "{"
        assert post(server).text == "<html>"
        busy = post(server)
        assert (busy.status_code, busy.headers["retry-after"]) == (429, "7")
        assert busy.json()["error"]["message"] == "slow"
        assert post(server).text == "plain"


@pytest.mark.parametrize("reply", [{"close": True}, {"text": "x" * 100, "close": "mid"}])
def test_a_connection_may_break(reply: dict[str, Any]) -> None:
    with OpenAIServer([reply]).running() as server, pytest.raises(httpx.RemoteProtocolError):
        post(server)


def test_those_who_hang_are_let_go_when_the_server_is_closed() -> None:
    with OpenAIServer([{"hang": True}]).running() as server:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{server.url}/chat/completions", json={}, timeout=0.2)
        started = time.monotonic()
    assert time.monotonic() - started < 2


def test_a_reply_may_wait_for_its_request() -> None:
    replies = [{"text": "b", "when": "user_2"}, {"text": "a"}]
    with OpenAIServer(replies).running() as server:
        assert message(post(server))["content"] == "a"
        assert message(post(server, user="user_2"))["content"] == "b"


def test_methods_it_does_not_know_use_up_no_reply() -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "d", "schema": {}}}
    with OpenAIServer(
        [{"text": "ok"}], refuse=["json_schema", "function_calling"]
    ).running() as server:
        refused = post(server, response_format=schema)
        assert refused.status_code == 400
        assert "response_format" in refused.json()["error"]["message"]
        assert post(server, tools=[FUNCTION]).status_code == 400
        assert message(post(server))["content"] == "ok"


def test_strict_refuses_what_openai_does() -> None:
    form = {
        "type": "json_schema",
        "json_schema": {"name": "d", "strict": True, "schema": {"type": "object"}},
    }
    with OpenAIServer([{"text": "ok"}], strict=True).running() as server:
        assert "additionalProperties" in post(server, response_format=form).text
        assert (
            post(
                server, tools=[{**FUNCTION, "function": {**FUNCTION["function"], "strict": True}}]
            ).status_code
            == 400
        )  # type: ignore[dict-item]
        assert post(server).status_code == 200


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("replies:\n  - text: a\n    status: 400\n", "reply 1"),
        ("replies:\n  - text: a\n  - txt: b\n", "reply 2"),
        ("replys: []\n", "replys"),
        ("replies: [", "cannot be read"),
        (None, "cannot be read"),
    ],
)
def test_a_wrong_script_says_where_and_exits_with_2(
    text: str | None, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "script.yaml"
    if text is not None:
        path.write_text(text, "utf-8")
    with pytest.raises(ValueError, match=said):
        read_script(path)


def test_it_is_a_program_that_keeps_what_was_asked(tmp_path: Path) -> None:
    script, kept = tmp_path / "script.yaml", tmp_path / "asked.jsonl"
    script.write_text("replies:\n  - text: 你好\n", encoding="utf-8")
    command = [sys.executable, "-m", "followup_agent.testing.openai_server"]
    with subprocess.Popen(
        [*command, str(script), "--port", "0", "--record", str(kept)],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        answer = httpx.post(
            f"{url}/chat/completions", json={"messages": [{"content": "在吗"}]}, timeout=5
        )
        process.kill()
    assert message(answer)["content"] == "你好"
    assert "在吗" in kept.read_text("utf-8")
    script.write_text("replies: 7", encoding="utf-8")
    done = subprocess.run(
        [*command, str(script)], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
