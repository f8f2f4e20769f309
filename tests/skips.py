"""On CI (`CI=true`), a skipped test fails, unless its reason is listed here: CI installs every tool that tests need."""

from __future__ import annotations

import os
import re
from collections.abc import Generator

import pytest

ALLOWED = {
    "this machine has NCCL and GPUs": "the test is for machines without them",
    "this already runs as an ordinary user": "the other tests of the file cover this case",
    "this machine mounts no file system in user space": "containers have no /dev/fuse; tests on stand-in nodes restart a mounted bucket",
    "GPUINFRA_TORCH_PYTHON is not set": "the packages of PyTorch contain gigabytes of CUDA",
    "there is no Python 3.9 on this machine": "Debian 12 has no package of it; another test parses each file as Python 3.9",
}
"""Start of a skip reason, and why the skip is allowed on CI."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Covers skips in fixtures, marks and tests."""
    report = yield
    return _checked(report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Covers skips of whole modules."""
    report = yield
    return _checked(report)


def _checked(report):
    """The report, turned into a failure if it is a skip that CI does not allow."""
    if os.environ.get("CI") != "true" or not report.skipped or hasattr(report, "wasxfail"):
        return report
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = re.sub(r"^Skipped: ", "", reason)
    if not reason.startswith(tuple(ALLOWED)):
        report.outcome = "failed"
        report.longrepr = f"skipped on CI: {reason}; install what is missing in .ci/run, or add the reason to ALLOWED in tests/skips.py"
    return report
