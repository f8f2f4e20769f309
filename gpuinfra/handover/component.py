"""The resource that waits for verified nodes. Programs use it through the `NodesReady` component of their cloud (`gpuinfra.clouds.<cloud>.NodesReady`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from gpuinfra.handover.wire import TYPE


@dataclass(frozen=True, kw_only=True)
class GroupReady:
    """One Auto Scaling group, scale set or managed instance group whose nodes must be verified."""

    name: str
    """Name of the group in the plan, such as `gpu-reserved-0`."""
    group: pulumi.Input[str]
    """Name of the group in the cloud."""
    count: int
    template_id: pulumi.Input[str] | None = None
    template_version: pulumi.Input[int | str] | None = None
    """Template version that the group's nodes must run. Nodes with a different version are refused."""
    kind: str | None = None
    """Kind of capacity, such as `spot`, for the output `shortages`."""
    zone: str | None = None
    """The cloud's name of the zone, for the output `shortages`."""


@dataclass(frozen=True, kw_only=True)
class PoolReady:
    """A pool of identical nodes, and the expectation against which the results of their checks are judged."""

    name: str
    machine: str
    groups: Sequence[GroupReady]
    expectation: Mapping[str, object]
    """The content of the pool's `expectation.json`."""
    bundle_sha256: pulumi.Input[str]
    """Checksum of the bundle. Nodes that a different bundle set up are refused."""
    node_role: pulumi.Input[str] | None = None
    """Name of the nodes' role. Default: any role in the account, which is less strict."""
    evidence_owner: pulumi.Input[str] | None = None
    """Unique ID of that role, for stores whose access rules identify writers by it."""


@dataclass(frozen=True, kw_only=True)
class NodesVerifiedArgs:
    """The expected nodes, the location of their evidence, and how long to wait."""

    cloud: str
    cluster: str
    region: pulumi.Input[str]
    evidence_bucket: pulumi.Input[str]
    evidence_prefix: pulumi.Input[str]
    pools: Sequence[PoolReady]
    wait: str
    """`all`, `floor`, `none`."""
    floor: int | None = None
    """With `wait="floor"`: the number of verified nodes to wait for."""
    deadline_s: int
    """Seconds until `up` fails. `GPUINFRA_DEADLINE` shortens it for one run."""
    profile: str | None = None
    """The operator's named AWS profile. Default: the credentials from the environment."""
    role_arn: pulumi.Input[str] | None = None
    """AWS role that the operator assumes to read groups and evidence. Default: none."""
    assume_roles: str | None = None
    """Roles that the provider of AWS assumes, as JSON (`aws:assumeRoles`). They are assumed before `role_arn`. Default: none."""
    triggers: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    """Values that cause `up` to judge the nodes again when they change."""


class NodesVerified(pulumi.CustomResource):
    """Waits until all nodes of a cluster are verified.

    Creation completes when every expected node has uploaded evidence that is signed with an identity that the cloud confirms,
    and the evidence passes every check that the machine requires. Otherwise, creation fails and lists the nodes, the findings
    and the actions to take. The resource stays in the state.
    """

    ready: pulumi.Output[bool]
    """True when the number of verified nodes meets `wait`."""
    nodes_verified: pulumi.Output[int]
    gpus_verified: pulumi.Output[int]
    nodes: pulumi.Output[list[Any]]
    """One entry per node: label, instanceId, pool, group, outcome, reason, bootId, evidenceSha256, sshHostKeys, ..."""
    summary: pulumi.Output[str]
    ended: pulumi.Output[str]
    """Why the wait ended: a value of `gpuinfra.handover.causes.WaitEnd`, such as `ready`, `deadline` or `stock-out`."""
    shortages: pulumi.Output[list[Any]]
    """One entry per group that lacks nodes: pool, group, kind, zone, missing, cause, message, hint."""

    def __init__(self, name: str, args: NodesVerifiedArgs, opts: pulumi.ResourceOptions | None = None) -> None:
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
            "assumeRoles": args.assume_roles,
            "triggers": dict(args.triggers) or None,
            **dict.fromkeys(_OUTPUTS),
        }
        super().__init__(TYPE, name, props, opts)

    def translate_output_property(self, prop: str) -> str:
        """Return the Python name of an output that has a camelCase name in the engine."""
        return next((ours for ours, wire in _OUTPUTS.items() if wire == prop), prop)

    def translate_input_property(self, prop: str) -> str:
        """Return the engine's name of an output that has a snake_case name in Python."""
        return _OUTPUTS.get(prop, prop)


_OUTPUTS = {
    "ready": "ready",
    "nodes_verified": "nodesVerified",
    "gpus_verified": "gpusVerified",
    "nodes": "nodes",
    "summary": "summary",
    "ended": "ended",
    "shortages": "shortages",
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
                "kind": group.kind,
                "zone": group.zone,
            }
            for group in pool.groups
        ],
    }
