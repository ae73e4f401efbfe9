"""What the servers for tests and demonstrations share: HTTP on 127.0.0.1, JSON answers, silence."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from typing_extensions import override


class LoopbackServer(ThreadingHTTPServer):
    """A server on 127.0.0.1; port 0 takes a free one."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        """Listen; serve with `running` or `serve_forever`."""
        super().__init__(("127.0.0.1", port), handler)
        self.lock = threading.RLock()

    @property
    def address(self) -> str:
        """Where it is, without a path."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Serve in a thread until the block ends."""
        thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.shutdown()
            self.server_close()


class JsonHandler(BaseHTTPRequestHandler):
    """Answers JSON in UTF-8, and says nothing on stderr."""

    protocol_version = "HTTP/1.1"

    def answer(self, status: int, document: Any) -> None:
        """Send the document."""
        text = json.dumps(document, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""
