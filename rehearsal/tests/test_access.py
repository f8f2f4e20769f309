"""Prerequisites of commands that work on a rehearsed cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpuinfra.base.errors import EnvironmentMissing
from gpuinfra_rehearsal.access import require_ssh
from gpuinfra_rehearsal.nodes import ssh_ports


def test_a_missing_sshd_is_a_missing_prerequisite(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without sshd, the command ends with exit code 3, and the message has the package to install."""
    monkeypatch.setattr(ssh_ports, "sshd_program", lambda: None)
    problem = ssh_ports.SshPorts._prepare(cast(Any, SimpleNamespace(folder=None)))
    answer = {"available": False, "reason": problem}
    session = SimpleNamespace(cloud=SimpleNamespace(ask=lambda _: answer, nodes=list))
    with pytest.raises(EnvironmentMissing, match="openssh-server") as caught:
        require_ssh(cast(Any, session))
    assert caught.value.exit_code == 3
