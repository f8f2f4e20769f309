"""Requests are repeated while a service is busy, and a region is unreachable only if none of its services responds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.region import reach
from gpuinfra.clouds.region.failover import Unreachable
from gpuinfra.clouds.region.reach import Busy, persistent, prove


class Clock:
    """A clock that only `sleep` moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def __call__(self) -> float:
        return self.now


def failing(*problems: Exception) -> Callable[[], str]:
    """A request that fails with these errors, one after the other, and then succeeds."""
    left = list(problems)

    def request() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return request


def test_a_busy_service_is_asked_again() -> None:
    """Throttling ends, and the request succeeds."""
    clock = Clock()
    assert persistent(failing(*[Busy("SlowDown")] * 5), sleep=clock.sleep) == "done"
    assert clock.now == 1 + 2 + 4 + 8 + 16


def test_a_service_that_stays_busy_is_not_unreachable() -> None:
    """After the time limit, the error states that the service responds."""
    clock = Clock()
    with pytest.raises(DeploymentError, match="SlowDown; the service responds"):
        persistent(failing(*[Busy("SlowDown")] * 100), sleep=clock.sleep)
    assert reach.BUSY_S <= clock.now < reach.BUSY_S + reach.MOST_PAUSE_S


def test_a_failed_connection_is_attempted_again() -> None:
    """One failed connection has no effect, and the last of several is the result."""
    assert persistent(failing(Unreachable("a"), Unreachable("b")), sleep=Clock().sleep) == "done"
    with pytest.raises(Unreachable, match="c"):
        persistent(failing(Unreachable("a"), Unreachable("b"), Unreachable("c")), sleep=Clock().sleep)


def test_evidence_covers_all_services_over_the_whole_time() -> None:
    """Each service is asked repeatedly, from the first to the last second."""
    clock, moments = Clock(), list[float]()

    def down() -> None:
        moments.append(clock())
        raise Unreachable("timed out")

    found = prove("us-east-1", {"S3": down, "EC2": down}, sleep=clock.sleep, clock=clock)
    assert [one.service for one in found[:2]] == ["S3", "EC2"]
    assert (moments[0], moments[-1]) == (0, reach.PROOF_S)
    assert len(found) == len(moments) == 2 * (1 + reach.PROOF_S / reach.PROOF_PAUSE_S)
    assert all(one.error == "timed out" for one in found)


@pytest.mark.parametrize("answer", [None, Busy("503"), DeploymentError("AccessDenied")])
@pytest.mark.parametrize("after", [0, 3])
def test_any_response_is_evidence_that_the_region_responds(answer: Exception | None, after: int) -> None:
    """One response of one service, also an error or a response after several failures, ends the proof."""
    clock = Clock()
    later = failing(*[Unreachable("timed out")] * after, *([answer] if answer else []))
    with pytest.raises(DeploymentError, match="S3 in us-east-1 responds"):
        prove("us-east-1", {"EC2": failing(*[Unreachable("x")] * 100), "S3": later}, sleep=clock.sleep, clock=clock)


def test_one_service_is_no_evidence() -> None:
    """A single service can fail in a region that works."""
    with pytest.raises(DeploymentError, match="2 services are required"):
        prove("us-east-1", {"S3": failing(Unreachable("x"))})
