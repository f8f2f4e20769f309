"""The stand-in cloud as a process: it prints its ports, keeps its contents, and ends on signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuinfra_rehearsal.cloud.core.store import Store

ARGV = [sys.executable, "-m", "gpuinfra_rehearsal.cloud", "--no-nodes", "--folder"]


@contextmanager
def running(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A stand-in cloud that ends with the block, also if the block fails."""
    with subprocess.Popen([*ARGV, str(folder)], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def ready(process: subprocess.Popen[str]) -> dict:
    """The one line."""
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def gone(pid: int, within_s: float = 300) -> bool:
    """Whether a process that is not our child ends in time."""
    limit = time.monotonic() + within_s
    while time.monotonic() < limit:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def test_it_prints_its_ports_and_ends_on_a_signal(tmp_path: Path) -> None:
    """One line of JSON has providers, HTTP port, token and credentials; SIGTERM ends the process with 0; the next run uses the same port."""
    ports = []
    for _ in range(2):
        with running(tmp_path / "r") as process:
            said = ready(process)
            assert {"aws", "azure-native", "gcp"} <= set(said["providers"])
            request = urllib.request.Request(
                f"http://127.0.0.1:{said['http']}/.control/nodes", headers={"X-Gpuinfra-Control": said["control_token"]}
            )
            with urllib.request.urlopen(request, timeout=300) as reply:
                assert json.load(reply) == {"available": False, "reason": "--without-nodes is set", "nodes": []}
            assert said["operator"]["aws"]["access_key_id"].startswith("AKIASTANDIN")
            ports.append(said["http"])
            process.send_signal(signal.SIGTERM)
            assert process.wait(300) == 0
    assert ports[0] == ports[1]


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    """It ends when its parent is killed."""
    script = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen({[*ARGV, str(tmp_path / 'r')]!r}, stdout=subprocess.PIPE, text=True)\n"
        "child.stdout.readline()\nprint(child.pid, flush=True)\ntime.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    assert gone(child)


def test_a_kill_loses_nothing(tmp_path: Path) -> None:
    """After a kill and a new start, the contents are the same."""
    for round in range(2):
        with running(tmp_path / "r") as process:
            said = ready(process)
            body = json.dumps({"id": f"cr-{round}", "count": round}).encode()
            request = urllib.request.Request(
                f"http://127.0.0.1:{said['http']}/.control/external",
                data=body,
                headers={"X-Gpuinfra-Control": said["control_token"]},
            )
            urllib.request.urlopen(request, timeout=300).close()
            os.kill(process.pid, signal.SIGKILL)
    store = Store(tmp_path / "r" / "cloud.sqlite")
    assert store.all("external") == {"cr-0": {"count": 0}, "cr-1": {"count": 1}}
    store.close()


@pytest.mark.parametrize("fault", ["nonsense", "node:gpu-1"])
def test_a_wrong_fault_is_one_message(tmp_path: Path, fault: str) -> None:
    """An unknown fault ends it with exit code 2 and one line."""
    done = subprocess.run(
        [*ARGV, str(tmp_path / "r"), "--fault", fault], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"--fault {fault}: unknown fault" in done.stderr
