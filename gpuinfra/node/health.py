"""`node.pyz health`: answers whether this node is proven, for a cloud that rolls an update node by node and waits for health.

Azure's Application Health extension asks on the machine itself, in the format of its rich states
(https://learn.microsoft.com/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-health-extension, read 2026-11-21, never seen).
So a canary is a node that passed every check of the bundle that it should run, not one whose port is open.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Mapping

from . import evidence
from .judge import verdict

PORT, PATH = 8467, "/health"
ADDRESS_VARIABLE = "GPUINFRA_HEALTH_ADDRESS"
"""Another address of this machine itself than 127.0.0.1, for machines that share one network."""
HEALTHY, UNHEALTHY, UNKNOWN = "Healthy", "Unhealthy", "Unknown"


def state(
    node: Mapping[str, Any], expectation: Mapping[str, Any] | None, newest: Mapping[str, Any] | None, boot_id: str
) -> str:
    """`Unknown` until this boot was verified with the wanted bundle: no reason to repair it, none to go on to the next node."""
    wanted = (node.get("bundle") or {}).get("sha256")
    if expectation is None or newest is None or not wanted:
        return UNKNOWN
    if newest.get("boot_id") != boot_id or newest.get("bundle_sha256") != wanted:
        return UNKNOWN
    try:
        return HEALTHY if verdict(newest.get("checks") or [], expectation).verified else UNHEALTHY
    except (ValueError, AttributeError):
        return UNHEALTHY


def look(node: Path, bundle: Path, kept: evidence.Kept) -> str:
    """The state now, from this node's files."""
    newest = kept.newest()
    return state(
        _read(node) or {}, _read(bundle / "expectation.json"), newest[1] if newest else None, evidence.boot_id()
    )


def serve(node: Path, bundle: Path) -> None:
    """Answer until this process is ended. Raises OSError where the port is taken."""
    kept = evidence.Kept()

    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            known = self.path.split("?")[0] == PATH
            body = json.dumps({"ApplicationHealthState": look(node, bundle, kept)} if known else {}).encode("ascii")
            self.send_response(200 if known else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Asked every few seconds; a line each would fill the journal."""

    server = ThreadingHTTPServer((os.environ.get(ADDRESS_VARIABLE) or "127.0.0.1", PORT), Handler)
    server.daemon_threads = True
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever(poll_interval=1)
    server.server_close()


def _read(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
