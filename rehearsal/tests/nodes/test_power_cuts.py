"""A power cut in each step of a bundle of each cloud: the machine boots again, continues and ends in the state of an undisturbed installation."""

from __future__ import annotations

import contextlib
import json
import threading
import time

import pytest

from gpuinfra_rehearsal.nodes import NodeHost
from rehearsal.tests.nodes.every_machine import is_verified
from rehearsal.tests.nodes.machines import GOLDEN, NAME, Machine, host, metadata, pool_of

__all__ = ["host", "metadata"]

BUNDLES = [
    ("aws", "p5.48xlarge", "ubuntu-22.04", "default"),
    ("azure", "Standard_ND96isr_H100_v5", "ubuntu-22.04", "default"),
    ("gcp", "a3-megagpu-8g", "ubuntu-24.04", "default"),
]


def cut_in(node: Machine, step: str) -> None:
    """Run the steps, and cut the power when the step is running."""

    def steps() -> None:
        with contextlib.suppress(RuntimeError):  # The machine ended.
            node.steps()

    journal = node.host._nodes[NAME].root / "var/lib/gpuinfra/state.json"
    run = threading.Thread(target=steps, daemon=True)
    run.start()
    status = ""
    while status not in ("running", "done") and run.is_alive():
        time.sleep(0.002)
        if journal.exists():
            entries = {one["id"]: one["status"] for one in json.loads(journal.read_text(encoding="utf-8"))["steps"]}
            status = entries[step]
    assert status == "running", (step, status)
    node.reboot()
    run.join(60)
    assert not run.is_alive()


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("cloud", "machine", "os_name", "image"), BUNDLES)
def test_a_power_cut_in_each_step(host: NodeHost, cloud: str, machine: str, os_name: str, image: str) -> None:
    """The power is cut once in each step. The node ends verified, with the packages, holds, units and modules of an undisturbed node."""
    pool = pool_of(cloud, machine, os_name, image)
    node = Machine(host, pool)
    node.launch(cloud)
    for step in pool.steps:
        cut_in(node, step.id)
    code, said, _ = node.through()
    assert code == 0, said
    golden = json.loads((GOLDEN / f"{machine}-{os_name}-{image}.json").read_text(encoding="utf-8"))
    final = node.final()
    # A step that was cut after its change counts as changed, and one that finds the change of the cut run as found.
    assert set(final.pop("steps")) == set(golden.pop("steps"))
    assert final == golden
    is_verified(node)
