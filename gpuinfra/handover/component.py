"""`NodesReady`: the resource that a program waits on before it hands a cluster over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from gpuinfra.handover.wire import TYPE


@dataclass(frozen=True, kw_only=True)
class GroupReady:
    """One autoscaling group, scale set or managed instance group whose nodes have to prove themselves."""

    name: str
    """The plan's name of the group, `gpu-reserved-0`."""
    group: pulumi.Input[str]
    """The cloud's name of the group."""
    count: int
    template_id: pulumi.Input[str] | None = None
    template_version: pulumi.Input[int | str] | None = None
    """Version that its nodes have to run; a node of another one is refused."""


@dataclass(frozen=True, kw_only=True)
class PoolReady:
    """Nodes of one kind, and what a healthy one shows."""

    name: str
    machine: str
    groups: Sequence[GroupReady]
    expectation: Mapping[str, object]
    """The content of the pool's `expectation.json`."""
    bundle_sha256: pulumi.Input[str]
    """Nodes that were set up by another bundle are refused."""
    node_role: pulumi.Input[str] | None = None
    """Name of the role that the nodes run under. Left out: any role of the account, which is weaker."""
    evidence_owner: pulumi.Input[str] | None = None
    """Unique id of that role, where the store's rules name the writer by it."""


@dataclass(frozen=True, kw_only=True)
class NodesReadyArgs:
    """Who should be there, where their evidence lies, and how long to wait."""

    cloud: str
    cluster: str
    region: pulumi.Input[str]
    evidence_bucket: pulumi.Input[str]
    evidence_prefix: pulumi.Input[str]
    pools: Sequence[PoolReady]
    wait: str = "all"
    """`all`, `floor`, `none`."""
    floor: int | None = None
    """With `wait="floor"`: how many verified nodes are enough."""
    deadline_s: int = 2700
    """Seconds until `up` gives up. `GPUINFRA_DEADLINE` shortens it for one run."""
    profile: str | None = None
    """Named profile of the operator. Left out: the environment's credentials."""
    role_arn: pulumi.Input[str] | None = None
    """Role that the operator assumes to look. Left out: none."""
    triggers: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    """Any value whose change should make the nodes prove themselves again."""


class NodesReady(pulumi.CustomResource):
    """All nodes of a cluster, verified.

    Creation ends when every node that should be there has put down evidence, under an identity that the cloud vouches
    for, that passes every check its machine requires. It fails with nodes, findings and what to do, and keeps its state.
    """

    ready: pulumi.Output[bool]
    """True when as many nodes as `wait` asks for are verified."""
    nodes_verified: pulumi.Output[int]
    gpus_verified: pulumi.Output[int]
    nodes: pulumi.Output[list[Any]]
    """One entry per node: label, instanceId, pool, group, outcome, reason, bootId, evidenceSha256, sshHostKeys, ..."""
    summary: pulumi.Output[str]

    def __init__(self, name: str, args: NodesReadyArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        props: dict[str, object] = {
            "cloud": args.cloud,
            "cluster": args.cluster,
            "region": args.region,
            "evidenceBucket": args.evidence_bucket,
            "evidencePrefix": args.evidence_prefix,
            "pools": [_pool(pool) for pool in args.pools],
            "wait": args.wait,
            "floor": args.floor,
            "deadlineS": args.deadline_s,
            "profile": args.profile,
            "roleArn": args.role_arn,
            "triggers": dict(args.triggers) or None,
            **dict.fromkeys(_OUTPUTS),
        }
        super().__init__(TYPE, name, props, opts)

    def translate_output_property(self, prop: str) -> str:
        """Python's name of an output that the engine names in camelCase."""
        return next((ours for ours, wire in _OUTPUTS.items() if wire == prop), prop)

    def translate_input_property(self, prop: str) -> str:
        """The engine's name of an output that Python names with underscores."""
        return _OUTPUTS.get(prop, prop)


_OUTPUTS = {
    "ready": "ready",
    "nodes_verified": "nodesVerified",
    "gpus_verified": "gpusVerified",
    "nodes": "nodes",
    "summary": "summary",
}


def _pool(pool: PoolReady) -> dict[str, object]:
    return {
        "name": pool.name,
        "machine": pool.machine,
        "bundleSha256": pool.bundle_sha256,
        "expectation": dict(pool.expectation),
        "nodeRole": pool.node_role,
        "evidenceOwner": pool.evidence_owner,
        "groups": [
            {
                "name": group.name,
                "group": group.group,
                "count": group.count,
                "templateId": group.template_id,
                "templateVersion": None
                if group.template_version is None
                else pulumi.Output.from_input(group.template_version).apply(str),
            }
            for group in pool.groups
        ],
    }
