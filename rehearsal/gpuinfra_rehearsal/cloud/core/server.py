"""The HTTP server: one loopback port for the services of every cloud and the control interface.

`StandIn.services` maps paths to a cloud's services. Requests to other paths are refused.
"""

from __future__ import annotations

import threading
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from gpuinfra_rehearsal.cloud.core import outage, receiver, registry
from gpuinfra_rehearsal.cloud.core.control import PREFIX, Control
from gpuinfra_rehearsal.cloud.core.http import Request, Response

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.cloud import Cloud

MAX_BODY = 256 * 1024 * 1024


class Server(ThreadingHTTPServer):
    """Serves all services on one loopback port."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, cloud: Cloud, token: str) -> None:
        # Reuse the port of the last run if it is free, because requests that nodes sign contain it in their host.
        port = int((cloud.store.get("server", "http") or {}).get("port") or 0)
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except OSError:
            super().__init__(("127.0.0.1", 0), _Handler)
        cloud.store.put("server", "http", {"port": self.port})
        services = {path: service for one in registry.installed() for path, service in one.services(cloud).items()}
        services[PREFIX] = Control(cloud, token)
        services[receiver.PREFIX] = receiver.AlertInbox(cloud)
        self._services = sorted(services.items(), key=lambda one: -len(one[0]))
        cloud.endpoint = f"http://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def start(self) -> None:
        threading.Thread(target=self.serve_forever, name="http", kwargs={"poll_interval": 0.1}, daemon=True).start()

    def route(self, request: Request) -> Response:
        for prefix, service in self._services:
            if request.raw_path.startswith(prefix):
                return service(request)
        return Response(404, f"no service of a stand-in cloud serves {request.raw_path[:200]}\n".encode())


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
        except outage.NoResponse:
            self.close_connection = True
            return
        except Exception:  # a defect in a service returns a 500 with its reason instead of breaking the connection
            response = Response(500, traceback.format_exc().encode())
        self._send(response)

    do_GET = do_PUT = do_POST = do_PATCH = do_HEAD = do_DELETE = _serve

    def _send(self, response: Response) -> None:
        self.send_response(response.status)
        headers = {"Content-Type": response.type, "Content-Length": str(len(response.body)), **response.headers}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    def handle_expect_100(self) -> bool:
        return True  # _serve responds once the size of the body is known

    def log_message(self, format: str, *args: object) -> None: ...
