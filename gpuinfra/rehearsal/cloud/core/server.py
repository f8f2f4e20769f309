"""The HTTP server: takes a request apart, finds the service, and says what it answered."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Protocol
from urllib.parse import parse_qsl, unquote

if TYPE_CHECKING:
    from gpuinfra.rehearsal.cloud.core.cloud import Cloud

MAX_BODY = 256 * 1024 * 1024


@dataclass(frozen=True)
class Request:
    """One request. `path` is decoded, `raw_path` and `raw_query` are as they came; header names are lower case."""

    method: str
    raw_path: str
    raw_query: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return unquote(self.raw_path)

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(self.raw_query, keep_blank_values=True))


@dataclass(frozen=True)
class Response:
    """One answer."""

    status: int = 200
    body: bytes = b""
    type: str = "text/plain"
    headers: Mapping[str, str] = field(default_factory=dict)


class Service(Protocol):
    """What answers under one path."""

    def __call__(self, request: Request) -> Response: ...


class Server(ThreadingHTTPServer):
    """All services on one port of the loopback interface."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, cloud: Cloud, token: str) -> None:
        from gpuinfra.rehearsal.cloud.aws.http.metadata import Metadata
        from gpuinfra.rehearsal.cloud.aws.http.objects import Objects
        from gpuinfra.rehearsal.cloud.aws.http.query import Queries
        from gpuinfra.rehearsal.cloud.azure.http import Azure
        from gpuinfra.rehearsal.cloud.core.control import Control
        from gpuinfra.rehearsal.cloud.gcp.http import Google

        # The port is kept from run to run where it is free: what nodes sign names it as their host.
        kept = int((cloud.store.get("server", "http") or {}).get("port") or 0)
        try:
            super().__init__(("127.0.0.1", kept), _Handler)
        except OSError:
            super().__init__(("127.0.0.1", 0), _Handler)
        cloud.store.put("server", "http", {"port": self.port})
        self.metadata, self.queries, self.objects = Metadata(cloud), Queries(cloud), Objects(cloud)
        self.google, self.azure = Google(cloud), Azure(cloud)
        self.control = Control(cloud, token)
        cloud.endpoint = f"http://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def start(self) -> None:
        threading.Thread(target=self.serve_forever, name="http", kwargs={"poll_interval": 0.1}, daemon=True).start()

    def route(self, request: Request) -> Response:
        if request.raw_path.startswith("/.imds/"):
            return self.metadata(request)
        if request.raw_path.startswith("/.azure/"):
            return self.azure(request)
        if request.raw_path.startswith("/.gcp/"):
            return self.google(request)
        if request.raw_path.startswith("/.control/"):
            return self.control(request)
        if request.raw_path == "/" and request.method == "POST":
            return self.queries(request)
        return self.objects(request)


class _Handler(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"
    server_version = "standin"
    sys_version = ""
    timeout = 60

    def _serve(self) -> None:
        length = self.headers.get("Content-Length", "0")
        if not length.isdigit() or int(length) > MAX_BODY:
            self._send(Response(413, b"the body is too large for a rehearsal"))
            return
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        path, _, query = self.path.partition("?")
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, path, query, headers, self.rfile.read(int(length)))
        try:
            response = self.server.route(request)
        except Exception:  # a defect of a service is an answer of 500 with its reason, not a broken connection
            response = Response(500, traceback.format_exc().encode())
        self._send(response)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _serve

    def _send(self, response: Response) -> None:
        self.send_response(response.status)
        headers = {"Content-Type": response.type, "Content-Length": str(len(response.body)), **response.headers}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    def handle_expect_100(self) -> bool:
        return True  # answered in _serve, once it is known that the body is wanted

    def log_message(self, format: str, *args: object) -> None: ...
