"""The nodes of a stack, read from its state. This is the only module that parses the output of `NodesReady`.

It does not call the cloud. Run `pulumi refresh` to update the state first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpuinfra.handover.shortages import Shortage
from gpuinfra.handover.text import host_keys
from gpuinfra.handover.wire import TYPE
from gpuinfra.handover.wire import shortages_of as _shortages_of

IDENTIFIED = frozenset({"verified", "failed"})
"""Outcomes of nodes whose evidence has a verified signer."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node at the time of the last update or refresh."""

    name: str
    """Label, such as `gpu-1`, numbered by launch order within the pool."""
    id: str
    """Instance ID in the cloud."""
    pool: str = ""
    group: str = ""
    machine: str = ""
    zone: str = ""
    address: str = ""
    """Private address, or an empty string if the cloud has not assigned an address."""
    resource: str = ""
    """Resource ID in the cloud, which tunnels require (Google Cloud, Azure)."""
    outcome: str = ""
    gpus: int = 0
    gpu_uuids: tuple[str, ...] = ()
    host_keys: tuple[str, ...] = ()
    """SSH host keys from signed evidence, as type and key. Empty if the signer was not verified."""
    evidence_sha256: str = ""

    @property
    def verified(self) -> bool:
        """Whether a scheduler may use the node."""
        return self.outcome == "verified"


def handovers_of(resources: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the `NodesReady` resources of a state."""
    return [resource for resource in resources if resource.get("type") == TYPE]


def nodes_of(resources: Iterable[Mapping[str, Any]]) -> tuple[Node, ...]:
    """Return the nodes of every `NodesReady` resource in a state or part of a state."""
    outputs = [resource.get("outputs") or {} for resource in handovers_of(resources)]
    entries = [entry for one in outputs for entry in one.get("nodes") or []]
    return tuple(_node(entry) for entry in entries if isinstance(entry, Mapping) and entry.get("instanceId"))


def shortages_of(resources: Iterable[Mapping[str, Any]]) -> list[Shortage]:
    """Return the groups that lacked nodes when the `NodesReady` resources in a state were judged, and why."""
    return [shortage for one in handovers_of(resources) for shortage in _shortages_of(one.get("outputs") or {})]


def _node(entry: Mapping[str, Any]) -> Node:
    outcome = _text(entry, "outcome")
    return Node(
        name=_text(entry, "label"),
        id=_text(entry, "instanceId"),
        pool=_text(entry, "pool"),
        group=_text(entry, "group"),
        machine=_text(entry, "machine"),
        zone=_text(entry, "zone"),
        address=_text(entry, "privateIp"),
        resource=_text(entry, "resource"),
        outcome=outcome,
        gpus=int(entry.get("gpus") or 0),
        gpu_uuids=tuple(str(uuid) for uuid in entry.get("gpuUuids") or []),
        host_keys=host_keys(entry.get("sshHostKeys")) if outcome in IDENTIFIED else (),
        evidence_sha256=_text(entry, "evidenceSha256"),
    )


def _text(entry: Mapping[str, Any], key: str) -> str:
    return str(entry.get(key) or "")
