"""The commands that the host agent sends to systemd."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.remote.agent import FABRIC_RESULT, AgentRefused, HostAgent


class Host:
    """A host whose service writes its result once more before it stops."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.agent = HostAgent(root)
        self.agent.systemd = True
        self.result = root / FABRIC_RESULT
        self.result.parent.mkdir(parents=True)
        units = root / "opt/gpuinfra/current/units"
        units.mkdir(parents=True)
        for name in ("gpuinfra-verify.service", "gpuinfra-fabric.service"):
            (units / name).touch()
        self.commands: list[str] = []
        self.results: dict[str, bool] = {}
        """Whether the result exists when a command starts."""
        self.codes: dict[str, int] = {}
        monkeypatch.setattr(shutil, "copy", lambda source, target: None)
        monkeypatch.setattr(subprocess, "run", self._run)

    def _run(self, words: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        assert words[0] == "systemctl"
        self.commands.append(" ".join(words[1:]))
        self.results[words[1]] = self.result.exists()
        if words[1] == "stop":
            self.result.write_text("{}")
        return subprocess.CompletedProcess(words, self.codes.get(words[1], 0), b"", b"no")


def test_the_result_of_the_previous_bundle_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks of the new bundle start without a result of the fabric test, and its service measures again."""
    host = Host(tmp_path, monkeypatch)
    host.result.write_text("{}")
    host.agent._start(uploads=True)
    assert host.results["restart"] is False
    assert "gpuinfra-fabric.service" in host.commands[-1].split()
    assert host.commands[-2:][0] == "stop gpuinfra-fabric.service"


def test_a_host_without_the_service_is_updated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit that does not exist cannot be stopped. A failed restart is an error with the text of systemd."""
    host = Host(tmp_path, monkeypatch)
    host.codes = {"stop": 5, "reset-failed": 1}
    host.agent._start(uploads=False)
    assert host.commands[-1] == "restart --no-block gpuinfra-bootstrap.service"
    host.codes["restart"] = 1
    with pytest.raises(AgentRefused, match="systemctl restart: no"):
        host.agent._start(uploads=False)
