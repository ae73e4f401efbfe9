"""A small LangSmith API, in memory: the endpoints that the `langsmith` client uses for datasets,
experiments, traces and feedback. For tests, and to try `followup eval` without an account.

    python -m followup_agent.testing.langsmith_server --port 8200
    LANGSMITH_ENDPOINT=http://127.0.0.1:8200  LANGSMITH_API_KEY=anything

It stores what it gets in plain attributes, and answers 404 to anything it does not know.
"""

import argparse
import json
import re
import sys
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any
from urllib.parse import parse_qs, urlsplit

from followup_agent.testing.loopback import JsonHandler, LoopbackServer

Item = dict[str, Any]
INFO: Item = {
    "version": "0.16.0",
    "instance_flags": {
        "dataset_examples_multipart_enabled": True,
        "zstd_compression_enabled": True,
    },
    "batch_ingest_config": {
        "use_multipart_endpoint": True,
        "scale_up_qsize_trigger": 1000,
        "scale_up_nthreads_limit": 1,
        "scale_down_nempty_trigger": 4,
        "size_limit": 100,
        "size_limit_bytes": 20_000_000,
    },
}
TENANT = str(uuid.UUID(int=1))


class NotThere(Exception):
    """404."""


class LangSmithServer(LoopbackServer):
    """The server. Everything is kept by id; `requests` lists method and path of every request."""

    def __init__(self, port: int = 0, *, api_key: str | None = None) -> None:
        """Listen on 127.0.0.1; any key will do when none is named."""
        super().__init__(port, _Handler)
        self.api_key = api_key
        self.refuse: dict[str, int] = {}
        """Path to the HTTP status that it is answered with instead."""
        self.datasets: dict[str, Item] = {}
        self.examples: dict[str, Item] = {}
        self.sessions: dict[str, Item] = {}
        """Projects; an experiment is one with a `reference_dataset_id`."""
        self.runs: dict[str, Item] = {}
        self.feedback: dict[str, Item] = {}
        self.requests: list[tuple[str, str]] = []
        self.put_session({"name": "default"})  # as every workspace has: the client looks for one

    @property
    def url(self) -> str:
        """For LANGSMITH_ENDPOINT."""
        return self.address

    def writes(self) -> list[tuple[str, str]]:
        """The requests that changed, or were to change, something."""
        reading = ("/runs/query", "/api/v2/runs/query")
        return [(m, p) for m, p in self.requests if m != "GET" and p not in reading]

    # --- what is kept ---

    def put_dataset(self, body: Item) -> Item:
        """A new dataset; ValueError for a name that is taken."""
        if any(known["name"] == body["name"] for known in self.datasets.values()):
            raise ValueError("a dataset of this name exists")
        dataset = {"id": str(uuid.uuid4()), "tenant_id": TENANT, "created_at": _now(), **body}
        self.datasets[dataset["id"]] = dataset
        return dataset

    def put_examples(self, dataset_id: str, parts: dict[str, Any], *, new: bool) -> Item:
        """Examples as the multipart form has them: `{id}`, `{id}.inputs`, `{id}.outputs`."""
        ids = [name for name in parts if "." not in name]
        for example_id in ids:
            known = self.examples.get(example_id)
            if new and known is not None:
                raise ValueError(f"example {example_id} exists")
            if not new and known is None:
                raise NotThere(example_id)
            example = known or {"id": example_id, "dataset_id": dataset_id, "created_at": _now()}
            changed = dict(parts[example_id])
            metadata = dict(changed.pop("metadata", None) or example.get("metadata") or {})
            if "split" in changed:
                split = changed.pop("split")
                metadata["dataset_split"] = [split] if isinstance(split, str) else split
            for field in ("inputs", "outputs"):
                if f"{example_id}.{field}" in parts:
                    example[field] = parts[f"{example_id}.{field}"]
            example |= {**changed, "metadata": metadata, "modified_at": _now()}
            self.examples[example_id] = example
        return {"count": len(ids), "example_ids": ids}

    def examples_of(self, query: dict[str, list[str]]) -> list[Item]:
        """Those of a dataset, of some ids, of some splits."""
        found = list(self.examples.values())
        if "dataset" in query:
            found = [e for e in found if e["dataset_id"] == query["dataset"][0]]
        if "id" in query:
            found = [e for e in found if e["id"] in query["id"]]
        if "splits" in query:
            wanted = set(query["splits"])
            found = [e for e in found if wanted & set(e["metadata"].get("dataset_split", []))]
        return found

    def put_session(self, body: Item) -> Item:
        """A new project; ValueError for a name that is taken."""
        if any(known["name"] == body["name"] for known in self.sessions.values()):
            raise ValueError("a project of this name exists")
        session: Item = {"id": str(uuid.uuid4()), "tenant_id": TENANT, "start_time": _now()}
        session |= {"reference_dataset_id": None, **body}
        self.sessions[session["id"]] = session
        return session

    def put_run(self, body: Item) -> None:
        """A new run, or more of one."""
        run = self.runs.setdefault(body["id"], {})
        run |= {key: value for key, value in body.items() if value is not None}
        name = run.get("session_name")
        if "session_id" not in run and name is not None:
            known = [s for s in self.sessions.values() if s["name"] == name]
            run["session_id"] = (known[0] if known else self.put_session({"name": name}))["id"]

    def put_feedback(self, body: Item) -> Item:
        """A new feedback."""
        feedback = {"created_at": _now(), "modified_at": _now(), "trace_id": None, **body}
        feedback.setdefault("id", str(uuid.uuid4()))
        self.feedback[feedback["id"]] = feedback
        return feedback

    def query_runs(self, body: Item) -> Item:
        """Runs of projects, root runs or all, of a trace: as servers before 0.16 are asked."""
        found = self._runs_of(body)
        return {"runs": found[: body.get("limit") or 100], "cursors": {"next": None}}

    def _runs_of(self, body: Item) -> list[Item]:
        """Newest first."""
        found = [
            run
            for run in self.runs.values()
            if (not body.get("session") or run.get("session_id") in body["session"])
            and (body.get("is_root") is None or (run.get("parent_run_id") is None) == body["is_root"])
            and (not body.get("id") or run["id"] in body["id"])
            and (body.get("trace") is None or run.get("trace_id") == body["trace"])
        ]  # fmt: skip
        return sorted(found, key=lambda run: str(run.get("start_time")), reverse=True)

    def query_runs_v2(self, body: Item) -> Item:
        """Runs of projects, newest first, in pages; of the last day, unless told otherwise."""
        wanted = re.fullmatch(r'eq\(feedback_key, "(\w+)"\)', body.get("filter", ""))
        if "filter" in body and wanted is None:
            raise ValueError("only the filter eq(feedback_key, …) is known here")
        noted = {f["run_id"] for f in self.feedback.values() if wanted and f["key"] == wanted[1]}
        yesterday = (datetime.now(UTC) - timedelta(days=1)).isoformat()
        since = _moment(body.get("min_start_time", yesterday))
        query = {"session": body["project_ids"], "is_root": body.get("is_root")}
        found = [
            run
            for run in self._runs_of(query)
            if _moment(run["start_time"]) >= since and (wanted is None or run["id"] in noted)
        ]
        start = int(body.get("cursor") or 0)
        end = start + int(body.get("page_size") or 100)
        fields = {"id", *(name.lower() for name in body.get("selects", []))}
        return {
            "items": [{k: v for k, v in run.items() if k in fields} for run in found[start:end]],
            "next_cursor": str(end) if end < len(found) else None,
        }


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _moment(text: str) -> datetime:
    """A time of LangSmith's, which is UTC with or without saying so."""
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _page(items: list[Item], query: dict[str, list[str]]) -> list[Item]:
    offset = int(query.get("offset", ["0"])[0])
    return items[offset : offset + int(query.get("limit", ["100"])[0])]


class _Handler(JsonHandler):
    server: LangSmithServer

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_PATCH(self) -> None:
        self._serve("PATCH")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def _serve(self, method: str) -> None:
        parts = urlsplit(self.path)
        body = self._body()
        with self.server.lock:
            self.server.requests.append((method, parts.path))
            status = self.server.refuse.get(parts.path)
            if self.server.api_key not in (None, self.headers.get("x-api-key")):
                status = 401
            if status is not None:
                self.answer(status, {"detail": "refused"})
                return
            try:
                for verb, pattern, answer in _ROUTES:
                    match = re.fullmatch(pattern, parts.path)
                    if match and verb == method:
                        self.answer(200, answer(self, match, parse_qs(parts.query), body))
                        return
                self.answer(404, {"detail": f"{method} {parts.path} is not spoken here"})
            except NotThere as error:
                self.answer(404, {"detail": f"there is no {error}"})
            except ValueError as error:
                self.answer(409, {"detail": str(error)})

    def _body(self) -> bytes:
        body = self._raw_body()
        if self.headers.get("Content-Encoding") == "zstd":
            import zstandard  # the langsmith package has it

            return zstandard.ZstdDecompressor().decompressobj().decompress(body)
        return body

    def _raw_body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def multipart(self, body: bytes) -> dict[str, Any]:
        """Part name to its JSON."""
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        message = BytesParser(policy=HTTP).parsebytes(head + body)
        found: dict[str, Any] = {}
        for part in message.walk():
            name, content = (
                part.get_param("name", header="content-disposition"),
                part.get_payload(decode=True),
            )
            if isinstance(name, str) and isinstance(content, bytes):
                found[name] = json.loads(content)
        return found

    def ingest(self, parts: dict[str, Any]) -> None:
        """Runs and feedback of a multipart request: `post.{id}`, `post.{id}.outputs`, …"""
        whole: dict[str, Item] = {}
        for name, value in parts.items():
            verb, item_id, *field = name.split(".")
            if verb == "feedback":
                self.server.put_feedback(value)
            elif field:
                whole.setdefault(item_id, {"id": item_id})[field[0]] = value
            else:
                whole.setdefault(item_id, {"id": item_id}).update(value)
        for run in whole.values():
            self.server.put_run(run)


Answer = Callable[[_Handler, "re.Match[str]", dict[str, list[str]], bytes], Any]
_ID = r"([0-9a-f-]{36})"


def _one(items: dict[str, Item], item_id: str) -> Item:
    if item_id not in items:
        raise NotThere(item_id)
    return items[item_id]


def _list_datasets(h: _Handler, m: Any, query: dict[str, list[str]], b: bytes) -> Any:
    names = query.get("name")
    found = [d for d in h.server.datasets.values() if names is None or d["name"] in names]
    return _page(found, query)


def _list_sessions(h: _Handler, m: Any, query: dict[str, list[str]], b: bytes) -> Any:
    names = query.get("name")
    found = [s for s in h.server.sessions.values() if names is None or s["name"] in names]
    return _page(found, query)


def _change_session(h: _Handler, m: Any, q: Any, body: bytes) -> Any:
    session = _one(h.server.sessions, m[1])
    session |= {key: value for key, value in json.loads(body).items() if value is not None}
    return session


def _delete_examples(h: _Handler, m: Any, query: dict[str, list[str]], b: bytes) -> Any:
    for example_id in query.get("example_ids", []):
        _one(h.server.examples, example_id)
        del h.server.examples[example_id]
    return {}


def _ingest_batch(h: _Handler, m: Any, q: Any, body: bytes) -> Any:
    batch = json.loads(body)
    for run in [*(batch.get("post") or []), *(batch.get("patch") or [])]:
        h.server.put_run(run)
    return {}


def _list_feedback(h: _Handler, m: Any, query: dict[str, list[str]], b: bytes) -> Any:
    runs, keys = query.get("run"), query.get("key")
    found = [
        f
        for f in h.server.feedback.values()
        if (runs is None or f["run_id"] in runs) and (keys is None or f["key"] in keys)
    ]
    return _page(found, query)


_EXAMPLES = rf"(?:/v1)?/platform/datasets/{_ID}/examples"
_ROUTES: list[tuple[str, str, Answer]] = [
    ("GET", "/info", lambda h, m, q, b: INFO),
    ("POST", "/datasets", lambda h, m, q, b: h.server.put_dataset(json.loads(b))),
    ("GET", "/datasets", _list_datasets),
    ("GET", f"/datasets/{_ID}", lambda h, m, q, b: _one(h.server.datasets, m[1])),
    ("GET", "/examples", lambda h, m, q, b: _page(h.server.examples_of(q), q)),
    ("GET", f"/examples/{_ID}", lambda h, m, q, b: _one(h.server.examples, m[1])),
    ("POST", _EXAMPLES, lambda h, m, q, b: h.server.put_examples(m[1], h.multipart(b), new=True)),
    ("PATCH", _EXAMPLES, lambda h, m, q, b: h.server.put_examples(m[1], h.multipart(b), new=False)),
    ("DELETE", "/examples", _delete_examples),
    ("POST", "/sessions", lambda h, m, q, b: h.server.put_session(json.loads(b))),
    ("GET", "/sessions", _list_sessions),
    ("GET", f"/sessions/{_ID}", lambda h, m, q, b: _one(h.server.sessions, m[1])),
    ("PATCH", f"/sessions/{_ID}", _change_session),
    ("POST", "/runs/multipart", lambda h, m, q, b: h.ingest(h.multipart(b))),
    ("POST", "/runs/batch", _ingest_batch),
    ("POST", "/runs", lambda h, m, q, b: h.server.put_run(json.loads(b))),
    ("PATCH", f"/runs/{_ID}", lambda h, m, q, b: h.server.put_run({**json.loads(b), "id": m[1]})),
    ("POST", "/api/v2/runs/query", lambda h, m, q, b: h.server.query_runs_v2(json.loads(b))),
    ("POST", "/runs/query", lambda h, m, q, b: h.server.query_runs(json.loads(b))),
    ("POST", "/feedback", lambda h, m, q, b: h.server.put_feedback(json.loads(b))),
    ("GET", "/feedback", _list_feedback),
]


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="A small LangSmith API, in memory.")
    parser.add_argument("--port", type=int, default=8200)
    server = LangSmithServer(parser.parse_args().port)
    sys.stdout.write(f"{server.url}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
