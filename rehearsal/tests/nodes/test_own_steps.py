"""Declared steps on stand-in nodes of three clouds: they run, reboot, fail with a clear finding, and their scripts are verified."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.plan.model import PoolPlan
from gpuinfra_rehearsal.nodes import NodeHost
from rehearsal.tests.nodes.machines import Machine, host, metadata, pool_of
from rehearsal.tests.nodes.test_containers import judged
from tests.plan.pools import with_steps

__all__ = ["host", "metadata"]

URL = "https://example.com/agent.sh"
DIGEST = hashlib.sha256(b"the published script").hexdigest()
TUNING = """#!/usr/bin/env python3
import os, pathlib
path = pathlib.Path("/etc/sysctl.d/90-tuning.conf")
path.write_text("vm.swappiness=1\\n")
print("tuned", os.environ["GPUINFRA_POOL"])
"""


def pool(cloud: str, machine: str, folder: Path, script: str, **fields: object) -> PoolPlan:
    """A pool with two declared steps, one of a file and one of a URL, after the first bootstrap step."""
    (folder / "tuning").write_text(script, encoding="utf-8")
    steps = [
        {"name": "tuning", "file": "tuning", "reboot": True, **fields},
        {"name": "agent", "url": URL, "sha256": DIGEST},
    ]
    made = pool_of(cloud, machine, "ubuntu-22.04", "plain", software={"steps": steps})
    return only(made, "10-prepare", "own-tuning", "own-agent")


def only(made: PoolPlan, *steps: str) -> PoolPlan:
    """The pool with these steps, and the expectation of a node with these steps."""
    return replace(with_steps(made, *steps), expectation={**made.expectation, "steps": list(steps)})


def bootstrap_check(node: Machine) -> dict[str, Any]:
    """The outcome of check S2."""
    return judged(node, "S2", phase="presence")["S2"]


@pytest.mark.parametrize(
    ("cloud", "machine"),
    [
        ("aws", "g6.12xlarge"),
        pytest.param("azure", "Standard_NC24ads_A100_v4", marks=pytest.mark.long),
        pytest.param("gcp", "a2-highgpu-1g", marks=pytest.mark.long),
    ],
)
def test_steps_run_once_and_their_checksums_are_judged(
    host: NodeHost, cloud: str, machine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node reboots after a step that declares it, each script runs once and again after a change, and check S2 compares the checksums."""
    monkeypatch.chdir(tmp_path)
    node = Machine(host, pool(cloud, machine, tmp_path, TUNING))
    node.launch(cloud)
    code, said, reboots = node.through()
    assert (code, reboots) == (0, 1), said
    assert node.run("cat", "/etc/sysctl.d/90-tuning.conf")[1] == "vm.swappiness=1\n"
    entries = {one["id"]: one for one in node.state["steps"]}
    assert entries["own-tuning"]["hash"] == hashlib.sha256(TUNING.encode()).hexdigest()
    assert (entries["own-agent"]["hash"], entries["own-agent"]["status"]) == (DIGEST, "done")
    log = node.run("cat", "/var/log/gpuinfra/bootstrap.log")[1]
    assert log.count("tuned gpu") == 1
    assert "a rehearsal does not download the script" in log
    assert bootstrap_check(node)["outcome"] == "pass"

    changed = pool(cloud, machine, tmp_path, TUNING + "print('again')\n")
    node.pool = changed
    node.unpack()
    found = bootstrap_check(node)
    assert (found["outcome"], found["reason"]) == (
        "fail",
        "own-tuning is done with a script that has a different SHA-256",
    )
    code, said, reboots = node.through()
    assert (code, reboots) == (0, 1), said
    assert bootstrap_check(node)["outcome"] == "pass"


def test_a_failed_step_is_one_finding(host: NodeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The finding has the name, the exit code and the last lines of the script, and later steps did not run."""
    monkeypatch.chdir(tmp_path)
    script = "#!/bin/bash\necho preparing\necho 'license server: connection refused' >&2\nexit 4\n"
    node = Machine(host, pool("aws", "g6.12xlarge", tmp_path, script))
    node.launch("aws")
    code, said, _ = node.through()
    assert code == 1
    reason = (
        "own-tuning is failed: the script exited with code 4; last output: preparing / license server: connection refused; "
        "own-agent is pending"
    )
    found = bootstrap_check(node)
    assert (found["outcome"], found["reason"]) == ("fail", reason), said


def test_a_wrong_checksum_is_one_finding(host: NodeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged or replaced script of a URL does not run."""
    monkeypatch.chdir(tmp_path)
    node = Machine(host, only(pool("aws", "g6.12xlarge", tmp_path, TUNING), "own-agent"))
    node.launch("aws", faults=("download-corrupt",))
    code, said, _ = node.through()
    assert code == 1, said
    reason = str(bootstrap_check(node)["reason"])
    assert reason.startswith(f"own-agent is failed: the script of {URL} has the SHA-256 "), reason
    assert reason.endswith(f"but the declaration requires {DIGEST}; the node did not run it"), reason
