"""Evidence of a stack's own nodes: who should be there, and what lies in its bucket under an identity that holds.

It looks through the ports of the handover, once, and waits for nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuinfra.handover import wire
from gpuinfra.handover.connect import connect
from gpuinfra.handover.explain import hint
from gpuinfra.handover.judge import FleetVerdict, NodeVerdict
from gpuinfra.handover.provider import judge_node
from gpuinfra.handover.watch import Gatherer
from gpuinfra.verification.read import Absent, Evidence, Found, parse

ABOUT = (
    "Read from the stack's evidence bucket, for the machines that its groups hold now; "
    "the cloud vouches for who wrote each."
)


def gates_of(resources: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The `NodesReady` of a state; each says where evidence lies and what a healthy node shows."""
    return [one for one in resources if one.get("type") == wire.TYPE]


def found_of(gates: Sequence[Mapping[str, Any]]) -> tuple[Found, dict[str, Mapping[str, Any]]]:
    """What there is, and instance id -> what that machine should show. Raises `PortUnavailable`."""
    newest: list[Evidence] = []
    absent: list[Absent] = []
    expected: dict[str, Mapping[str, Any]] = {}
    for gate in gates:
        outputs: Mapping[str, object] = gate.get("outputs") or {}
        # After a failed update the engine keeps the inputs from before it; what was wanted is among the outputs.
        inputs = wire.inputs_of(outputs)
        pools = wire.pools_of(inputs)
        shows = {pool.name: pool.expectation for pool in pools}
        gatherer = Gatherer(connect(inputs), pools, judge_node=judge_node, trusted=wire.trusted_of(outputs, pools))
        verdict = gatherer.poll(wire.names_of(outputs))
        for node in verdict.nodes:
            one = _evidence(gatherer, node)
            if one is None:
                absent.append(_silent(node))
            else:
                newest.append(one)
                expected[node.instance_id] = shows[node.pool]
        absent += _never_launched(verdict)
    return Found(newest=tuple(newest), absent=tuple(absent), about=ABOUT), expected


def _evidence(gatherer: Gatherer, node: NodeVerdict) -> Evidence | None:
    """What a node said, where it counts: not what nobody vouches for, nor what another bundle made."""
    data = gatherer.data_of(node) if node.outcome in ("verified", "failed") else None
    one = parse(data, node.evidence_key, node.label) if data is not None else None
    return one if isinstance(one, Evidence) else None


def _silent(node: NodeVerdict) -> Absent:
    return Absent(
        name=node.label,
        instance_id=node.instance_id,
        pool=node.pool,
        machine=node.machine,
        gpus=node.gpus_expected,
        outcome="no evidence" if node.outcome == "waiting" else node.outcome,
        reason=node.reason,
        hint=hint(node),
    )


def _never_launched(verdict: FleetVerdict) -> list[Absent]:
    return [
        Absent(
            name=group,
            outcome="not there",
            reason=f"its group holds {count} node{'s' if count > 1 else ''} fewer than it should",
            hint="look at the group's activities in the cloud's console, then run `pulumi up` again",
        )
        for group, count in verdict.missing.items()
    ]
