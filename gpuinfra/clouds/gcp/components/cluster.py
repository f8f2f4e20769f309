"""A cluster on Google Cloud: its components and the references between them. `gpuinfra.clouds.build` defines the order of the layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pulumi

from gpuinfra.base import naming
from gpuinfra.clouds.build import ClusterBuilder, Pools, pool_args, site_bucket, site_subnet
from gpuinfra.clouds.gcp.components.audit import Foundation, FoundationArgs
from gpuinfra.clouds.gcp.components.buckets import PrivateBucket, PrivateBucketArgs
from gpuinfra.clouds.gcp.components.data_disk import data_disk
from gpuinfra.clouds.gcp.components.firewall import NodeFirewallRule, NodeFirewallRuleArgs
from gpuinfra.clouds.gcp.components.health import NodeHealth, NodeHealthArgs
from gpuinfra.clouds.gcp.components.network import Network, NetworkArgs, RdmaNetwork, RdmaNetworkArgs
from gpuinfra.clouds.gcp.components.nodes import NodePool, NodePoolArgs
from gpuinfra.clouds.gcp.components.ready import NodesReady, NodesReadyArgs
from gpuinfra.clouds.gcp.components.recovery import RegionClone, RegionCloneArgs
from gpuinfra.clouds.gcp.components.refs import Existing, FoundationRefs, SiteRefs
from gpuinfra.clouds.gcp.components.roles import MountedBucket, NodeRole, NodeRoleArgs
from gpuinfra.clouds.gcp.components.scope import Scope
from gpuinfra.clouds.gcp.components.services import Services, ServicesArgs
from gpuinfra.clouds.gcp.components.storage import SharedFilesystem, SharedFilesystemArgs
from gpuinfra.clouds.gcp.instances import apis, lustre_ranges, nic_subnets, node_health
from gpuinfra.clouds.homes import mounted
from gpuinfra.clouds.instances import CONTROL_ROLE
from gpuinfra.plan.model import FileSystemPlan
from gpuinfra.plan.recovery_model import RecoveryPlan


class Builder(ClusterBuilder[FoundationRefs, SiteRefs]):
    """Creates the layers of a cluster on Google Cloud."""

    existing_type = Existing
    foundation_refs = FoundationRefs
    site_refs = SiteRefs
    scope_type = Scope
    ready_type, ready_args = NodesReady, NodesReadyArgs

    def prepare(self, parent: pulumi.Resource) -> None:
        plan, here = self.plan, Scope.of(self.plan, pulumi.InvokeOutputOptions(parent=parent))
        self.project = here.project
        services = self.create(Services, "services", ServicesArgs(scope=here, apis=apis(plan)))
        self.scope = services.scope

    def outputs(self) -> dict[str, Any]:
        return {"project": self.project}

    def foundation(self) -> FoundationRefs:
        plan = self.plan
        created = self.create(Foundation, "foundation", FoundationArgs(scope=self.scope, plan=plan))
        return FoundationRefs(
            data_key_id=created.data_key_id,
            evidence_bucket=created.evidence.bucket,
            audit_bucket=created.audit.bucket if created.audit else None,
            audit_log_bucket=created.audit.log_bucket if created.audit else None,
        )

    def site(self, foundation: FoundationRefs) -> SiteRefs:
        plan = self.plan
        network_id, subnet_ids = self._network()
        file_systems, imports, exports = [], {}, {}
        data: dict[str, pulumi.Input[str]] = {}
        for file_system in plan.file_systems:
            if file_system.kind == "object":
                bucket = self._bucket(file_system, foundation)
                if file_system.bucket == "auto" or file_system.replicated:
                    data[file_system.name] = bucket
                file_systems.append(mounted(file_system, "storage.googleapis.com", bucket))
                continue
            args = SharedFilesystemArgs(
                scope=self.scope,
                plan=file_system,
                network_id=network_id,
                key_id=foundation.data_key_id,
                exports_paused=self.moving,
            )
            created = self.create(SharedFilesystem, file_system.name, args)
            file_systems.append(created.mounted)
            if created.bucket is not None and (file_system.bucket == "auto" or file_system.replicated):
                data[file_system.name] = created.bucket
            if created.import_command is not None:
                imports[file_system.mount], exports[file_system.mount] = created.import_command, created.export_command
        file_systems += [one.mounted for one in plan.existing_file_systems]
        own = plan.network is not None and plan.network.existing_id is None and self.existing.network_id is None
        return SiteRefs(
            network_id=network_id,
            subnet_ids=subnet_ids,
            external_network_id=None if own else network_id,
            file_systems=file_systems,
            data_buckets={
                one.name: data[one.name] for one in plan.file_systems if one.bucket == "auto" and one.name in data
            }
            or None,
            recovery=self._second_region(plan.recovery, foundation, data) if plan.recovery else None,
            import_commands=imports,
            export_commands=exports,
        )

    def _bucket(self, file_system: FileSystemPlan, foundation: FoundationRefs) -> pulumi.Input[str]:
        """Return the bucket of a mount: the declared bucket, or a new one."""
        if file_system.bucket and file_system.bucket != "auto":
            return file_system.bucket
        args = PrivateBucketArgs(scope=self.scope, purpose=file_system.name, key_id=foundation.data_key_id)
        return self.create(PrivateBucket, file_system.name, args).bucket

    def _second_region(
        self, recovery: RecoveryPlan, foundation: FoundationRefs, data: Mapping[str, pulumi.Input[str]]
    ) -> dict[str, Any]:
        args = RegionCloneArgs(
            scope=self.scope,
            region=recovery.region,
            sources={"evidence": foundation.evidence_bucket, **data},
            recipients=recovery.recipients,
            alert_after_s=recovery.alert_after_s,
        )
        created = self.create(RegionClone, "recovery", args)
        return {
            "region": recovery.region,
            "data_key_id": created.data_key_id,
            "buckets": created.buckets,
            "replication_jobs": created.jobs,
        }

    def _network(self) -> tuple[pulumi.Input[str], Mapping[str, pulumi.Input[str]]]:
        plan = self.plan
        if network := self.passed_network("network_id"):
            return network
        created = self.create(Network, "network", NetworkArgs(scope=self.scope, plan=plan))
        return created.network_id, created.subnet_ids

    def cluster(self, foundation: FoundationRefs, site: SiteRefs) -> Pools:
        plan = self.plan
        own: dict[str, pulumi.Output[str]] = {}
        for network in plan.own_networks:
            own |= self.create(RdmaNetwork, network.name, RdmaNetworkArgs(scope=self.scope, plan=network)).subnet_ids
        args = NodeRoleArgs(
            scope=self.scope,
            plan=plan,
            bucket=foundation.evidence_bucket,
            mounts=[
                MountedBucket(name=one.name, bucket=site_bucket(site, one), read_only=one.read_only)
                for one in plan.mounted_buckets
            ],
        )
        role = self.create(NodeRole, "node", args)
        control, disk = None, None
        if plan.monitoring:
            component = naming.logical(plan.name, plan.monitoring.pool)
            opts = self.scope.options(self.opts)
            disk = data_disk(component, self.scope, plan.monitoring.disk, foundation.data_key_id, opts)
            control_args = replace(args, mounts=(), monitoring=plan.monitoring, data_disk=disk.id)
            control = self.create(NodeRole, CONTROL_ROLE, control_args)
        accounts = {"service_account": role.account, "control_account": control.account if control else None}
        if site.external_network_id is not None:
            args = NodeFirewallRuleArgs(
                scope=self.scope,
                network_id=site.external_network_id,
                lustre_ranges=lustre_ranges(plan),
                **accounts,
            )
            self.create(NodeFirewallRule, "node-firewall", args)
        health = None
        if any(node_health(plan)):
            assert site.network_id is not None  # The network of a site is always known.
            args = NodeHealthArgs(scope=self.scope, network_id=site.network_id, **accounts)
            health = self.create(NodeHealth, "node-health", args).check
        pools = []
        for pool in plan.pools:
            subnets = {name: own[name] if name in own else site_subnet(site, name, pool) for name in nic_subnets(pool)}
            identity, shared = self.of_pool(pool, role, control, site)
            args = NodePoolArgs(
                scope=self.scope,
                subnet_ids=subnets,
                service_account=identity.email,
                health_check=health,
                key_id=foundation.data_key_id,
                data_disk=disk.id if disk and identity is control else None,
                **pool_args(pool, foundation, shared),
            )
            pools.append(self.create(NodePool, pool.name, args))
        return Pools(pools=pools, outputs={"node_service_account": role.email})
