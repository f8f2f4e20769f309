"""Measures the preflight of a stack against services that answer after 200 ms: `python bench/preflight.py [LATENCY_S]`.

The responses are those of the tests. The target is 5 s on each cloud, excluding interpreter startup.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

LATENCY_S = float(sys.argv[1]) if len(sys.argv) > 1 else 0.2


def aws(patch: pytest.MonkeyPatch) -> tuple[float, int]:
    """Return the seconds and the number of requests on AWS, with all simulations of the policies."""
    from gpuinfra.clouds.aws import preflight
    from gpuinfra.clouds.preflight import answers
    from tests.doctor import aws as account
    from tests.doctor.test_aws_live import P4D, TOKEN, healthy

    used = account.use(patch, healthy(), LATENCY_S)
    start = time.perf_counter()
    cloud = preflight.Preflight(P4D.region, {})
    list(cloud.identity())
    answers(cloud.questions(P4D, lambda: TOKEN))
    return time.perf_counter() - start, len(used.requests)


def azure(patch: pytest.MonkeyPatch) -> tuple[float, int]:
    """Return the seconds and the number of requests on Azure."""
    from tests.doctor import test_azure_live as live

    arm = live.healthy()
    arm.latency_s = LATENCY_S
    start = time.perf_counter()
    live.ask(arm, patch, live.RESERVED)
    return time.perf_counter() - start, len(arm.requests)


def gcp(patch: pytest.MonkeyPatch) -> tuple[float, int]:
    """Return the seconds and the number of requests on Google Cloud."""
    from tests.doctor import test_gcp_live as live

    google = live.healthy(patch)
    google.latency_s = LATENCY_S
    start = time.perf_counter()
    live.ask()
    return time.perf_counter() - start, len(google.requests)


def main() -> None:
    """Print the figures."""
    with pytest.MonkeyPatch.context() as patch:
        for name, measure in (("aws", aws), ("azure", azure), ("gcp", gcp)):
            seconds, requests = measure(patch)
            print(f"{name}: {seconds:.2f} s for {requests} requests of {LATENCY_S:g} s")


if __name__ == "__main__":
    main()
