"""Access of containers to the metadata service on stand-in nodes."""

from __future__ import annotations

import json
from typing import Any

from gpuinfra.plan.model import PoolPlan
from gpuinfra_rehearsal.nodes import NodeHost
from rehearsal.tests.nodes.machines import Machine, host, metadata, pool_of
from tests.plan.pools import with_steps

__all__ = ["host", "metadata"]

NODE_PART = "/opt/gpuinfra/current/node.pyz"
TABLE = ("nft", "list", "table", "inet", "gpuinfra_metadata")


def only(pool: PoolPlan) -> PoolPlan:
    """The one step under test."""
    return with_steps(pool, "72-metadata")


def pool(cloud: str = "gcp", machine: str = "a2-highgpu-1g", *, reach: bool = False) -> PoolPlan:
    """A pool of a cloud without a hop limit."""
    return only(pool_of(cloud, machine, "ubuntu-22.04", "plain", containers_reach_metadata=reach))


def judged(node: Machine) -> dict[str, Any] | None:
    """The outcome of the check on the node; None if it is not required."""
    said = node.run("python3", NODE_PART, "verify", "--json", "--phase", "correctness")[1]
    assert "{" in said, said
    document = json.loads(said[said.index("{") :].rpartition("}")[0] + "}")
    return next((one for one in document["checks"] if one["id"] == "C4"), None)


def test_container_access_is_blocked_at_every_boot_and_allowed_where_declared(host: NodeHost) -> None:
    """The rules exist after the step and after a reboot, loading them again changes nothing, and `true` removes them."""
    node = Machine(host, pool())
    node.launch("gcp")
    code, said = node.steps()
    assert code == 0, said
    shown = node.run(*TABLE)[1]
    rules = [line.split() for line in shown.splitlines() if "daddr" in line]
    assert [(rule[0], rule[2], rule[-1]) for rule in rules] == [
        ("ip", "169.254.169.254", "drop"),
        ("ip6", "fd20:ce::254", "drop"),
    ]
    assert "hook forward" in shown
    assert "hook output" not in shown
    assert (judged(node) or {})["outcome"] == "pass"
    code, said = node.steps("--again")
    assert "none made changes" in said, said
    node.reboot()
    assert node.run("systemctl", "is-active", "gpuinfra-metadata.service")[1] == "active\n"
    assert node.run(*TABLE)[1] == shown

    node.pool = pool(reach=True)
    node.unpack()
    code, said = node.steps()
    assert code == 0, said
    assert node.run(*TABLE)[0] == 1
    assert node.run("ls", "/etc/gpuinfra/metadata.nft", "/etc/systemd/system/gpuinfra-metadata.service")[0] == 2
    assert judged(node) is None
    code, said = node.steps("--again")
    assert "none made changes" in said, said
    node.reboot()
    assert node.run(*TABLE)[0] == 1


def test_flushed_rules_fail_the_check_and_are_loaded_again(host: NodeHost) -> None:
    """`nft flush ruleset` leaves the unit active; only the check fails, and the step loads the rules again."""
    node = Machine(host, pool("azure", "Standard_NC24ads_A100_v4"))
    node.launch("azure")
    code, said = node.steps()
    assert code == 0, said
    node.run("nft", "flush", "ruleset")
    found = judged(node) or {}
    assert (found["outcome"], found["reason"]) == (
        "fail",
        "containers on a bridge can reach 169.254.169.254; 168.63.129.16",
    )
    code, said = node.steps("--again")
    assert code == 0, said
    assert "none made changes" not in said
    assert (judged(node) or {})["outcome"] == "pass"
