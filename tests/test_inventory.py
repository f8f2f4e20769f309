from __future__ import annotations

from typing import Any

from gpuinfra.inventory import from_state

TYPE = "gpuinfra:index:NodesReady"


def node(**more: Any) -> dict[str, Any]:
    """A node as the state keeps it."""
    return {
        "label": "gpu-1", "instanceId": "i-0abc", "pool": "gpu", "group": "gpu-spot-0", "machine": "p4d.24xlarge",
        "zone": "us-east-1a", "privateIp": "10.64.0.9", "outcome": "verified", "gpus": 8, "gpuUuids": ["GPU-1"],
        "sshHostKeys": ["ssh-ed25519 AAAA root@x\n@cert-authority * ssh-rsa BBBB"], "evidenceSha256": "a", **more,
    }  # fmt: skip


def state(*nodes: dict[str, Any]) -> list[dict[str, Any]]:
    """A state with one handover."""
    outputs = {"cluster": "train", "cloud": "aws", "region": "us-east-1", "nodes": list(nodes)}
    return [{"type": "aws:ec2/vpc:Vpc"}, {"type": TYPE, "outputs": outputs}]


def test_nodes_of_a_state() -> None:
    """Every node of the handover is there, and only verified ones are for a scheduler."""
    (inventory,) = from_state(state(node(), node(label="gpu-2", instanceId="i-0def", outcome="failed")))
    assert (inventory.cluster, inventory.cloud, inventory.region) == ("train", "aws", "us-east-1")
    assert [n.name for n in inventory.nodes] == ["gpu-1", "gpu-2"]
    assert [n.id for n in inventory.verified] == ["i-0abc"]
    assert inventory.as_dict()["schema"] == "gpuinfra.inventory/1"


def test_known_hosts_holds_verified_keys_and_nothing_that_a_node_can_add() -> None:
    """A key's comment, with which a node could smuggle in a line of its own, is dropped; unverified keys are left out."""
    other = node(instanceId="i-0def", outcome="refused", sshHostKeys=["ssh-ed25519 CCCC"])
    (inventory,) = from_state(state(node(), other))
    assert inventory.known_hosts() == "i-0abc,10.64.0.9 ssh-ed25519 AAAA\n"


def test_a_state_without_a_handover_has_no_inventory() -> None:
    """A foundation or a site has no nodes, and that is no error."""
    assert from_state([{"type": "aws:ec2/vpc:Vpc"}]) == ()
    assert from_state(state())[0].nodes == ()
