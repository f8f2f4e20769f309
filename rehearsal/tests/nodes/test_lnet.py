"""Lustre over EFA on stand-in nodes: configuration, reboot, and a silent fallback to TCP."""

from __future__ import annotations

import json

import pytest

from gpuinfra_rehearsal.nodes import NodeHost
from rehearsal.tests.nodes.machines import Machine, host, metadata, pool_of
from tests.plan.pools import with_steps

__all__ = ["host", "metadata"]

NODE_PART = "/opt/gpuinfra/current/node.pyz"
ONE = """import json, sys
print(json.dumps(next(one for one in json.load(sys.stdin)["checks"] if one["id"] == "L3")))"""
OVER_EFA = {"fabric": True, "throughput_mb_s_per_tib": 500, "capacity_gib": 19200}


def node_of(host: NodeHost, machine: str, *faults: str) -> Machine:
    """A machine on AWS's GPU image with the step of Lustre, and that of the NVSwitch bridges where it has them."""
    node = Machine(host, pool_of("aws", machine, "ubuntu-22.04", "default", lustre=OVER_EFA))
    node.pool = with_steps(node.pool, "33-nvlink-subnet-manager", "60-lustre")
    node.launch("aws", faults=faults)
    return node


def judged(node: Machine) -> dict[str, str]:
    """The outcome of the check on the node."""
    said = node.run("bash", "-c", f"python3 {NODE_PART} verify --json --phase correctness | python3 -c '{ONE}'")[1]
    check = json.loads(said.splitlines()[-1])
    return {"outcome": check["outcome"], "reason": check["reason"]}


@pytest.mark.parametrize(
    ("machine", "devices"), [("p5.48xlarge", 8), pytest.param("p5en.48xlarge", 2, marks=pytest.mark.long)]
)
def test_lustre_uses_efa_at_every_boot(host: NodeHost, machine: str, devices: int) -> None:
    """LNet has the number of devices that AWS documents, evenly spaced; after a reboot the unit configures it again."""
    node = node_of(host, machine)
    code, said = node.steps()
    assert code == 0, said
    assert node.state["recorded"]["lnet_efa"] == str(devices)
    shown = node.run("lnetctl", "net", "show", "--net", "efa")[1]
    assert shown.count("status: up") == devices
    names = node.run("ls", "/sys/class/infiniband")[1].split()
    every = len(names) // devices
    assert [line.split()[1] for line in shown.splitlines() if " 0: " in line or ": rdmap" in line] == names[::every]
    assert judged(node)["outcome"] == "pass"
    code, said = node.steps("--again")
    assert "none made changes" in said, said
    node.reboot()
    assert node.run("systemctl", "is-active", "gpuinfra-lnet.service")[1] == "active\n"
    assert node.run("lnetctl", "net", "show", "--net", "efa")[1] == shown
    assert judged(node)["outcome"] == "pass"


def test_lustre_uses_no_bridge_of_the_switches(host: NodeHost) -> None:
    """On B200 and B300, /sys/class/infiniband also lists ConnectX bridges to the NVSwitches; LNet gets EFA devices only."""
    node = node_of(host, "p6-b300.48xlarge")
    code, said = node.steps()
    assert code == 0, said
    names = set(node.run("ls", "/sys/class/infiniband")[1].split())
    assert {"ibp198s0f0", "ibp199s0f0"} <= names
    assert len(names) > 2
    assert "ibp" not in node.run("lnetctl", "net", "show", "--net", "efa")[1]
    ports = json.loads(node.run("python3", NODE_PART, "ports")[1])["ports"]
    assert not [port for port in ports if port["device"].startswith("ibp")]


def test_a_fallback_to_tcp_fails_the_step_and_the_check(host: NodeHost) -> None:
    """With a missing security group rule the mount still accepts writes; only the counters of EFA show it."""
    node = node_of(host, "p5.48xlarge", "lustre-over-tcp")
    code, said = node.steps()
    assert code == 1
    assert "no messages were received over EFA, so Lustre uses TCP" in said
    assert "security groups" in said
    assert judged(node) == {"outcome": "fail", "reason": "no messages were received over EFA, so Lustre uses TCP"}
