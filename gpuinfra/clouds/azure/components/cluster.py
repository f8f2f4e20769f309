"""A cluster on Azure: its components and the references between them. `gpuinfra.clouds.build` defines the order of the layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pulumi

from gpuinfra.base import naming
from gpuinfra.clouds.azure import resources as rows
from gpuinfra.clouds.azure.components.audit import Foundation, FoundationArgs
from gpuinfra.clouds.azure.components.data_disk import data_disk
from gpuinfra.clouds.azure.components.endpoints import Endpoints, EndpointsArgs, private_endpoint
from gpuinfra.clouds.azure.components.groups import resource_group
from gpuinfra.clouds.azure.components.homes import HomeDirectories, HomeDirectoriesArgs
from gpuinfra.clouds.azure.components.netapp import NetAppHomeDirectories, NetAppHomeDirectoriesArgs
from gpuinfra.clouds.azure.components.network import Network, NetworkArgs
from gpuinfra.clouds.azure.components.nodes import NodePool, NodePoolArgs
from gpuinfra.clouds.azure.components.ready import NodesReady, NodesReadyArgs
from gpuinfra.clouds.azure.components.recovery import RegionClone, RegionCloneArgs
from gpuinfra.clouds.azure.components.refs import Existing, FoundationRefs, SiteRefs
from gpuinfra.clouds.azure.components.roles import MountedContainer, NodeRole, NodeRoleArgs
from gpuinfra.clouds.azure.components.scope import Scope
from gpuinfra.clouds.azure.components.security import SecurityGroups, SecurityGroupsArgs
from gpuinfra.clouds.azure.components.storage import DataEndpoint, SharedFilesystem, SharedFilesystemArgs
from gpuinfra.clouds.azure.components.stores import PrivateStore, PrivateStoreArgs
from gpuinfra.clouds.azure.instances import (
    DATA_CONTAINER,
    ENDPOINTS_SUBNET,
    HOMES,
    NETAPP,
    NETAPP_SUBNET,
    of_service,
)
from gpuinfra.clouds.azure.names import container_parts
from gpuinfra.clouds.build import ClusterBuilder, Pools, pool_args, site_bucket, site_subnet
from gpuinfra.clouds.homes import mounted
from gpuinfra.clouds.instances import CONTROL_ROLE
from gpuinfra.clouds.ready_after import ready_after
from gpuinfra.plan.model import FileSystemPlan
from gpuinfra.plan.recovery_model import RecoveryPlan


class Builder(ClusterBuilder[FoundationRefs, SiteRefs]):
    """Creates the layers of a cluster on Azure."""

    existing_type = Existing
    foundation_refs = FoundationRefs
    site_refs = SiteRefs
    scope_type = Scope
    ready_type, ready_args = NodesReady, NodesReadyArgs
    scope: Scope

    def foundation(self) -> FoundationRefs:
        plan = self.plan
        made = self.create(Foundation, "foundation", FoundationArgs(scope=self.scope, plan=plan))
        key = made.data_key
        return FoundationRefs(
            evidence_bucket=made.evidence.bucket,
            evidence_account_id=made.evidence.account_id,
            evidence_container_id=made.evidence.container_id,
            vault_id=made.vault_id,
            vault_uri=key.vault_uri,
            data_key_name=key.key_name,
            data_key_url=key.key_url,
            data_key_identity_id=key.identity_id,
            disk_encryption_set_id=made.disk_encryption_set_id,
            workspace_id=made.audit.workspace_id if made.audit else None,
            audit_account_id=made.audit.account_id if made.audit else None,
        )

    def site(self, foundation: FoundationRefs) -> SiteRefs:
        plan, network = self.plan, self.plan.site_network
        scope = self._within("site", rows.SITE_GROUP)
        security = self.create(SecurityGroups, "security", SecurityGroupsArgs(scope=scope, plan=plan))
        created = self.existing_network("network_id") or self._create_network(scope, foundation, security)
        network_id, subnet_ids = created
        services = {"blob": foundation.evidence_account_id, "vault": foundation.vault_id}
        homes = self._homes(scope, foundation)
        if homes is not None:
            services["file"] = homes.account_id
        args = EndpointsArgs(
            scope=scope,
            network_id=network_id,
            subnet_id=_endpoint_subnet(subnet_ids),
            services={kind: services[kind] for kind in network.interface_endpoints},
            dns_zones=network.dns_zones,
        )
        endpoints = self.create(Endpoints, "endpoints", args)
        file_systems, data, exports = self._file_systems(scope, foundation, endpoints, subnet_ids)
        if homes is not None:
            file_systems += [mounted(one, homes.server, homes.paths[one.name]) for one in of_service(plan, "files")]
        file_systems += self._netapp(scope, subnet_ids)
        file_systems += [one.mounted for one in plan.existing_file_systems]
        # Nodes start only after the private DNS names that they use exist.
        ready = {name: endpoints.after(subnet_id) for name, subnet_id in subnet_ids.items()}
        return SiteRefs(
            network_id=network_id,
            subnet_ids=ready,
            nodes_group_id=security.nodes_group_id,
            members_group_id=security.members_group_id,
            file_systems=file_systems,
            data_buckets={
                one.name: data[one.name] for one in plan.file_systems if one.bucket == "auto" and one.name in data
            }
            or None,
            recovery=self._second_region(plan.recovery, foundation, data) if plan.recovery else None,
            export_commands=exports,
        )

    def _second_region(
        self, recovery: RecoveryPlan, foundation: FoundationRefs, data: Mapping[str, pulumi.Input[str]]
    ) -> dict[str, Any]:
        plan = self.plan
        if foundation.evidence_container_id is None:
            raise ValueError("recovery requires that this stack creates the foundation")
        args = RegionCloneArgs(
            scope=self.scope,
            region=recovery.region,
            sources={"evidence": foundation.evidence_container_id, **data},
            recipients=recovery.recipients,
            alert_after_s=recovery.alert_after_s,
            reached_from=plan.evidence.reached_from,
            operators=plan.evidence.operators,
            workspace_id=foundation.workspace_id,
            data_events=plan.audit.data_events,
        )
        created = self.create(RegionClone, "recovery", args)
        return {
            "region": recovery.region,
            "data_key_url": created.data_key_url,
            "buckets": created.buckets,
            "replication_policies": created.policies,
        }

    def _within(self, layer: str, row: Any) -> Scope:
        """Return the scope in the resource group of a layer."""
        group = resource_group(self.plan.name, self.scope, layer, row, self.opts)
        return self.scope.within(group.name)

    def _create_network(
        self, scope: Scope, foundation: FoundationRefs, security: SecurityGroups
    ) -> tuple[pulumi.Input[str], Mapping[str, pulumi.Input[str]]]:
        plan = self.plan
        args = NetworkArgs(
            scope=scope,
            plan=plan,
            group_ids=security.group_ids,
            encryption_key=foundation.data_key.encryption_key,
            workspace_id=foundation.workspace_id,
        )
        made = self.create(Network, "network", args)
        return made.network_id, made.subnet_ids

    def _homes(self, scope: Scope, foundation: FoundationRefs) -> HomeDirectories | None:
        plans = of_service(self.plan, "files")
        if not plans:
            return None
        return self.create(
            HomeDirectories,
            HOMES,
            HomeDirectoriesArgs(scope=scope, plans=plans, encryption_key=foundation.data_key.encryption_key),
        )

    def _netapp(self, scope: Scope, subnet_ids: Mapping[str, pulumi.Input[str]]) -> list[dict[str, Any]]:
        """Create the volumes for home directories, and return what nodes mount."""
        plans, network = of_service(self.plan, "netapp"), self.plan.network
        if not plans or network is None:
            return []
        nodes = next((one.cidr for one in network.subnets if one.role == "nodes"), "")
        args = NetAppHomeDirectoriesArgs(
            scope=scope, plans=plans, subnet_id=subnet_ids[NETAPP_SUBNET], clients=nodes or "0.0.0.0/0"
        )
        made = self.create(NetAppHomeDirectories, NETAPP, args)
        return [mounted(one, made.servers[one.name], made.paths[one.name]) for one in plans]

    def _file_systems(
        self,
        scope: Scope,
        foundation: FoundationRefs,
        endpoints: Endpoints,
        subnet_ids: Mapping[str, pulumi.Input[str]],
    ) -> tuple[list[dict[str, Any]], dict[str, pulumi.Output[str]], dict[str, pulumi.Output[str]]]:
        """Return the file systems, the containers that this stack creates for them, and the commands that export to a container."""
        mounts: list[dict[str, Any]] = []
        data: dict[str, pulumi.Output[str]] = {}
        exports: dict[str, pulumi.Output[str]] = {}
        endpoint = None
        if "blob" in endpoints.zone_ids:
            endpoint = DataEndpoint(subnet_id=_endpoint_subnet(subnet_ids), zone_id=endpoints.zone_ids["blob"])
        for file_system in self.plan.file_systems:
            if file_system.kind == "object":
                container = self._container(file_system, scope, foundation, endpoint, endpoints)
                if file_system.bucket == "auto" or file_system.replicated:
                    data[file_system.name] = container
                mounts.append({"kind": file_system.kind, "mount": file_system.mount, **_mounted(container)})
            if file_system.kind != "lustre":
                continue
            args = SharedFilesystemArgs(
                scope=scope,
                plan=file_system,
                subnet_id=subnet_ids[file_system.subnet],
                key=foundation.data_key,
                endpoint=endpoint,
                workspace_id=foundation.workspace_id if self.plan.audit.data_events else None,
                exports_paused=self.moving,
            )
            made = self.create(SharedFilesystem, file_system.name, args)
            mounts.append(made.mounted)
            if made.bucket is not None:
                exports[file_system.mount] = made.export_command
            if made.bucket is not None and (file_system.bucket == "auto" or file_system.replicated):
                data[file_system.name] = made.bucket
        return mounts, data, exports

    def _container(
        self,
        file_system: FileSystemPlan,
        scope: Scope,
        foundation: FoundationRefs,
        endpoint: DataEndpoint | None,
        endpoints: Endpoints,
    ) -> pulumi.Output[str]:
        """Return the container ID for a mount: the declared container, or a new one."""
        name = naming.logical(self.plan.name, file_system.name)
        if file_system.bucket and file_system.bucket != "auto":
            container = pulumi.Output.from_input(file_system.bucket)
            if not file_system.private_endpoint:
                return container
            return _reached(
                name, scope, container, file_system.bucket.partition("/blobServices/")[0], endpoint, endpoints
            )
        store = PrivateStore(
            name,
            PrivateStoreArgs(
                scope=scope,
                purpose=file_system.name,
                containers=(DATA_CONTAINER,),
                encryption_key=foundation.data_key.encryption_key,
                workspace_id=foundation.workspace_id if self.plan.audit.data_events else None,
            ),
            self.opts,
        )
        return _reached(name, scope, store.containers[DATA_CONTAINER], store.account_id, endpoint, store)

    def cluster(self, foundation: FoundationRefs, site: SiteRefs) -> Pools:
        plan = self.plan
        scope = self._within("nodes", rows.CLUSTER_GROUP)
        args = NodeRoleArgs(
            scope=scope,
            plan=plan,
            evidence_account_id=foundation.evidence_account_id,
            mounts=[
                MountedContainer(
                    name=one.name, container_id=site_bucket(site, one, "container_id"), read_only=one.read_only
                )
                for one in plan.mounted_buckets
            ],
        )
        role = self.create(NodeRole, "node", args)
        control, disk = None, None
        if plan.monitoring:
            component = naming.logical(plan.name, plan.monitoring.pool)
            disk = data_disk(component, scope, plan.monitoring.disk, foundation.disk_encryption_set_id, self.opts)
            control_args = replace(args, mounts=(), monitoring=plan.monitoring, data_disk_id=disk.id)
            control = self.create(NodeRole, CONTROL_ROLE, control_args)
        pools = []
        for pool in plan.pools:
            identity, shared = self.of_pool(pool, role, control, site)
            args = NodePoolArgs(
                scope=scope,
                subnet_id=site_subnet(site, pool.subnet, pool),
                security_group_id=site.nodes_group_id,
                members_group_id=site.members_group_id,
                identity_id=identity.identity_id,
                client_id=identity.client_id,
                disk_encryption_set_id=foundation.disk_encryption_set_id,
                data_disk=disk.id if disk and identity is control else None,
                **pool_args(pool, foundation, shared),
            )
            pools.append(self.create(NodePool, pool.name, args))
        return Pools(pools=pools, outputs={"node_identity": role.identity_id})


def _endpoint_subnet(subnet_ids: Mapping[str, pulumi.Input[str]]) -> pulumi.Input[str]:
    """Return the subnet for private endpoints. If an existing network does not have one, return the node subnet."""
    return subnet_ids.get(ENDPOINTS_SUBNET) or subnet_ids["private-0"]


def _reached(
    name: str,
    scope: Scope,
    container: pulumi.Output[str],
    account_id: pulumi.Input[str],
    endpoint: DataEndpoint | None,
    parent: pulumi.Resource,
) -> pulumi.Output[str]:
    """Return the ID of a container. It resolves after the private endpoint of its account has its DNS name."""
    if endpoint is None:
        return container
    names = private_endpoint(
        name,
        scope,
        kind="blob",
        service_id=account_id,
        subnet_id=endpoint.subnet_id,
        zone_id=endpoint.zone_id,
        parent=parent,
    )
    return ready_after(container, [names])


def _mounted(container_id: pulumi.Output[str]) -> dict[str, pulumi.Output[str]]:
    """Return what nodes need to find a container: the address of its account, its name, and its ID. Another stack assigns a role on this ID."""
    parts = container_id.apply(container_parts)
    return {
        "dns_name": parts.apply(lambda known: f"{known.account}.blob.core.windows.net"),
        "mount_name": parts.apply(lambda known: known.name),
        "container_id": container_id,
    }
