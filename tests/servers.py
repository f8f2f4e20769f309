"""Local HTTP servers, with which tests answer as a service does."""

from __future__ import annotations

import itertools
import os
import socket
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


FIRST_PORT, PORTS = 15000, 17000
"""Range of `free_port`. It lies below the ephemeral ports of Linux (32768 and above), which any connection of a parallel test can take in between."""
_ports = itertools.count(os.getpid() * 97)


def free_port(*more: str, apart: int = 0) -> int:
    """A port that is free on 127.0.0.1 and the given addresses, with the one that is `apart` higher, and that no later call returns soon."""
    for number in itertools.islice(_ports, PORTS):
        port = FIRST_PORT + number % PORTS
        try:
            for address, one in itertools.product(("127.0.0.1", *more), {port, port + apart}):
                with socket.socket() as probe:
                    probe.bind((address, one))
        except OSError:
            continue
        return port
    raise RuntimeError("no port is free on all addresses")


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
