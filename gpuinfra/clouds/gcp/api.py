"""Requests to Google's REST APIs during a failover or a failback, with the credentials of the operator.

A request is repeated after a response that Google documents as temporary (https://cloud.google.com/storage/docs/retry-strategy, retrieved
2026-11-26). If its last response is an error too, or the request is refused, the result is a `DeploymentError`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from gpuinfra.base.errors import DeploymentError
from gpuinfra.base.safe_text import one_line
from gpuinfra.clouds.gcp.handover.ports import COMPUTE, Client, RequestFailed
from gpuinfra.clouds.gcp.region.readiness import ENDPOINTS
from gpuinfra.clouds.region.failover import Unreachable
from gpuinfra.clouds.region.reach import Busy, persistent
from gpuinfra.handover.ports import PortUnavailable
from gpuinfra.handover.trust import checked_address

COMPUTE_ENGINE, DNS, LUSTRE, STORAGE, TRANSFER = "compute", "dns", "lustre", "storage", "storagetransfer"
SCHEDULER = "cloudscheduler"
ADDRESSES = {
    **ENDPOINTS,
    COMPUTE_ENGINE: ("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", COMPUTE),
    DNS: ("CLOUDSDK_API_ENDPOINT_OVERRIDES_DNS", "https://dns.googleapis.com/"),
    LUSTRE: ("CLOUDSDK_API_ENDPOINT_OVERRIDES_LUSTRE", "https://lustre.googleapis.com/"),
}
"""Maps a service to the variable that overrides its endpoint, and to the default endpoint."""
NOT_FOUND, CHANGED, BUSY = 404, 412, (408, 429)
THROTTLED = frozenset({"rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED"})
"""Reasons of throttled requests, whose status can be 403 (`handover/refusals.json` has a recorded error with its source)."""


class Sender(Protocol):
    """Sends a request. `gpuinfra.clouds.gcp.handover.ports.Client.json` describes the parameters."""

    def json(
        self,
        method: str,
        url: str,
        parameters: Mapping[str, str] | None = None,
        body: Mapping[str, object] | None = None,
    ) -> dict[str, Any]: ...


class Api:
    """Sends requests, given a service and a path. All methods raise `Unreachable` and `DeploymentError`."""

    def __init__(self, client: Sender | None = None, sleep: Callable[[float], None] | None = None) -> None:
        self._client: Sender = client or Client()
        self._sleep = sleep

    def ask(
        self,
        method: str,
        service: str,
        path: str,
        parameters: Mapping[str, str] | None = None,
        body: Mapping[str, object] | None = None,
        *,
        missing: int | None = NOT_FOUND,
    ) -> dict[str, Any] | None:
        """Return the response, or None if its status is `missing`."""
        return persistent(
            lambda: self.once(method, service, path, parameters, body, missing=missing), sleep=self._sleep
        )

    def once(
        self,
        method: str,
        service: str,
        path: str,
        parameters: Mapping[str, str] | None = None,
        body: Mapping[str, object] | None = None,
        *,
        missing: int | None = NOT_FOUND,
    ) -> dict[str, Any] | None:
        """Send a request once. Raises `Busy`, `Unreachable` and `DeploymentError`."""
        try:
            return self._client.json(method, f"{_address(service)}/{path}", parameters, body)
        except RequestFailed as problem:
            status = problem.status
            if status is None:
                raise Unreachable(one_line(problem)) from None
            if status == missing:
                return None
            if status >= 500 or status in BUSY or problem.reasons & THROTTLED:
                raise Busy(one_line(problem)) from None
            raise DeploymentError(one_line(problem)) from None
        except PortUnavailable as problem:
            raise DeploymentError(
                f"{one_line(problem)}; check the login (`gcloud auth application-default login`) and the network of this machine, and run the command again"
            ) from None

    def sent(
        self,
        method: str,
        service: str,
        path: str,
        parameters: Mapping[str, str] | None = None,
        body: Mapping[str, object] | None = None,
    ) -> dict[str, Any]:
        """Return the response. A resource that does not exist is an error."""
        return self.ask(method, service, path, parameters, body, missing=None) or {}

    def pages(self, method: str, service: str, path: str, parameters: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """Return the pages of a list. A list that does not exist is empty."""
        token = ""
        while True:
            page = self.ask(method, service, path, {**parameters, **({"pageToken": token} if token else {})})
            if page is None:
                return
            yield page
            token = str(page.get("nextPageToken") or "")
            if not token:
                return


def _address(service: str) -> str:
    address = checked_address(*ADDRESSES[service], os.environ).rstrip("/")
    return address if "://" in address else f"http://{address}"
