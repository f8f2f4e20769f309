"""Docker and enroot on stand-in nodes of three clouds: plain images, images that contain Docker, and what breaks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from gpuinfra.plan.model import PoolPlan
from gpuinfra_rehearsal.nodes import NodeHost
from rehearsal.tests.nodes.machines import Machine, host, metadata, pool_of
from tests.plan.pools import with_steps

__all__ = ["host", "metadata"]

NODE_PART = "/opt/gpuinfra/current/node.pyz"
STEPS = ("30-driver", "48-docker", "70-container-toolkit", "71-enroot")
BOTH: dict[str, object] = {"containers": ["docker", "enroot"]}


def pool(cloud: str, machine: str, system: str, image: str, software: dict[str, object] | None = None) -> PoolPlan:
    """A pool with the steps of containers only."""
    made = pool_of(cloud, machine, system, image, software=BOTH if software is None else software)
    return with_steps(made, "10-prepare", "20-kernel", *STEPS)


def judged(
    node: Machine, *checks: str, environment: Mapping[str, str] | None = None, phase: str = "correctness"
) -> dict[str, dict[str, Any]]:
    """The outcomes of the checks on the node up to a phase."""
    settings = [f"{name}={value}" for name, value in (environment or {}).items()]
    # Without the messages on stderr, which can appear inside a document of more than 8 KiB.
    said = node.run("env", *settings, "sh", "-c", f"python3 {NODE_PART} verify --json --phase {phase} 2>/dev/null")[1]
    assert said.startswith("{"), said
    document = json.loads(said)
    return {one["id"]: one for one in document["checks"] if one["id"] in checks}


@pytest.mark.long
@pytest.mark.parametrize(
    ("cloud", "machine", "system", "image", "docker"),
    [
        ("aws", "g6.xlarge", "ubuntu-24.04", "plain", "29.8.1"),
        ("azure", "Standard_NC24ads_A100_v4", "ubuntu-22.04", "plain", "29.8.1"),
        ("gcp", "a2-highgpu-1g", "ubuntu-22.04", "plain", "29.8.1"),
        ("aws", "g6.xlarge", "ubuntu-22.04", "default", "28.2.2"),
        ("azure", "Standard_NC24ads_A100_v4", "ubuntu-22.04", "default", "28.5.1"),
    ],
)
def test_containers_get_gpus(host: NodeHost, cloud: str, machine: str, system: str, image: str, docker: str) -> None:
    """A plain image gets Docker and enroot at the versions of the lock, and an image keeps its Docker; a second run changes nothing."""
    node = Machine(host, pool(cloud, machine, system, image))
    node.launch(cloud)
    code, said, _ = node.through()
    assert code == 0, said
    recorded = node.state["recorded"]
    assert (recorded["docker"], recorded["enroot"]) == (docker, "4.2.1")
    found = judged(node, "C1", "C5")
    assert {name: (one["outcome"], one.get("reason")) for name, one in found.items()} == {
        "C1": ("pass", None),
        "C5": ("pass", None),
    }
    code, said = node.steps("--again")
    assert "none made changes" in said, said


@pytest.mark.long
def test_each_loss_ends_in_a_finding(host: NodeHost) -> None:
    """A lost runtime, a removed package and an unloaded AppArmor profile fail C1 or C5 with the cause, and the steps repair them."""
    node = Machine(host, pool("aws", "g6.xlarge", "ubuntu-24.04", "plain"))
    node.launch("aws")
    code, said, _ = node.through()
    assert code == 0, said
    losses = {
        "rm /etc/docker/daemon.json": ("C1", "docker has no nvidia runtime, which docker run --gpus uses"),
        "apt-get -y remove docker-ce-cli docker-ce": ("C1", "the declaration lists docker, but it is not installed"),
        "apparmor_parser --remove /etc/apparmor.d/enroot": (
            "C5",
            "an unprivileged user cannot start a container: enroot-nsenter: failed to create user namespace: Permission denied",
        ),
        "dpkg --remove enroot+caps enroot": (
            "C5",
            "an unprivileged user cannot start a container: enroot is not installed",
        ),
    }
    for command, (check, reason) in losses.items():
        node.run("bash", "-c", command)
        found = judged(node, check)[check]
        assert (found["outcome"], found["reason"]) == ("fail", reason), command
    code, said = node.steps("--again")
    assert code == 0, said
    assert {one["outcome"] for one in judged(node, "C1", "C5").values()} == {"pass"}


def test_a_changed_download_is_refused(host: NodeHost) -> None:
    """A package file with another checksum is not installed, and the step names both checksums."""
    made = pool("aws", "g6.xlarge", "ubuntu-22.04", "default", {"containers": ["enroot"]})
    node = Machine(host, with_steps(made, "71-enroot"))
    node.launch("aws", faults=("download-corrupt",))
    code, said = node.steps()
    assert code == 1, said
    assert "but the lock requires 5955c51e" in said
