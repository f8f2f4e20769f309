from __future__ import annotations

from typing import Any

import pytest

from gpuinfra.inventory import handovers_of, nodes_of
from tests.handover.test_host_keys import GOOD

TYPE = "gpuinfra:index:NodesReady"


def node(**more: Any) -> dict[str, Any]:
    """A node as the state keeps it."""
    return {
        "label": "gpu-1", "instanceId": "i-0abc", "pool": "gpu", "group": "gpu-spot-0", "machine": "p4d.24xlarge",
        "zone": "us-east-1a", "privateIp": "10.64.0.9", "outcome": "verified", "gpus": 8, "gpuUuids": ["GPU-1"],
        "sshHostKeys": [GOOD, f"{GOOD}\n@cert-authority * {GOOD}"], "evidenceSha256": "a", **more,
    }  # fmt: skip


def state(*nodes: dict[str, Any]) -> list[dict[str, Any]]:
    """A state with one handover."""
    return [{"type": "aws:ec2/vpc:Vpc"}, {"type": TYPE, "outputs": {"nodes": list(nodes)}}]


def test_nodes_of_a_state() -> None:
    """Every node of every handover is read, and a failed node is not verified."""
    found = nodes_of([*state(node()), *state(node(label="gpu-2", instanceId="i-0def", outcome="failed"))])
    assert [(one.name, one.id, one.verified) for one in found] == [
        ("gpu-1", "i-0abc", True),
        ("gpu-2", "i-0def", False),
    ]
    assert (found[0].address, found[0].gpus, found[0].gpu_uuids) == ("10.64.0.9", 8, ("GPU-1",))


@pytest.mark.parametrize(
    ("outcome", "keys"), [("verified", 1), ("failed", 1), ("refused", 0), ("waiting", 0), ("never reported", 0)]
)
def test_host_keys_come_only_from_evidence_with_a_verified_signer(outcome: str, keys: int) -> None:
    """Keys of a refused node are not used, and a key with a second line is dropped."""
    (found,) = nodes_of(state(node(outcome=outcome)))
    assert found.host_keys == (GOOD,) * keys


def test_a_state_without_a_handover_has_no_nodes() -> None:
    """A foundation or a site has no nodes; entries that are not nodes are skipped."""
    assert nodes_of([{"type": "aws:ec2/vpc:Vpc"}]) == ()
    assert nodes_of(state()) == ()
    assert nodes_of([{"type": TYPE, "outputs": {"nodes": ["junk", {"label": "gpu-1"}]}}, {"type": TYPE}]) == ()
    assert len(handovers_of(state())) == 1
