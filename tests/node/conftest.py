"""Settings of all tests of the node program."""

from __future__ import annotations

import pytest

from gpuinfra.node import mounts, probe


@pytest.fixture(autouse=True)
def killed_processes_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for killed processes as long as a busy machine needs.
    A node abandons them, because they can hang in the kernel; here, an abandoned process becomes a warning in a later test."""
    monkeypatch.setattr(probe, "_GRACE_S", 300.0)
    monkeypatch.setattr(mounts, "_GRACE_S", 300.0)
