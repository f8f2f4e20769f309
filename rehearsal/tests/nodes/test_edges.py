"""What steps must not change, and what must happen first."""

from __future__ import annotations

import json

from gpuinfra_rehearsal.nodes import NodeHost
from rehearsal.tests.nodes.machines import NAME, Machine, host, metadata, pool_of
from tests.plan.pools import with_steps

__all__ = ["host", "metadata"]


def node_of(host: NodeHost, image: str, step: str) -> Machine:
    """A p4d with one step."""
    node = Machine(host, pool_of("aws", "p4d.24xlarge", "ubuntu-22.04", image))
    node.pool = with_steps(node.pool, step)
    node.launch("aws")
    return node


def test_a_disk_with_data_is_not_formatted(host: NodeHost) -> None:
    """The array is made of empty disks; without one the step fails."""
    node = node_of(host, "plain", "80-scratch")
    names = node.run("bash", "-c", "lsblk -dnpo NAME,MODEL | awk '/Instance Storage/ { print $1 }'")[1].split()
    assert len(names) > 2
    node.run("mkfs.ext4", "-L", "theirs", names[0])
    code, said = node.steps()
    assert code == 0, said
    assert f"created scratch from {len(names) - 1} local disks" in node.run("cat", "/var/log/gpuinfra/bootstrap.log")[1]
    assert node.run("lsblk", "-dno", "LABEL", names[0])[1].strip() == "theirs"


def test_scratch_requires_an_empty_disk(host: NodeHost) -> None:
    """Without an empty disk nothing is formatted, and the message names the disks."""
    node = node_of(host, "plain", "80-scratch")
    node.run(
        "bash",
        "-c",
        "for d in $(lsblk -dnpo NAME,MODEL | awk '/Instance Storage/ { print $1 }'); do mkfs.ext4 -L theirs $d; done",
    )
    code, said = node.steps()
    assert code == 1
    assert "no empty local disk" in said
    assert "again in" not in said


def test_nouveau_is_disabled_before_the_driver_is_checked(host: NodeHost) -> None:
    """If nouveau uses the GPUs, it is blocked and the machine reboots; then the step continues."""
    node = node_of(host, "default", "30-driver")
    path = host._nodes[NAME].folder / "standin.json"
    state = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**state, "modules": [*state["modules"], "nouveau"]}), encoding="utf-8")
    code, said = node.steps()
    assert code == 194, said
    assert "nouveau uses the GPUs" in said
    assert "blacklist nouveau" in node.run("cat", "/etc/modprobe.d/gpuinfra-nouveau.conf")[1]
    node.reboot()
    code, said = node.steps()
    assert code == 0, said
    assert node.state["recorded"]["driver_flavour"] == "open"
    assert "driver_boot" not in node.state["recorded"]  # the image brought the driver
