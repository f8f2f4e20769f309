"""`node.pyz health`: serves this node's verification state to a cloud that waits for healthy nodes during rolling updates.

Azure's Application Health extension polls it on the machine, in the format of its rich health states
(https://learn.microsoft.com/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-health-extension, retrieved 2026-11-21, not yet tested).
Google's health check polls it over the network and reads the status code only, so it requests a different path.
A canary is therefore healthy only after it passes every check of its current bundle. An open port is not enough.
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
from .console import MissingPrerequisite, optional
from .judge import verdict

PORT, PATH = 8467, "/health"
VERIFIED_PATH = "/verified"
"""Path that returns status 200 if this node is verified, and 503 otherwise."""
ADDRESS_VARIABLE = "GPUINFRA_HEALTH_ADDRESS"
"""A different local address, for machines that share one network."""
HEALTHY, UNHEALTHY, UNKNOWN = "Healthy", "Unhealthy", "Unknown"


def state(
    node: Mapping[str, Any], expectation: Mapping[str, Any] | None, newest: Mapping[str, Any] | None, boot_id: str
) -> str:
    """Return the state. `Unknown`, until this boot is verified, neither triggers a repair nor continues the rollout."""
    current = (node.get("bundle") or {}).get("sha256")
    if expectation is None or newest is None or not current:
        return UNKNOWN
    if newest.get("boot_id") != boot_id or newest.get("bundle_sha256") != current:
        return UNKNOWN
    try:
        return HEALTHY if verdict(newest.get("checks") or [], expectation).verified else UNHEALTHY
    except (ValueError, TypeError, KeyError, AttributeError):
        return UNHEALTHY


def current_state(node: Path, bundle: Path, folder: evidence.EvidenceFolder) -> str:
    """Return the current state from this node's files."""
    newest = folder.newest()
    return state(
        _read(node) or {}, _read(bundle / "expectation.json"), newest[1] if newest else None, evidence.boot_id()
    )


def serve(node: Path, bundle: Path, address: str) -> None:
    """Serve on a local address until the process is terminated. Raises OSError if the port is in use."""
    folder = evidence.EvidenceFolder()

    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            path = self.path.split("?")[0]
            health = current_state(node, bundle, folder) if path in (PATH, VERIFIED_PATH) else None
            body = json.dumps({"ApplicationHealthState": health} if health else {}).encode("ascii")
            refused = 503 if path == VERIFIED_PATH and health != HEALTHY else 200
            self.send_response(refused if health else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Discard the message: one line per poll would fill the journal."""

    server = ThreadingHTTPServer((os.environ.get(ADDRESS_VARIABLE) or address, PORT), Handler)
    server.daemon_threads = True
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever(poll_interval=1)
    server.server_close()


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return optional(path)
    except MissingPrerequisite:
        return None
