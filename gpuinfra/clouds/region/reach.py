"""Whether a region responds: requests are repeated while a service is busy, and a region is unreachable only with evidence.

A service that responds with an error, such as throttling or a failure of its own, responds: its request is repeated, and fails at the end.
A region is unreachable if no connection to any of its services succeeds for `PROOF_S`. Regions of clouds with global endpoints respond
with errors instead, so they cannot be proven unreachable.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TypeVar

from gpuinfra.base.errors import DeploymentError, GpuinfraError
from gpuinfra.base.safe_text import one_line
from gpuinfra.clouds.region.failover import Unreachable

BUSY_S = 60.0
"""How long a request is repeated while its service is busy."""
TRIES = 3
"""Number of attempts to connect."""
MOST_PAUSE_S = 20.0
PROOF_S = 90.0
"""How long no service of a region responds before the region is unreachable."""
PROOF_PAUSE_S = 15.0
LEAST_SERVICES = 2

_Result = TypeVar("_Result")


class Busy(Exception):
    """A service responded that it cannot process the request now. The message contains the reason."""


@dataclass(frozen=True, kw_only=True)
class ConnectionFailure:
    """A failed attempt to connect to a service."""

    service: str
    at: str
    """Time in UTC, in ISO 8601."""
    error: str

    def as_dict(self) -> dict[str, str]:
        """Return the form in the journal."""
        return asdict(self)


def persistent(request: Callable[[], _Result], *, sleep: Callable[[float], None] | None = None) -> _Result:
    """Send a request, and repeat it with longer pauses while the service is busy or cannot be connected.

    `request` raises `Busy`, `Unreachable` and `DeploymentError`. Raises `DeploymentError` if the service is still busy after `BUSY_S`,
    and `Unreachable` after `TRIES` failed connections.
    """
    wait, waited, pause, failed = sleep or time.sleep, 0.0, 1.0, 0
    while True:
        try:
            return request()
        except Busy as problem:
            if waited >= BUSY_S:
                raise DeploymentError(
                    f"{problem}; the service responds, but its last response after {waited:.0f} s is still this error; "
                    "run the command again when the service has recovered"
                ) from None
        except Unreachable:
            failed += 1
            if failed >= TRIES:
                raise
        wait(pause)
        waited, pause = waited + pause, min(pause * 2, MOST_PAUSE_S)


def prove(
    region: str,
    services: Mapping[str, Callable[[], object]],
    *,
    sleep: Callable[[float], None] | None = None,
    clock: Callable[[], float] | None = None,
) -> tuple[ConnectionFailure, ...]:
    """Return the evidence that a region is unreachable. `services` sends one request to each service. Raises `DeploymentError` if one responds."""
    wait, monotonic = sleep or time.sleep, clock or time.monotonic
    if len(services) < LEAST_SERVICES:
        raise DeploymentError(
            f"the state contains resources of {len(services)} service in {region}, and {LEAST_SERVICES} services are required as evidence"
        )
    failures: list[ConnectionFailure] = []
    until = monotonic() + PROOF_S
    while True:
        for service, request in services.items():
            try:
                request()
            except Unreachable as problem:
                now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                failures.append(ConnectionFailure(service=service, at=now, error=one_line(problem)))
                continue
            except (Busy, GpuinfraError) as problem:
                raise DeploymentError(f"{service} in {region} responds: {one_line(problem)}") from None
            raise DeploymentError(f"{service} in {region} responds")
        if monotonic() >= until:
            return tuple(failures)
        wait(PROOF_PAUSE_S)
