"""Reads the evidence of the nodes that are currently in a stack's groups, from the stack's bucket.

This module uses the ports of the handover. `poll` reads once, and `await_nodes` waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuinfra.base.errors import DeploymentError
from gpuinfra.base.words import counted
from gpuinfra.handover import trust, wire
from gpuinfra.handover.causes import WaitEnd
from gpuinfra.handover.connect import connect, terms_of
from gpuinfra.handover.examine import judge_node
from gpuinfra.handover.explain import hint, reasons
from gpuinfra.handover.gather import Gatherer
from gpuinfra.handover.judge import FleetVerdict, NodeVerdict, PoolExpected
from gpuinfra.handover.ports import EvidenceStore
from gpuinfra.handover.relay import FabricRelay
from gpuinfra.handover.watch import watch
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
    inputs, pools, store, gatherer = _connected(outputs)
    cluster = str(inputs.get("cluster"))
    verdict = gatherer.poll(wire.names_of(outputs))
    relay = FabricRelay(store, cluster, pools)
    return Poll(pools=pools, gatherer=gatherer, verdict=verdict, store=store, cluster=cluster, relay=relay)


def _connected(
    outputs: Mapping[str, object],
) -> tuple[wire.Properties, Sequence[PoolExpected], EvidenceStore, Gatherer]:
    # After a failed update, the engine keeps the previous inputs. The requested inputs are among the outputs.
    inputs = wire.inputs_of(outputs)
    pools, ports = wire.pools_of(inputs), connect(inputs)
    gatherer = Gatherer(ports, pools, judge_node=judge_node, trusted=wire.trusted_of(outputs, pools))
    return inputs, pools, ports.store, gatherer


def await_nodes(resources: Sequence[Mapping[str, Any]], log: Callable[[str], None]) -> str:
    """Wait until the nodes of a stack are verified, as `pulumi up` does, without a deployment. Returns their number in words.

    Raises `DeploymentError` with the reason for each node if they are not, and `PortUnavailable`.
    """
    verified = expected = 0
    for handover in handovers_of(resources):
        outputs: Mapping[str, object] = handover.get("outputs") or {}
        inputs, pools, store, gatherer = _connected(outputs)
        try:
            declared = wire.wait_of(inputs, wire.deadline())
        except ValueError as problem:
            raise DeploymentError(str(problem)) from None
        # A declaration without a wait concerns `pulumi up`.
        wait = replace(declared, mode="all") if declared.mode == "none" else declared
        names, never = wire.names_of(outputs), threading.Event()
        outcome = watch(
            gatherer,
            wait,
            log=log,
            cancelled=never,
            names=names,
            relay=FabricRelay(store, str(inputs.get("cluster")), pools),
        )
        if not outcome.ready and outcome.ended is not WaitEnd.NOT_DUE:
            raise DeploymentError("\n  ".join(reasons(outcome, str(inputs.get("cloud")))))
        verified, expected = verified + outcome.verdict.verified, expected + outcome.verdict.expected
    if not verified:
        raise DeploymentError("no nodes are expected now, so none are verified; set `count` in the stack file")
    return f"{verified} of {counted(expected, 'node')} verified"


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
