"""Reads the evidence of the nodes that are currently in a stack's groups, from the stack's bucket.

This module reads once, through the ports of the handover, and does not wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuinfra.handover import trust, wire
from gpuinfra.handover.connect import connect, terms_of
from gpuinfra.handover.examine import judge_node
from gpuinfra.handover.explain import hint
from gpuinfra.handover.gather import Gatherer
from gpuinfra.handover.judge import FleetVerdict, NodeVerdict, PoolExpected
from gpuinfra.handover.ports import EvidenceStore
from gpuinfra.handover.relay import FabricRelay
from gpuinfra.inventory import handovers_of
from gpuinfra.spec.monitoring import CONTROL_POOL
from gpuinfra.verification.read import NO_EVIDENCE, NOT_LAUNCHED, Absent, EvidenceDocument, FoundEvidence, parse

ABOUT = "Read from the stack's evidence bucket for the nodes that are currently in its groups; the cloud verified each signer."


@dataclass(frozen=True, kw_only=True)
class Poll:
    """The current state of one handover, read from the cloud."""

    pools: Sequence[PoolExpected]
    gatherer: Gatherer
    verdict: FleetVerdict
    store: EvidenceStore
    cluster: str
    relay: FabricRelay | None = None
    """Runs the fabric tests, if a command waits for the nodes. A command that reads once does not use it, and writes nothing."""

    @property
    def controlled(self) -> bool:
        """Whether one of the pools is that of the control node."""
        return any(pool.name == CONTROL_POOL for pool in self.pools)


def poll(handover: Mapping[str, Any]) -> Poll:
    """Read the current groups and evidence of a `NodesReady` resource. Raises `PortUnavailable`."""
    outputs: Mapping[str, object] = handover.get("outputs") or {}
    # After a failed update, the engine keeps the previous inputs. The requested inputs are among the outputs.
    inputs = wire.inputs_of(outputs)
    pools = wire.pools_of(inputs)
    ports = connect(inputs)
    gatherer = Gatherer(ports, pools, judge_node=judge_node, trusted=wire.trusted_of(outputs, pools))
    cluster = str(inputs.get("cluster"))
    relay = FabricRelay(ports.store, cluster, pools)
    verdict = gatherer.poll(wire.names_of(outputs))
    return Poll(pools=pools, gatherer=gatherer, verdict=verdict, store=ports.store, cluster=cluster, relay=relay)


def polled(resources: Sequence[Mapping[str, Any]]) -> tuple[Poll, ...]:
    """Read the groups and evidence of each handover of a stack. Raises `PortUnavailable`."""
    return tuple(poll(handover) for handover in handovers_of(resources))


def found_of(resources: Sequence[Mapping[str, Any]]) -> tuple[FoundEvidence, dict[str, Mapping[str, Any]]]:
    """Return the evidence of a stack's nodes, and instance ID -> expectation. Raises `PortUnavailable`."""
    return found_in(polled(resources), resources)


def found_in(
    polls: Sequence[Poll], resources: Sequence[Mapping[str, Any]]
) -> tuple[FoundEvidence, dict[str, Mapping[str, Any]]]:
    """Return the evidence that was read, and instance ID -> expectation."""
    newest: list[EvidenceDocument] = []
    absent: list[Absent] = []
    expected: dict[str, Mapping[str, Any]] = {}
    for seen in polls:
        expectations = {pool.name: pool.expectation for pool in seen.pools}
        for node in seen.verdict.nodes:
            document = _evidence(seen.gatherer, node)
            if document is None:
                absent.append(_without_evidence(node))
            else:
                newest.append(document)
                expected[node.instance_id] = expectations[node.pool]
        absent += _never_launched(seen)
    clouds = dict.fromkeys(str((one.get("outputs") or {}).get("cloud")) for one in handovers_of(resources))
    about = " ".join([ABOUT, *filter(None, map(trust.stated, clouds))])
    return FoundEvidence(newest=tuple(newest), absent=tuple(absent), about=about), expected


def used_evidence(seen: Poll, pool: str) -> dict[str, Mapping[str, Any] | str]:
    """Return the evidence of each node of a pool by label, or the reason why a node has no verified evidence. Raises `PortUnavailable`."""
    used: dict[str, Mapping[str, Any] | str] = {}
    for node in seen.verdict.nodes:
        if node.pool == pool:
            document = _evidence(seen.gatherer, node)
            used[node.label] = document.document if document else f"{node.outcome}: {node.reason}"
    return used


def _evidence(gatherer: Gatherer, node: NodeVerdict) -> EvidenceDocument | None:
    """Return the evidence if it is from the current bundle and its signer is verified, otherwise None."""
    data = gatherer.data_of(node) if node.outcome in ("verified", "failed") else None
    document = parse(data, node.evidence_key, node.label) if data is not None else None
    return document if isinstance(document, EvidenceDocument) else None


def _without_evidence(node: NodeVerdict) -> Absent:
    return Absent(
        name=node.label,
        instance_id=node.instance_id,
        pool=node.pool,
        machine=node.machine,
        gpus=node.gpus_expected,
        outcome=NO_EVIDENCE if node.outcome == "waiting" else node.outcome,
        reason=node.reason,
        hint=hint(node),
    )


def _never_launched(seen: Poll) -> list[Absent]:
    cloud_of = {group.name: pool.cloud for pool in seen.pools for group in pool.groups}
    return [
        Absent(
            name=group,
            outcome=NOT_LAUNCHED,
            reason=f"the group has {count} fewer node{'s' if count > 1 else ''} than requested",
            hint=f"{terms_of(cloud_of[group]).activities}, then run `pulumi up` again",
        )
        for group, count in seen.verdict.missing.items()
    ]
