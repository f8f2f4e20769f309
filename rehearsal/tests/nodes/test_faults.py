"""Vendors, networks and power that fail while a node installs: a clear reason in the journal, and a run that continues."""

from __future__ import annotations

import json

import pytest

from gpuinfra_rehearsal.nodes import NodeHost
from rehearsal.tests.nodes.conftest import wait_for
from rehearsal.tests.nodes.machines import NAME, Machine, host, metadata, pool_of

__all__ = ["host", "metadata"]


def remove_faults(node: Machine) -> None:
    """Remove all faults of a node."""
    path = node.host._nodes[NAME].folder / "standin" / "standin.json"
    state = json.loads(path.read_text(encoding="utf-8"))
    state["faults"] = []
    path.write_text(json.dumps(state), encoding="utf-8")


FAULTS = [
    pytest.param("repository-503", "gcp", "a3-ultragpu-8g", "default", "40-cuda", "last with exit code 22: curl: "
        "(22) The requested URL returned error: 503", marks=pytest.mark.long),
    pytest.param("repository-503", "gcp", "a3-megagpu-8g", "default", "40-cuda", "503", marks=pytest.mark.long),
    ("download-corrupt", "azure", "Standard_ND96isr_H100_v5", "plain", "30-driver", "but the lock requires d2a6b11c"),
    pytest.param("lustre-mount-fails", "azure", "Standard_ND96isr_H200_v5", "default", "60-lustre", "mounting /scratch failed 3 times, "
        "last with exit code 5: mount.lustre: mount 10.0.0.4@tcp:/lustrefs at /scratch failed: Input/output error", marks=pytest.mark.long),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "cloud", "machine", "image", "step", "reason"), FAULTS)
def test_an_external_fault_is_reported_and_the_next_run_continues(
    host: NodeHost, fault: str, cloud: str, machine: str, image: str, step: str, reason: str
) -> None:
    """The step reports what failed; finished steps stay done; without the fault the same run completes."""
    node = Machine(host, pool_of(cloud, machine, "ubuntu-24.04", image))
    node.launch(cloud, faults=(fault,))
    code, said = node.steps()
    assert code == 1, said
    journal = {entry["id"]: entry for entry in node.state["steps"]}
    assert journal[step]["status"] == "failed"
    assert reason in journal[step]["reason"]
    before = [name for name in journal if name < step]
    assert before
    assert {journal[name]["status"] for name in before} == {"done"}
    started = {name: journal[name]["started"] for name in before}
    remove_faults(node)
    code, said, _ = node.through()
    assert code == 0, said
    assert {entry["id"]: entry["started"] for entry in node.state["steps"] if entry["id"] in started} == started


@pytest.mark.long
def test_a_power_cut_during_a_step(host: NodeHost) -> None:
    """After the boot the interrupted step runs again, and finished steps do not."""
    node = Machine(host, pool_of("gcp", "a3-ultragpu-8g", "ubuntu-24.04", "default"))
    node.launch("gcp")
    node.run("bash", "-c", "setsid python3 /opt/gpuinfra/current/node.pyz steps --no-reboot >/dev/null 2>&1 &")
    path = node.host._nodes[NAME].root / "var/lib/gpuinfra/state.json"

    def working() -> bool:
        steps = json.loads(path.read_text(encoding="utf-8"))["steps"] if path.exists() else []
        return any(entry["id"] > "35" and entry["status"] == "running" for entry in steps)

    def stopped_in_a_step() -> bool:
        # The runner is stopped, so that the step does not end before the reboot.
        node.run("pkill", "-STOP", "-f", "node.pyz steps")
        if working():
            return True
        node.run("pkill", "-CONT", "-f", "node.pyz steps")
        return False

    wait_for(stopped_in_a_step, "a later step works")
    node.reboot()
    entries = {entry["id"]: entry["status"] for entry in node.state["steps"]}
    cut = next(name for name, status in entries.items() if status != "done")
    assert entries[cut] == "running"
    code, said = node.steps()
    assert code == 0, said
    assert f"{cut}: an earlier run was killed during this step; the step starts again" in said
    assert "30-driver started" not in said
    code, said = node.steps("--again")
    assert "none made changes" in said, said
