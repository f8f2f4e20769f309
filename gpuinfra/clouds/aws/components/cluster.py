"""A cluster on AWS: which components there are, and what each gets from the others.

Reads from top to bottom: what the cluster stands on (made here, or made by another stack), its nodes, and the handover.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from gpuinfra import naming
from gpuinfra.clouds.aws.components.audit import Foundation, FoundationArgs, evidence_prefix
from gpuinfra.clouds.aws.components.network import Network, NetworkArgs
from gpuinfra.clouds.aws.components.nodes import NodePool, NodePoolArgs
from gpuinfra.clouds.aws.components.roles import NodeRole, NodeRoleArgs
from gpuinfra.clouds.aws.components.scope import Scope
from gpuinfra.clouds.aws.components.security import Security, SecurityArgs
from gpuinfra.clouds.aws.components.storage import SharedFilesystem, SharedFilesystemArgs
from gpuinfra.clouds.aws.resources import kept_subnets
from gpuinfra.clouds.nodes_ready import hand_over
from gpuinfra.existing import Existing, Given
from gpuinfra.handover import GroupReady, PoolReady
from gpuinfra.plan.model import Plan

EXISTING = {
    "data_key_arn": Given(layer="foundation", what="key of disks, evidence and file systems"),
    "log_key_arn": Given(layer="foundation", what="key of log groups", always=False),
    "access_log_bucket": Given(
        layer="foundation", what="bucket that takes access logs of other buckets", always=False, joined=False
    ),
    "evidence_bucket": Given(layer="foundation", what="bucket of bundles and evidence"),
    "evidence_bucket_arn": Given(layer="foundation", what="ARN of that bucket"),
    "vpc_id": Given(layer="site", what="network of the nodes; given together with subnet_ids"),
    "subnet_ids": Given(layer="site", what="subnet ids by the plan's names, private-0"),
    "nodes_group_id": Given(
        layer="site", what="security group of nodes; it lets all protocols through from and to itself, by its own id"
    ),
    "file_systems": Given(layer="site", what="what nodes mount: a list of kind, mount, dns_name, mount_name"),
}
"""What a program or another stack can hand in on AWS."""


@dataclass(frozen=True, kw_only=True)
class Ground:
    """The foundation as a site or a cluster sees it, whoever made it."""

    data_key_arn: pulumi.Input[str]
    log_key_arn: pulumi.Input[str] | None
    access_log_bucket: pulumi.Input[str] | None
    evidence_bucket: pulumi.Input[str]
    evidence_bucket_arn: pulumi.Input[str]


@dataclass(frozen=True, kw_only=True)
class Place:
    """The site as a cluster sees it, whoever made it."""

    vpc_id: pulumi.Input[str]
    subnet_ids: pulumi.Output[Mapping[str, str]] | Mapping[str, pulumi.Input[str]]
    nodes_group_id: pulumi.Input[str]
    file_systems: pulumi.Output[Sequence[Mapping[str, Any]]] | Sequence[Mapping[str, Any]]


def build(parent: pulumi.Resource, plan: Plan, existing: Existing) -> dict[str, Any]:
    """Everything that the plan holds, as children of `parent`; answers the outputs of the cluster."""
    scope = Scope.here(plan.name, plan.region, plan.tags, pulumi.InvokeOptions(parent=parent))
    outputs: dict[str, Any] = {}
    ground = _foundation(parent, plan, existing, scope, outputs)
    if "site" not in plan.layers and "cluster" not in plan.layers:
        return outputs
    place = _site(parent, plan, existing, scope, ground, outputs)
    if "cluster" in plan.layers and plan.pools:
        _cluster(parent, plan, scope, ground, place, outputs)
    return outputs


def _foundation(
    parent: pulumi.Resource, plan: Plan, existing: Existing, scope: Scope, outputs: dict[str, Any]
) -> Ground:
    if "foundation" not in plan.layers:
        return Ground(
            data_key_arn=existing.wanted("data_key_arn"),
            log_key_arn=existing.get("log_key_arn"),
            access_log_bucket=existing.get("access_log_bucket"),
            evidence_bucket=existing.wanted("evidence_bucket"),
            evidence_bucket_arn=existing.wanted("evidence_bucket_arn"),
        )
    made = Foundation(
        naming.logical(plan.name, "foundation"),
        FoundationArgs(scope=scope, audit=plan.audit, budget=plan.budget),
        pulumi.ResourceOptions(parent=parent),
    )
    ground = Ground(
        data_key_arn=made.data_key_arn,
        log_key_arn=made.log_key_arn,
        access_log_bucket=made.audit.log_bucket if made.audit else None,
        evidence_bucket=made.evidence.bucket,
        evidence_bucket_arn=made.evidence.arn,
    )
    outputs |= {
        "data_key_arn": ground.data_key_arn,
        "log_key_arn": ground.log_key_arn,
        "access_log_bucket": ground.access_log_bucket,
        "evidence_bucket": ground.evidence_bucket,
        "evidence_bucket_arn": ground.evidence_bucket_arn,
        "audit_trail_arn": made.audit.trail_arn if made.audit else None,
        "audit_bucket": made.audit.bucket if made.audit else None,
    }
    return ground


def _site(
    parent: pulumi.Resource, plan: Plan, existing: Existing, scope: Scope, ground: Ground, outputs: dict[str, Any]
) -> Place:
    if "site" not in plan.layers:
        return Place(
            vpc_id=existing.wanted("vpc_id"),
            subnet_ids=existing.wanted("subnet_ids"),
            nodes_group_id=existing.wanted("nodes_group_id"),
            file_systems=existing.get("file_systems") or (),
        )
    within = pulumi.ResourceOptions(parent=parent)
    vpc_id, subnet_ids = _network(parent, plan, existing, scope, ground)
    security = Security(
        naming.logical(plan.name, "security"),
        SecurityArgs(
            scope=scope,
            vpc_id=vpc_id,
            storage=any(one.kind == "lustre" for one in plan.file_systems),
            storage_efa=any(one.efa for one in plan.file_systems),
            keep_storage=bool(kept_subnets(plan)),
        ),
        within,
    )
    file_systems = []
    for one in plan.file_systems:
        if one.kind != "lustre" or security.storage_group_id is None:
            continue
        made = SharedFilesystem(
            naming.logical(plan.name, one.name),
            SharedFilesystemArgs(
                scope=scope,
                plan=one,
                subnet_id=subnet_ids[one.subnet],
                security_group_id=security.storage_group_id,
                key_arn=ground.data_key_arn,
                log_key_arn=ground.log_key_arn,
                log_to=ground.access_log_bucket,
            ),
            within,
        )
        file_systems.append(
            {"kind": one.kind, "mount": one.mount, "dns_name": made.dns_name, "mount_name": made.mount_name}
        )
    outputs |= {
        "vpc_id": vpc_id,
        "subnet_ids": subnet_ids,
        "nodes_group_id": security.nodes_group_id,
        "file_systems": file_systems,
    }
    return Place(
        vpc_id=vpc_id, subnet_ids=subnet_ids, nodes_group_id=security.nodes_group_id, file_systems=file_systems
    )


def _network(
    parent: pulumi.Resource, plan: Plan, existing: Existing, scope: Scope, ground: Ground
) -> tuple[pulumi.Input[str], Mapping[str, pulumi.Input[str]]]:
    handed_in = existing.get("vpc_id")
    if handed_in is not None:
        return handed_in, existing.wanted("subnet_ids")
    if plan.network is None:
        raise ValueError("a plan with a site needs a network")
    if plan.network.existing_id is not None:
        return plan.network.existing_id, {
            subnet.name: subnet.existing_id for subnet in plan.network.subnets if subnet.existing_id
        }
    made = Network(
        naming.logical(plan.name, "network"),
        NetworkArgs(scope=scope, plan=plan.network, log_key_arn=ground.log_key_arn, keep_subnets=kept_subnets(plan)),
        pulumi.ResourceOptions(parent=parent),
    )
    return made.vpc_id, made.subnet_ids


def _cluster(
    parent: pulumi.Resource, plan: Plan, scope: Scope, ground: Ground, place: Place, outputs: dict[str, Any]
) -> None:
    within = pulumi.ResourceOptions(parent=parent)
    prefix = evidence_prefix(plan.name)
    role = NodeRole(
        naming.logical(plan.name, "node"),
        NodeRoleArgs(
            scope=scope, bucket_arn=ground.evidence_bucket_arn, evidence_prefix=prefix, key_arn=ground.data_key_arn
        ),
        within,
    )
    pools = [
        NodePool(
            naming.logical(plan.name, pool.name),
            NodePoolArgs(
                scope=scope,
                plan=pool,
                subnet_id=place.subnet_ids[pool.subnet],
                security_group_id=place.nodes_group_id,
                profile_arn=role.profile_arn,
                bucket=ground.evidence_bucket,
                evidence_prefix=prefix,
                evidence_owner=role.unique_id,
                key_arn=ground.data_key_arn,
                file_systems=place.file_systems,
            ),
            within,
        )
        for pool in plan.pools
    ]
    outputs |= {
        "groups": {name: group for pool in pools for name, group in pool.group_names.items()},
        "node_role": role.role_name,
        **hand_over(
            parent,
            plan,
            [_pool_ready(pool, role) for pool in pools],
            evidence_bucket=ground.evidence_bucket,
            evidence_prefix=prefix,
            after=[group.resource for pool in pools for group in pool.groups],
        ),
    }


def _pool_ready(pool: NodePool, role: NodeRole) -> PoolReady:
    return PoolReady(
        name=pool.plan.name,
        machine=pool.plan.machine,
        groups=[
            GroupReady(
                name=group.plan.name,
                group=group.name,
                count=group.plan.count,
                template_id=group.template_id,
                template_version=group.template_version,
            )
            for group in pool.groups
        ],
        expectation=pool.plan.expectation,
        bundle_sha256=pool.bundle_sha256,
        node_role=role.role_name,
        evidence_owner=role.unique_id,
    )
