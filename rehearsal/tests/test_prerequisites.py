"""What stand-in nodes require on this machine."""

from __future__ import annotations

import pytest

from gpuinfra.clouds.preflight import RowState
from gpuinfra_rehearsal import prerequisites


def test_missing_rehearsal_tools_are_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without namespaces or sshd, a rehearsal is limited, and each row has the command that installs or allows it."""
    why = (
        "this system forbids user namespaces: EPERM; to allow them, run as root: sysctl user.max_user_namespaces=10000"
    )
    monkeypatch.setattr(prerequisites, "available", lambda: (False, why))
    monkeypatch.setattr(prerequisites, "sshd_program", lambda: None)
    (spaces,), (server,) = prerequisites.namespaces(), prerequisites.sshd()
    assert (spaces.state, server.state) == (RowState.WARN, RowState.WARN)
    assert spaces.fix == "to allow them, run as root: sysctl user.max_user_namespaces=10000"
    assert server.fix == "sudo apt-get install openssh-server"
