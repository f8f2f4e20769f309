"""Declared packages on stand-in nodes of three clouds."""

from __future__ import annotations

import json

import pytest

from gpuinfra.plan.model import PoolPlan
from gpuinfra_rehearsal.nodes import NodeHost
from rehearsal.tests.nodes.machines import NAME, Machine, host, metadata, pool_of
from rehearsal.tests.nodes.test_containers import judged
from rehearsal.tests.nodes.test_own_steps import only

__all__ = ["host", "metadata"]


def pool(cloud: str, machine: str, *packages: str) -> PoolPlan:
    """A plain pool with declared packages, and only the steps that they depend on."""
    made = pool_of(cloud, machine, "ubuntu-22.04", "plain", software={"packages": list(packages)})
    return only(made, "10-prepare", "90-holds", "95-packages")


@pytest.mark.parametrize(
    ("cloud", "machine"),
    [
        ("aws", "g6.12xlarge"),
        pytest.param("azure", "Standard_NC24ads_A100_v4", marks=pytest.mark.long),
        pytest.param("gcp", "a2-highgpu-1g", marks=pytest.mark.long),
    ],
)
def test_packages_are_installed_after_the_holds(host: NodeHost, cloud: str, machine: str) -> None:
    """A package with a version is held, a second run changes nothing, and a changed version is installed and held."""
    node = Machine(host, pool(cloud, machine, "htop", "nvme-cli=2.8-1"))
    node.launch(cloud)
    code, said, _ = node.through()
    assert code == 0, said

    def installed() -> dict[str, tuple[str, bool]]:
        standin = json.loads((host._nodes[NAME].folder / "standin.json").read_text(encoding="utf-8"))
        return {
            name: (standin["packages"][name]["version"], bool(standin["packages"][name].get("hold")))
            for name in ("htop", "nvme-cli")
        }

    assert installed() == {"htop": ("1.0-1", False), "nvme-cli": ("2.8-1", True)}
    assert judged(node, "S2", phase="presence")["S2"]["outcome"] == "pass"
    code, said = node.steps("--again")
    assert "none made changes" in said, said
    node.pool = pool(cloud, machine, "htop", "nvme-cli=2.7-1")
    node.unpack()
    code, said, _ = node.through()
    assert code == 0, said
    assert installed()["nvme-cli"] == ("2.7-1", True)
