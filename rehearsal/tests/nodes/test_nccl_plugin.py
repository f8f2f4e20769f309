"""NCCL on a stand-in node: which network it selects, and what check B4 says when it is not the fabric."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuinfra_rehearsal.nodes import NodeHost
from rehearsal.tests.nodes.machines import LONG, Machine, host, metadata, pool_of
from tests.plan.pools import with_steps

__all__ = ["host", "metadata"]

STEPS = {"20-kernel", "30-driver", "40-cuda", "45-nccl", "48-docker", "50-efa", "50-infiniband", "50-gib", "50-tcpxo"}
MACHINES = {
    "aws": "p4d.24xlarge",
    "azure": "Standard_ND96isr_H200_v5",
    "gcp": "a3-ultragpu-8g",
    "tcpxo": "a3-megagpu-8g",
}
NETWORKS = {"aws": "Libfabric", "azure": "IB", "gcp": "gIB", "tcpxo": "FasTrak"}


def started(host: NodeHost, place: str, *faults: str) -> Machine:
    """A node with driver, CUDA, NCCL and fabric."""
    cloud = "gcp" if place == "tcpxo" else place
    node = Machine(
        host, pool_of(cloud, MACHINES[place], "ubuntu-22.04" if cloud == "aws" else "ubuntu-24.04", "default")
    )
    node.pool = with_steps(node.pool, *STEPS)
    node.launch(cloud, faults=faults)
    code, said, _ = node.through()
    assert code == 0, said
    return node


def judged(node: Machine) -> dict[str, Any]:
    """The outcome of B4, as the unit that verifies the node sees it."""
    _, said = node.run("python3", "/opt/gpuinfra/current/node.pyz", "verify", "--json", "--phase", "speed")
    checks = json.loads(said[said.index("{") : said.rindex("}") + 1])["checks"]
    return next(one for one in checks if one["id"] == "B4")


@pytest.mark.parametrize("place", ["aws", *(pytest.param(name, marks=LONG) for name in ("azure", "gcp", "tcpxo"))])
def test_nccl_uses_the_fabric(host: NodeHost, place: str) -> None:
    """On a healthy node NCCL loads the plugin of the fabric and sees every device; without the plugin's file or its variables it does not."""
    node = started(host, place)
    outcome = judged(node)
    assert (outcome["outcome"], outcome["found"]) == ("pass", [NETWORKS[place]]), outcome
    if place == "aws":
        # The installer's variant for NGC containers has this name only, which NCCL does not look for.
        old = "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net.so"
        rename = f"find /opt/amazon/ofi-nccl -name libnccl-net.so -delete; echo aws-ofi-nccl >{old[:-3]}-ofi.so"
        assert node.run("bash", "-c", rename)[0] == 0
        outcome = judged(node)
        assert outcome["outcome"] == "fail"
        assert "NCCL uses Socket; NET/Plugin: Could not find: libnccl-net.so" in outcome["reason"]
    elif place == "azure":
        assert node.run("rm", "/opt/microsoft/ndv5-topo.xml")[0] == 0
        assert "Could not open XML topology file /opt/microsoft/ndv5/topo.xml" in judged(node)["reason"]
    else:
        plugin = "/usr/local/gib/lib64" if place == "gcp" else "/var/lib/tcpxo/lib64"
        assert node.run("rm", f"{plugin}/libnccl-net.so")[0] == 0
        assert "Could not find: libnccl-net.so" in judged(node)["reason"]


CAUSES = {
    ("aws", "nccl-library-broken"): "NCCL uses Socket; NET/Plugin: libnccl-net.so: libnl-route-3.so.200: cannot open shared object file",
    ("aws", "nccl-environment"): "NCCL uses Socket; NCCL_NET_PLUGIN set by environment to none",
    ("aws", "efa-missing"): "NCCL uses 3 of 4 devices",
    ("azure", "nccl-library-broken"): "Failed to open libibverbs.so[.1]; Failed to initialize NET plugin IB",
    ("azure", "nccl-environment"): "NCCL_IB_DISABLE set by environment to 1",
    ("azure", "fabric-port-down"): "NCCL uses 7 of 8 devices",
    ("gcp", "nccl-library-broken"): "NET/Plugin: libnccl-net.so: libnl-route-3.so.200: cannot open shared object file",
    ("gcp", "nccl-environment"): "NCCL_NET_PLUGIN set by environment to none",
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(("place", "fault"), CAUSES)
def test_the_reason_names_the_cause(host: NodeHost, place: str, fault: str) -> None:
    """A node whose NCCL does not use every device of the fabric is not verified, and the reason has NCCL's own line."""
    outcome = judged(started(host, place, fault))
    assert outcome["outcome"] in ("fail", "error")
    assert CAUSES[place, fault] in outcome["reason"], outcome
