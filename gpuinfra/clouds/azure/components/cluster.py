"""A cluster on Azure: which components there are, and what each gets from the others.

Reads from top to bottom: what the cluster stands on (made here, or made by another stack), its nodes, and the handover.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from gpuinfra import naming
from gpuinfra.clouds.azure.components.audit import Foundation, FoundationArgs, evidence_prefix
from gpuinfra.clouds.azure.components.endpoints import Endpoints, EndpointsArgs
from gpuinfra.clouds.azure.components.groups import resource_group
from gpuinfra.clouds.azure.components.network import Network, NetworkArgs
from gpuinfra.clouds.azure.components.nodes import NodePool, NodePoolArgs
from gpuinfra.clouds.azure.components.roles import NodeRole, NodeRoleArgs
from gpuinfra.clouds.azure.components.scope import Scope
from gpuinfra.clouds.azure.components.security import Security, SecurityArgs
from gpuinfra.clouds.azure.components.storage import FileSystemKey, Inside, SharedFilesystem, SharedFilesystemArgs
from gpuinfra.clouds.azure.components.stores import Sealed
from gpuinfra.clouds.azure.resources import ENDPOINTS_SUBNET, kept_subnets, way_out_zone
from gpuinfra.clouds.nodes_ready import hand_over
from gpuinfra.clouds.ready_after import after
from gpuinfra.existing import Existing, Given
from gpuinfra.handover import GroupReady, PoolReady
from gpuinfra.plan.model import NetworkPlan, Plan

EXISTING = {
    "evidence_bucket": Given(layer="foundation", what="address of the container of bundles and evidence"),
    "evidence_account_id": Given(layer="foundation", what="id of that container's storage account"),
    "vault_id": Given(layer="foundation", what="id of the vault of keys"),
    "vault_uri": Given(layer="foundation", what="address of that vault"),
    "data_key_name": Given(layer="foundation", what="name of the key of file systems and their containers"),
    "data_key_url": Given(layer="foundation", what="address of a version of that key"),
    "data_key_identity_id": Given(layer="foundation", what="id of the identity that may use that key"),
    "disk_encryption_set_id": Given(layer="foundation", what="what encrypts the disks of nodes"),
    "workspace_id": Given(
        layer="foundation", what="Log Analytics workspace that takes access and flow logs", always=False, joined=False
    ),
    "network_id": Given(layer="site", what="network of the nodes; given together with subnet_ids"),
    "subnet_ids": Given(layer="site", what="subnet ids by the plan's names, private-0"),
    "nodes_group_id": Given(layer="site", what="network security group of nodes"),
    "file_systems": Given(layer="site", what="what nodes mount: a list of kind, mount, dns_name, mount_name"),
}
"""What a program or another stack can hand in on Azure."""


@dataclass(frozen=True, kw_only=True)
class Ground:
    """The foundation as a site or a cluster sees it, whoever made it."""

    evidence_bucket: pulumi.Input[str]
    evidence_account_id: pulumi.Input[str]
    vault_id: pulumi.Input[str]
    data_key: FileSystemKey
    disk_encryption_set_id: pulumi.Input[str]
    workspace_id: pulumi.Input[str] | None


@dataclass(frozen=True, kw_only=True)
class Place:
    """The site as a cluster sees it, whoever made it."""

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
        return _given_ground(existing)
    assert plan.today is not None
    made = Foundation(
        naming.logical(plan.name, "foundation"),
        FoundationArgs(scope=scope, audit=plan.audit, evidence=plan.evidence, budget=plan.budget, today=plan.today),
        pulumi.ResourceOptions(parent=parent),
    )
    key = made.data_key
    outputs |= {
        "evidence_bucket": made.evidence.bucket,
        "evidence_account_id": made.evidence.account_id,
        "vault_id": made.vault_id,
        "vault_uri": key.vault_uri,
        "data_key_name": key.key_name,
        "data_key_url": key.key_url,
        "data_key_identity_id": key.identity_id,
        "disk_encryption_set_id": made.disk_encryption_set_id,
        "workspace_id": made.audit.workspace_id if made.audit else None,
        "audit_account_id": made.audit.account_id if made.audit else None,
    }
    return Ground(
        evidence_bucket=made.evidence.bucket,
        evidence_account_id=made.evidence.account_id,
        vault_id=made.vault_id,
        data_key=_key(key.key_name, key.key_url, key.vault_uri, key.vault_id, key.identity_id),
        disk_encryption_set_id=made.disk_encryption_set_id,
        workspace_id=made.audit.workspace_id if made.audit else None,
    )


def _given_ground(existing: Existing) -> Ground:
    vault_id, identity_id = existing.wanted("vault_id"), existing.wanted("data_key_identity_id")
    return Ground(
        evidence_bucket=existing.wanted("evidence_bucket"),
        evidence_account_id=existing.wanted("evidence_account_id"),
        vault_id=vault_id,
        data_key=_key(
            existing.wanted("data_key_name"),
            existing.wanted("data_key_url"),
            existing.wanted("vault_uri"),
            vault_id,
            identity_id,
        ),
        disk_encryption_set_id=existing.wanted("disk_encryption_set_id"),
        workspace_id=existing.get("workspace_id"),
    )


def _key(
    name: pulumi.Input[str],
    url: pulumi.Input[str],
    vault_uri: pulumi.Input[str],
    vault_id: pulumi.Input[str],
    identity_id: pulumi.Input[str],
) -> FileSystemKey:
    sealed = Sealed(key_name=name, vault_uri=vault_uri, identity_id=identity_id)
    return FileSystemKey(key_url=url, vault_id=vault_id, identity_id=identity_id, sealed=sealed)


def _site(
    parent: pulumi.Resource, plan: Plan, existing: Existing, scope: Scope, ground: Ground, outputs: dict[str, Any]
) -> Place:
    if "site" not in plan.layers:
        return Place(
            subnet_ids=existing.wanted("subnet_ids"),
            nodes_group_id=existing.wanted("nodes_group_id"),
            file_systems=existing.get("file_systems") or (),
        )
    if plan.network is None:
        raise ValueError("a plan with a site needs a network")
    within = pulumi.ResourceOptions(parent=parent)
    group = resource_group(naming.logical(plan.name, "site"), scope, "site", parent, keep=True)
    scope = scope.within(group.name)
    security = Security(
        naming.logical(plan.name, "security"),
        SecurityArgs(
            scope=scope,
            plan=plan.network,
            storage=any(one.kind == "lustre" for one in plan.file_systems),
            keep_storage=bool(kept_subnets(plan)) and plan.network.existing_id is None,
        ),
        within,
    )
    network_id, subnet_ids = _network(parent, plan, plan.network, existing, scope, ground, security)
    endpoints = Endpoints(
        naming.logical(plan.name, "endpoints"),
        EndpointsArgs(
            scope=scope,
            network_id=network_id,
            subnet_id=subnet_ids.get(ENDPOINTS_SUBNET) or subnet_ids["private-0"],
            services={kind: _services(ground)[kind] for kind in plan.network.interface_endpoints},
            dns_zones=plan.network.dns_zones,
        ),
        within,
    )
    # Nodes come up when the names that they look up lead inside.
    ready = {name: after(subnet_id, endpoints.ready) for name, subnet_id in subnet_ids.items()}
    file_systems = _file_systems(parent, plan, scope, ground, endpoints, subnet_ids)
    outputs |= {
        "network_id": network_id,
        "subnet_ids": ready,
        "nodes_group_id": security.nodes_group_id,
        "file_systems": file_systems,
    }
    return Place(subnet_ids=ready, nodes_group_id=security.nodes_group_id, file_systems=file_systems)


def _services(ground: Ground) -> dict[str, pulumi.Input[str]]:
    return {"blob": ground.evidence_account_id, "vault": ground.vault_id}


def _network(
    parent: pulumi.Resource,
    plan: Plan,
    network: NetworkPlan,
    existing: Existing,
    scope: Scope,
    ground: Ground,
    security: Security,
) -> tuple[pulumi.Input[str], Mapping[str, pulumi.Input[str]]]:
    handed_in = existing.get("network_id")
    if handed_in is not None:
        return handed_in, existing.wanted("subnet_ids")
    if network.existing_id is not None:
        return network.existing_id, {one.name: one.existing_id for one in network.subnets if one.existing_id}
    made = Network(
        naming.logical(plan.name, "network"),
        NetworkArgs(
            scope=scope,
            plan=network,
            group_ids=security.group_ids,
            zone=way_out_zone(plan),
            sealed=ground.data_key.sealed,
            workspace_id=ground.workspace_id,
            keep_subnets=kept_subnets(plan),
        ),
        pulumi.ResourceOptions(parent=parent),
    )
    return made.network_id, made.subnet_ids


def _file_systems(
    parent: pulumi.Resource,
    plan: Plan,
    scope: Scope,
    ground: Ground,
    endpoints: Endpoints,
    subnet_ids: Mapping[str, pulumi.Input[str]],
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for one in plan.file_systems:
        if one.kind != "lustre":
            continue
        inside = None
        if "blob" in endpoints.zone_ids:
            subnet_id = subnet_ids.get(ENDPOINTS_SUBNET) or subnet_ids["private-0"]
            inside = Inside(subnet_id=subnet_id, zone_id=endpoints.zone_ids["blob"])
        made = SharedFilesystem(
            naming.logical(plan.name, one.name),
            SharedFilesystemArgs(
                scope=scope,
                plan=one,
                subnet_id=subnet_ids[one.subnet],
                key=ground.data_key,
                inside=inside,
                workspace_id=ground.workspace_id if plan.audit.data_events else None,
            ),
            pulumi.ResourceOptions(parent=parent),
        )
        found.append({"kind": one.kind, "mount": one.mount, "dns_name": made.dns_name, "mount_name": made.mount_name})
    return found


def _cluster(
    parent: pulumi.Resource, plan: Plan, scope: Scope, ground: Ground, place: Place, outputs: dict[str, Any]
) -> None:
    within = pulumi.ResourceOptions(parent=parent)
    prefix = evidence_prefix(plan.name)
    scope = scope.within(resource_group(naming.logical(plan.name, "nodes"), scope, "nodes", parent, keep=False).name)
    role = NodeRole(
        naming.logical(plan.name, "node"),
        NodeRoleArgs(scope=scope, evidence_account_id=ground.evidence_account_id, evidence_prefix=prefix),
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
                identity_id=role.identity_id,
                client_id=role.client_id,
                bucket=ground.evidence_bucket,
                evidence_prefix=prefix,
                disk_encryption_set_id=ground.disk_encryption_set_id,
                file_systems=place.file_systems,
            ),
            within,
        )
        for pool in plan.pools
    ]
    outputs |= {
        "groups": {name: group for pool in pools for name, group in pool.group_names.items()},
        "node_identity": role.identity_id,
        **hand_over(
            parent,
            plan,
            [_pool_ready(pool) for pool in pools],
            evidence_bucket=ground.evidence_bucket,
            evidence_prefix=prefix,
            after=[group.resource for pool in pools for group in pool.groups],
        ),
    }


def _pool_ready(pool: NodePool) -> PoolReady:
    return PoolReady(
        name=pool.plan.name,
        machine=pool.plan.machine,
        groups=[
            GroupReady(
                name=group.plan.name,
                group=group.id,
                count=group.plan.count,
                template_version=group.template_version,
            )
            for group in pool.groups
        ],
        expectation=pool.plan.expectation,
        bundle_sha256=pool.bundle_sha256,
    )
