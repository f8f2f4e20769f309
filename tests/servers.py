"""Local HTTP servers, with which tests answer as a service does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Answering(BaseHTTPRequestHandler):
    """A request handler without a log."""

    def log_message(self, format: str, *args: object) -> None: ...

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Send a complete response. An underscore in a header's name stands for a hyphen."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serve(handler: Any) -> Iterator[str]:
    """The base URL of a server on a free port of 127.0.0.1, which ends with the context."""
    # The responses that a test delays on purpose must not delay its end: their threads are daemons.
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
