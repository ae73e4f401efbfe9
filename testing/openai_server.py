"""A scripted OpenAI-compatible server: replies in order, good ones and broken ones, and a record of
every request. For tests, and to try an agent against a model that does exactly what you say.

    python -m followup_agent.testing.openai_server script.yaml --port 8300
    OPENAI_BASE_URL=http://127.0.0.1:8300/v1  FOLLOWUP_MODEL=scripted

A script is YAML: `replies`, and what the server is like (`strict`, `latency_s`, `refuse`). A reply is
one of:

    decision: {type: finish, …}      in the form that the request asks for
    text: "…"                        as message content
    tool_call: {name, arguments}     as a function call; arguments as text or as an object
    message: {…}                     the message as it is
    raw: "…"                         the whole body, with status 200
    status: 429                      an error, with `error` or `body`, and `headers`
    hang: true                       no answer, until the client leaves
    close: true                      the connection is closed without an answer

and may have `finish_reason`, `usage`, `delay_s` (before it), `drip: {pieces, every_s}`, `close: mid`
(half of the body, then nothing), `times: N`, and `when: "…"` (only for a request with this text).
"""

import argparse
import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from typing_extensions import override

from followup_agent.testing.loopback import JsonHandler, LoopbackServer
from followup_agent.testing.strict_schema import request_problems

Method = Literal["json_schema", "function_calling", "json_object"]
KINDS = ("decision", "text", "tool_call", "tool_calls", "message", "raw", "status", "hang", "close")


class Drip(BaseModel):
    """The body in pieces."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pieces: int = Field(ge=1)
    every_s: float = Field(ge=0)


class Reply(BaseModel):
    """One reply of a script."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    decision: dict[str, Any] | None = None
    text: str | None = None
    tool_call: dict[str, Any] | None = None
    tool_calls: list[dict[str, Any]] | None = None
    message: dict[str, Any] | None = None
    raw: str | None = None
    status: int | None = Field(None, ge=400, le=599)
    hang: bool = False
    close: bool | Literal["mid"] = False
    error: dict[str, Any] | str | None = None
    body: str | None = None
    headers: dict[str, str] = {}
    content_type: str = "application/json"
    finish_reason: str | None = None
    usage: dict[str, int] | Literal["none"] | None = None
    """None: counted from the bytes; 'none': left out."""
    delay_s: float = Field(0.0, ge=0)
    drip: Drip | None = None
    times: int = Field(1, ge=1)
    when: str | None = None

    @model_validator(mode="after")
    def _is_one(self) -> "Reply":
        kinds = [kind for kind in KINDS if getattr(self, kind) not in (None, False, "mid")]
        if len(kinds) != 1:
            raise ValueError(f"a reply is exactly one of {', '.join(KINDS)}; here: {kinds}")
        return self


Scripted = Reply | Mapping[str, Any] | Callable[[dict[str, Any]], Any]
"""A reply, the fields of one, or a function of the request's body that returns one."""
RUN_OUT = Reply(status=500, error={"message": "the script has run out of replies"})


class OpenAIServer(LoopbackServer):
    """The server. `requests` holds each request: path, headers, body, time."""

    daemon_threads = True

    def __init__(
        self,
        replies: Iterable[Scripted] = (),
        *,
        port: int = 0,
        strict: bool = False,
        latency_s: float = 0.0,
        refuse: Collection[Method] = (),
        refuse_status: int = 400,
        then: Scripted = RUN_OUT,
        on_request: Callable[[dict[str, Any]], None] = lambda request: None,
    ) -> None:
        """Listen on 127.0.0.1.

        `strict` refuses what OpenAI's strict mode does; `refuse` are output methods that it does
        not know, answered with `refuse_status`; `then` is given when the script has run out.
        """
        super().__init__(port, _Handler)
        self._left = [[_as_reply(reply), _times(reply)] for reply in replies]
        self._then = _as_reply(then)
        self.strict = strict
        self.latency_s = latency_s
        self.refuse = frozenset(refuse)
        self.refuse_status = refuse_status
        self.requests: list[dict[str, Any]] = []
        self.connections = 0
        self.in_flight = self.most_in_flight = 0
        self.closing = threading.Event()
        self._on_request = on_request

    @property
    def url(self) -> str:
        """For OPENAI_BASE_URL."""
        return f"{self.address}/v1"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The requests' bodies, in order."""
        return [request["body"] for request in self.requests]

    @property
    def left(self) -> int:
        """Replies of the script that nobody has asked for."""
        return sum(int(times) for reply, times in self._left if not callable(reply))

    @override
    def shutdown(self) -> None:
        """Stop serving; those who were left hanging are let go."""
        self.closing.set()
        super().shutdown()

    def next_reply(self, request: dict[str, Any]) -> Reply:
        """What this request is answered with; a refused one uses up no reply of the script."""
        with self.lock:
            self.requests.append(request)
            self._on_request(request)
            refusal = self._refusal(request["body"])
            return refusal or self._scripted(request)

    def _scripted(self, request: dict[str, Any]) -> Reply:
        text = json.dumps(request["body"], ensure_ascii=False)
        for entry in self._left:
            reply = entry[0]
            if callable(reply):
                return _called(reply, request["body"])
            if entry[1] > 0 and (reply.when is None or reply.when in text):
                entry[1] -= 1
                given: Reply = reply
                return given
        return _called(self._then, request["body"]) if callable(self._then) else self._then

    def _refusal(self, body: Mapping[str, Any]) -> Reply | None:
        form = (body.get("response_format") or {}).get("type")
        method = "function_calling" if body.get("tools") else form
        if method in self.refuse:
            status = self.refuse_status
            param = "tool_choice" if method == "function_calling" else "response_format"
            said = (  # as llama-cpp-python, and as DeepSeek
                f"[{{'type': 'literal_error', 'loc': ('body', '{param}', 'type'), "
                "'msg': \"Input should be 'text' or 'json_object'\"}]"
                if status >= 500
                else f"This {param} type is unavailable now"
            )
            return Reply(status=status, error={"message": said, "param": param})
        if self.strict and (wrong := request_problems(body)):
            message = f"Invalid request: {'; '.join(wrong[:5])}"
            return Reply(status=400, error={"message": message, "param": None})
        return None


def _as_reply(reply: Scripted) -> Any:
    if isinstance(reply, Reply) or callable(reply):
        return reply
    return Reply.model_validate(reply)


def _times(reply: Scripted) -> int:
    made = _as_reply(reply)
    return made.times if isinstance(made, Reply) else 1


def _called(reply: Callable[[dict[str, Any]], Any], body: dict[str, Any]) -> Reply:
    made = _as_reply(reply(body))
    assert isinstance(made, Reply)  # noqa: S101 - a function returns a reply
    return made


class _Handler(JsonHandler):
    server: OpenAIServer

    @override
    def setup(self) -> None:
        super().setup()
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self.server.lock:
            self.server.connections += 1

    def do_GET(self) -> None:
        if self.path.endswith("/models"):
            self.answer(200, {"object": "list", "data": [{"id": "scripted", "object": "model"}]})
        else:
            self.answer(404, _error("no such path"))

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self.path.endswith("/chat/completions"):
            self.answer(404, _error("no such path"))
            return
        try:
            body = json.loads(raw)
        except ValueError:
            self.answer(400, _error("the body is no JSON"))
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = {"path": self.path, "headers": headers, "body": body, "at": time.monotonic()}
        with self.server.lock:
            self.server.in_flight += 1
            self.server.most_in_flight = max(self.server.most_in_flight, self.server.in_flight)
        try:
            with suppress(ConnectionError, BrokenPipeError):  # the client has left
                self._give(self.server.next_reply(request), body, len(raw))
        finally:
            with self.server.lock:
                self.server.in_flight -= 1

    def _give(self, reply: Reply, body: Mapping[str, Any], size: int) -> None:
        if wait_s := reply.delay_s + (self.server.latency_s if reply.status is None else 0.0):
            self.server.closing.wait(wait_s)
        if reply.hang:
            self._until_the_client_leaves()
            return
        if reply.close is True:
            self.close_connection = True
            return
        if reply.status is not None:
            document = reply.error if isinstance(reply.error, Mapping) else {}
            text = reply.body if reply.body is not None else json.dumps(_error(**document))
            if isinstance(reply.error, str):
                text = json.dumps({"error": reply.error})
            self._send(reply.status, text, reply)
            return
        text = reply.raw if reply.raw is not None else json.dumps(_completion(reply, body, size))
        self._send(200, text, reply)

    def _send(self, status: int, text: str, reply: Reply) -> None:
        content = text.encode("utf-8", "surrogatepass")
        self.send_response_only(status)
        if "date" not in map(str.lower, reply.headers):
            self.send_header("Date", self.date_time_string())
        self.send_header("Content-Type", reply.content_type)
        self.send_header("Content-Length", str(len(content)))
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if reply.close == "mid":
            self.wfile.write(content[: len(content) // 2])
            self.close_connection = True
        elif reply.drip is not None:
            step = -(-len(content) // reply.drip.pieces)
            for start in range(0, len(content), step):
                self.wfile.write(content[start : start + step])
                self.wfile.flush()
                if self.server.closing.wait(reply.drip.every_s):
                    return
        else:
            self.wfile.write(content)

    def _until_the_client_leaves(self) -> None:
        self.close_connection = True
        self.request.settimeout(0.05)
        while not self.server.closing.is_set():
            try:
                if not self.request.recv(1):
                    return
            except TimeoutError:
                continue


def _error(message: str = "", **more: Any) -> dict[str, Any]:
    kind = {"type": "invalid_request_error", "param": None, "code": None}
    return {"error": {"message": message, **kind, **more}}


def _completion(reply: Reply, body: Mapping[str, Any], size: int) -> dict[str, Any]:
    """A chat completion as OpenAI sends it."""
    message = _message(reply, body)
    calls = bool(message.get("tool_calls"))
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": reply.finish_reason or ("tool_calls" if calls else "stop"),
        "logprobs": None,
    }
    document: dict[str, Any] = {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": body.get("model", "scripted"),
        "choices": [choice],
    }
    if reply.usage != "none":
        own = reply.usage or {}
        prompt = own.get("prompt_tokens", size // 4)
        output = own.get("completion_tokens", len(json.dumps(message)) // 4)
        document["usage"] = {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "total_tokens": prompt + output,
            "prompt_tokens_details": {"cached_tokens": own.get("cached_tokens", 0)},
        }
    return document


def _message(reply: Reply, body: Mapping[str, Any]) -> dict[str, Any]:
    if reply.message is not None:
        return reply.message
    if reply.text is not None:
        return {"role": "assistant", "content": reply.text, "refusal": None}
    calls = reply.tool_calls or ([reply.tool_call] if reply.tool_call else None)
    if calls is None and body.get("tools"):
        calls = [_as_call(reply.decision or {})]
    if calls is None:
        text = json.dumps({"decision": reply.decision}, ensure_ascii=False)
        return {"role": "assistant", "content": text, "refusal": None}
    return {"role": "assistant", "content": None, "tool_calls": [_call(call) for call in calls]}


def _as_call(decision: Mapping[str, Any]) -> dict[str, Any]:
    """The function call that a decision is."""
    rest = {
        key: value for key, value in decision.items() if key not in ("type", "tool_name", "args")
    }
    if decision.get("type") != "tool":
        return {"name": decision.get("type"), "arguments": rest}
    return {"name": decision["tool_name"], "arguments": {**rest, **decision["args"]}}


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    function = {"name": call.get("name"), "arguments": text}
    return {"id": call.get("id", "call_1"), "type": "function", "function": function}


class Script(BaseModel):
    """A script file."""

    model_config = ConfigDict(extra="forbid")

    replies: list[Reply] = []
    strict: bool = False
    latency_s: float = Field(0.0, ge=0)
    refuse: list[Method] = []
    refuse_status: int = Field(400, ge=400, le=599)


def read_script(path: Path) -> Script:
    """The script; ValueError in one line for what is none."""
    try:
        import yaml
    except ImportError as error:
        raise ValueError("scripts need PyYAML: pip install 'followup-agent[evals]'") from error
    try:
        return Script.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")) or {})
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        loc: Sequence[Any] = first["loc"]
        where = f"reply {loc[1] + 1}" if loc[:1] == ("replies",) and len(loc) > 1 else str(loc[:1])
        inner = ".".join(map(str, loc[2:]))
        raise ValueError(f"{path}, {where} {inner}: {first['msg']}") from error


def main() -> int:
    """Serve until interrupted; 2 for a script that cannot be read."""
    parser = argparse.ArgumentParser(description="A scripted OpenAI-compatible server.")
    parser.add_argument("script", type=Path)
    parser.add_argument("--port", type=int, default=8300)
    parser.add_argument(
        "--record", type=Path, help="append each request to this file, as JSON lines"
    )
    parser.add_argument(
        "--strict", action="store_true", help="refuse what OpenAI's strict mode does"
    )
    options = parser.parse_args()
    try:
        script = read_script(options.script)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2

    def record(request: dict[str, Any]) -> None:
        if options.record is not None:
            with options.record.open("a", encoding="utf-8") as file:
                file.write(json.dumps(request["body"], ensure_ascii=False) + "\n")

    server = OpenAIServer(
        script.replies,
        port=options.port,
        strict=script.strict or options.strict,
        latency_s=script.latency_s,
        refuse=script.refuse,
        refuse_status=script.refuse_status,
        on_request=record,
    )
    sys.stdout.write(f"{server.url}\n")
    sys.stdout.flush()
    with suppress(KeyboardInterrupt):
        server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
