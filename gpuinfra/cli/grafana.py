"""Stores dashboards in a Grafana, with `POST /api/dashboards/db` of its HTTP API."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from urllib.parse import urlsplit

from gpuinfra.base.errors import DeploymentError, UsageError, reason_of
from gpuinfra.base.json_text import bounded
from gpuinfra.base.safe_text import one_line
from gpuinfra.node.cloud import NoRedirect

TIMEOUT_S = 30.0
LIMIT = 1 << 20
"""Bytes of a response that are read."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
REASONS = {
    401: "the token is not valid or has expired",
    403: "the token may not write dashboards; it requires the role Editor",
    404: "the address is not that of a Grafana, or the folder does not exist",
}
"""Why Grafana refuses a dashboard, by status."""


_OPENER = urllib.request.build_opener(NoRedirect)


def host_of(url: str) -> str:
    """Return the host of a Grafana. Raises `UsageError` if the URL has another form, or would send the token without TLS."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as problem:
        raise UsageError(f"--grafana is {one_line(url)}: {problem}") from None
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment or parts.username:
        raise UsageError(
            f"--grafana is {one_line(url)}; write the address of a Grafana, such as https://grafana.example.com"
        )
    if parts.scheme == "http" and host not in LOOPBACK:
        raise UsageError(f"--grafana is {one_line(url)}, which would send the token without encryption; use https")
    return host


def store(url: str, token: str, folder: str | None, document: Mapping[str, object]) -> str:
    """Create a dashboard, or replace the one with its ID. Return its address. `folder` is the ID of a folder of Grafana.

    Raises `DeploymentError` if Grafana does not respond or refuses it.
    """
    body: dict[str, object] = {"dashboard": {**document, "id": None}, "overwrite": True, "message": "gpuinfra"}
    request = urllib.request.Request(
        f"{url.rstrip('/')}/api/dashboards/db",
        data=json.dumps({**body, **({"folderUid": folder} if folder else {})}).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Accept": "application/json"},
    )
    try:
        with _OPENER.open(request, timeout=TIMEOUT_S) as reply:
            answer = bounded(reply.read(LIMIT), LIMIT)
        if not isinstance(answer, dict) or not isinstance(path := answer.get("url"), str):
            raise DeploymentError(f"{url} is not a Grafana: its response names no dashboard")
    except urllib.error.HTTPError as problem:
        raise DeploymentError(f"{url} refused the dashboard: {_refusal(problem)}") from None
    except (OSError, http.client.HTTPException) as problem:
        raise DeploymentError(f"{url} cannot be reached: {reason_of(problem)}") from None
    except ValueError:
        raise DeploymentError(f"{url} is not a Grafana: its response is not JSON") from None
    origin = urlsplit(url)
    return f"{origin.scheme}://{origin.netloc}{one_line(path)}"


def _refusal(problem: urllib.error.HTTPError) -> str:
    reason = REASONS.get(problem.code, f"status {problem.code}")
    try:
        answer = bounded(problem.read(LIMIT), LIMIT)
        message = answer.get("message") if isinstance(answer, dict) else None
    except (ValueError, OSError, http.client.HTTPException):
        message = None
    return f"{reason} ({one_line(message)[:200]})" if isinstance(message, str) and message else reason
