"""What exists: one schema for all clouds, read from a stack's state.

The handover writes who is there and what they proved (`NodesReady`); this makes records of it, for people, for the fleet
over SSH and for schedulers. It asks no cloud: `pulumi refresh` does, and the state then says it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gpuinfra.handover.wire import TYPE

SCHEMA = "gpuinfra.inventory/1"


@dataclass(frozen=True, kw_only=True)
class Node:
    """One node as the last look found it."""

    name: str
    """`gpu-1`: launch order within its pool."""
    id: str
    """The cloud's own id of it."""
    pool: str
    group: str
    machine: str
    zone: str
    address: str
    """Private address; empty where the cloud had not given one yet."""
    verified: bool
    outcome: str
    gpus: int
    gpu_uuids: tuple[str, ...]
    host_keys: tuple[str, ...]
    """SSH host keys that the node's signed evidence vouches for; none for a node that is not verified."""
    evidence_sha256: str


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """Everything of one cluster that a person or a program wants to reach."""

    cluster: str
    cloud: str
    region: str
    nodes: tuple[Node, ...]

    @property
    def verified(self) -> tuple[Node, ...]:
        """Nodes that a scheduler may take."""
        return tuple(node for node in self.nodes if node.verified)

    def known_hosts(self) -> str:
        """Lines for OpenSSH's known_hosts: every key comes from evidence whose signer was verified."""
        rows = [f"{node.id},{node.address} {key}" for node in self.verified if node.address for key in node.host_keys]
        return "".join(f"{row}\n" for row in rows)

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {"schema": SCHEMA, **asdict(self)}


def from_state(resources: Iterable[Mapping[str, Any]]) -> tuple[Inventory, ...]:
    """The inventories of a state: one for each `NodesReady` in it."""
    found = []
    for resource in resources:
        if resource.get("type") == TYPE:
            outputs = resource.get("outputs") or {}
            found.append(
                Inventory(
                    cluster=str(outputs.get("cluster", "")),
                    cloud=str(outputs.get("cloud", "")),
                    region=str(outputs.get("region", "")),
                    nodes=tuple(_node(node) for node in outputs.get("nodes") or []),
                )
            )
    return tuple(found)


def _node(node: Mapping[str, Any]) -> Node:
    verified = node.get("outcome") == "verified"
    return Node(
        name=str(node["label"]),
        id=str(node["instanceId"]),
        pool=str(node["pool"]),
        group=str(node.get("group", "")),
        machine=str(node.get("machine", "")),
        zone=str(node.get("zone", "")),
        address=str(node.get("privateIp") or ""),
        verified=verified,
        outcome=str(node.get("outcome", "")),
        gpus=int(node.get("gpus") or 0),
        gpu_uuids=tuple(str(uuid) for uuid in node.get("gpuUuids") or []),
        host_keys=tuple(_key(key) for key in node.get("sshHostKeys") or []) if verified else (),
        evidence_sha256=str(node.get("evidenceSha256") or ""),
    )


def _key(line: object) -> str:
    """Type and key of a public key line: a comment is the node's own text and could hold anything."""
    return " ".join(str(line).split()[:2])
