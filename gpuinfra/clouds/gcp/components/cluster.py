"""A cluster on Google Cloud: which components there are, and what each gets from the others.

Reads from top to bottom: what the cluster stands on (made here, or made by another stack), its nodes, and the handover.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from gpuinfra import naming
from gpuinfra.clouds.gcp.components.audit import Foundation, FoundationArgs, evidence_prefix
from gpuinfra.clouds.gcp.components.firewall import Neighbours, NeighboursArgs
from gpuinfra.clouds.gcp.components.network import Network, NetworkArgs, RdmaNetwork, RdmaNetworkArgs
from gpuinfra.clouds.gcp.components.nodes import NodePool, NodePoolArgs
from gpuinfra.clouds.gcp.components.roles import NodeRole, NodeRoleArgs
from gpuinfra.clouds.gcp.components.scope import Scope
from gpuinfra.clouds.gcp.components.services import Services, ServicesArgs
from gpuinfra.clouds.gcp.components.storage import SharedFilesystem, SharedFilesystemArgs
from gpuinfra.clouds.gcp.resources import apis, keeps_network, nic_subnets
from gpuinfra.clouds.nodes_ready import hand_over
from gpuinfra.existing import Existing, Given
from gpuinfra.handover import GroupReady, PoolReady
from gpuinfra.plan.model import Plan, PoolPlan

EXISTING = {
    "data_key_id": Given(
        layer="foundation",
        what="Key of disks, evidence and file systems: `projects/P/locations/R/keyRings/N/cryptoKeys/N`.",
    ),
    "evidence_bucket": Given(layer="foundation", what="Name of the bucket of bundles and evidence."),
    "network_id": Given(
        layer="site",
        what="Network of the nodes' first interface: `projects/P/global/networks/N`; given together with `subnet_ids`.",
    ),
    "subnet_ids": Given(
        layer="site",
        what="Subnets by the plan's names, `private-0` and `data-0`: `projects/P/regions/R/subnetworks/S`.",
    ),
    "file_systems": Given(layer="site", what="What nodes mount: a list of `kind`, `mount`, `dns_name`, `mount_name`."),
}
"""What can be handed in."""


@dataclass(frozen=True, kw_only=True)
class Ground:
    """The foundation as a site or a cluster sees it, whoever made it."""

    data_key_id: pulumi.Input[str]
    evidence_bucket: pulumi.Input[str]


@dataclass(frozen=True, kw_only=True)
class Place:
    """The site as a cluster sees it, whoever made it."""

    subnet_ids: pulumi.Output[Mapping[str, str]] | Mapping[str, pulumi.Input[str]]
    another_s: pulumi.Input[str] | None
    """The network, where it is neither this stack's nor another stack's of gpuinfra."""
    file_systems: pulumi.Output[Sequence[Mapping[str, Any]]] | Sequence[Mapping[str, Any]]


def build(parent: pulumi.Resource, plan: Plan, existing: Existing) -> dict[str, Any]:
    """Everything that the plan holds, as children of `parent`; answers the outputs of the cluster."""
    here = Scope.here(plan.name, plan.region, plan.tags, plan.project, pulumi.InvokeOutputOptions(parent=parent))
    scope = Services(
        naming.logical(plan.name, "services"),
        ServicesArgs(scope=here, apis=apis(plan)),
        pulumi.ResourceOptions(parent=parent),
    ).scope
    outputs: dict[str, Any] = {"project": here.project}
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
            data_key_id=existing.wanted("data_key_id"),
            evidence_bucket=existing.wanted("evidence_bucket"),
        )
    made = Foundation(
        naming.logical(plan.name, "foundation"),
        FoundationArgs(scope=scope, audit=plan.audit, budget=plan.budget, operators=plan.evidence.operators),
        pulumi.ResourceOptions(parent=parent),
    )
    ground = Ground(data_key_id=made.data_key_id, evidence_bucket=made.evidence.bucket)
    outputs |= {
        "data_key_id": ground.data_key_id,
        "evidence_bucket": ground.evidence_bucket,
        "audit_bucket": made.audit.bucket if made.audit else None,
        "audit_log_bucket": made.audit.log_bucket if made.audit else None,
    }
    return ground


def _site(
    parent: pulumi.Resource, plan: Plan, existing: Existing, scope: Scope, ground: Ground, outputs: dict[str, Any]
) -> Place:
    if "site" not in plan.layers:
        return Place(
            subnet_ids=existing.wanted("subnet_ids"),
            another_s=None,
            file_systems=existing.get("file_systems") or (),
        )
    network_id, subnet_ids = _network(parent, plan, existing, scope)
    file_systems, imports, exports = [], {}, {}
    for one in plan.file_systems:
        if one.kind not in ("lustre", "home"):
            continue
        made = SharedFilesystem(
            naming.logical(plan.name, one.name),
            SharedFilesystemArgs(scope=scope, plan=one, network_id=network_id, key_id=ground.data_key_id),
            pulumi.ResourceOptions(parent=parent),
        )
        file_systems.append({"kind": one.kind, "mount": one.mount, "dns_name": made.server, "mount_name": made.path})
        if made.import_command is not None:
            imports[one.mount], exports[one.mount] = made.import_command, made.export_command
    outputs |= {
        "network_id": network_id,
        "subnet_ids": subnet_ids,
        "file_systems": file_systems,
        "import_commands": imports,
        "export_commands": exports,
    }
    made_here = plan.network is not None and plan.network.existing_id is None and existing.get("network_id") is None
    return Place(subnet_ids=subnet_ids, another_s=None if made_here else network_id, file_systems=file_systems)


def _network(
    parent: pulumi.Resource, plan: Plan, existing: Existing, scope: Scope
) -> tuple[pulumi.Input[str], Mapping[str, pulumi.Input[str]]]:
    handed_in = existing.get("network_id")
    if handed_in is not None:
        return handed_in, existing.wanted("subnet_ids")
    if plan.network is None:
        raise ValueError("a plan with a site needs a network")
    made = Network(
        naming.logical(plan.name, "network"),
        NetworkArgs(
            scope=scope,
            plan=plan.network,
            file_systems=frozenset(one.kind for one in plan.file_systems),
            keep=keeps_network(plan),
        ),
        pulumi.ResourceOptions(parent=parent),
    )
    return made.network_id, made.subnet_ids


def _cluster(
    parent: pulumi.Resource, plan: Plan, scope: Scope, ground: Ground, place: Place, outputs: dict[str, Any]
) -> None:
    within = pulumi.ResourceOptions(parent=parent)
    prefix = evidence_prefix(plan.name)
    own: dict[str, pulumi.Output[str]] = {}
    for network in plan.own_networks:
        own |= RdmaNetwork(
            naming.logical(plan.name, network.name), RdmaNetworkArgs(scope=scope, plan=network), within
        ).subnet_ids
    role = NodeRole(
        naming.logical(plan.name, "node"),
        NodeRoleArgs(scope=scope, bucket=ground.evidence_bucket, evidence_prefix=prefix, registry=plan.registry),
        within,
    )
    if place.another_s is not None:
        Neighbours(
            naming.logical(plan.name, "neighbours"),
            NeighboursArgs(scope=scope, network_id=place.another_s, service_account=role.email),
            within,
        )
    pools = [
        NodePool(
            naming.logical(plan.name, pool.name),
            NodePoolArgs(
                scope=scope,
                plan=pool,
                subnet_ids={
                    subnet: own[subnet] if subnet in own else _site_subnet(place, subnet, pool)
                    for subnet in nic_subnets(pool)
                },
                service_account=role.email,
                bucket=ground.evidence_bucket,
                evidence_prefix=prefix,
                key_id=ground.data_key_id,
                file_systems=place.file_systems,
            ),
            within,
        )
        for pool in plan.pools
    ]
    outputs |= {
        "groups": {name: group for pool in pools for name, group in pool.group_names.items()},
        "node_service_account": role.email,
        **hand_over(
            parent,
            plan,
            [_pool_ready(pool, role) for pool in pools],
            evidence_bucket=ground.evidence_bucket,
            evidence_prefix=prefix,
            after=[resource for pool in pools for group in pool.groups for resource in group.resources],
        ),
    }


def _site_subnet(place: Place, name: str, pool: PoolPlan) -> pulumi.Output[str]:
    """A subnet of the site, which another stack may have made for other machines."""

    def found(known: Mapping[str, str]) -> str:
        if name not in known:
            raise ValueError(
                f"the site has no subnet {name}, which {pool.machine} of pool {pool.name} needs; it has {', '.join(sorted(known))}; "
                f"add network.machines: [{pool.machine}] to the site's declaration and bring that stack up first"
            )
        return known[name]

    if isinstance(place.subnet_ids, pulumi.Output):
        return place.subnet_ids.apply(found)
    # Not through all of them: a subnet's name would wait for every other subnet.
    return pulumi.Output.from_input(
        place.subnet_ids[name] if name in place.subnet_ids else found(dict.fromkeys(place.subnet_ids, ""))
    )


def _pool_ready(pool: NodePool, role: NodeRole) -> PoolReady:
    return PoolReady(
        name=pool.plan.name,
        machine=pool.plan.machine,
        groups=[
            GroupReady(
                name=group.plan.name,
                group=group.id,
                count=group.plan.count,
                template_id=group.template_id,
                template_version=group.template_name,
            )
            for group in pool.groups
        ],
        expectation=pool.plan.expectation,
        bundle_sha256=pool.bundle_sha256,
        node_role=role.email,
    )
