"""A cluster on AWS: its components and the references between them. `gpuinfra.clouds.build` defines the order of the layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pulumi
import pulumi_aws as aws

from gpuinfra.base import naming
from gpuinfra.clouds.aws.components.audit import Foundation, FoundationArgs
from gpuinfra.clouds.aws.components.buckets import PrivateBucket, PrivateBucketArgs
from gpuinfra.clouds.aws.components.data_disk import data_disk
from gpuinfra.clouds.aws.components.home_replicas import HomeSource
from gpuinfra.clouds.aws.components.homes import HomeDirectories, HomeDirectoriesArgs
from gpuinfra.clouds.aws.components.logs import NodeLogs, NodeLogsArgs
from gpuinfra.clouds.aws.components.metrics import AlertEmail, AlertEmailArgs, MetricsStore, MetricsStoreArgs
from gpuinfra.clouds.aws.components.network import Network, NetworkArgs
from gpuinfra.clouds.aws.components.nodes import NodePool, NodePoolArgs
from gpuinfra.clouds.aws.components.openzfs import OpenZfsHomeDirectories, OpenZfsHomeDirectoriesArgs
from gpuinfra.clouds.aws.components.policies import MountedBucket
from gpuinfra.clouds.aws.components.ready import NodesReady, NodesReadyArgs
from gpuinfra.clouds.aws.components.recovery import RegionClone, RegionCloneArgs, ReplicationSource
from gpuinfra.clouds.aws.components.refs import Existing, FoundationRefs, SiteRefs
from gpuinfra.clouds.aws.components.roles import NodeRole, NodeRoleArgs
from gpuinfra.clouds.aws.components.scope import Scope
from gpuinfra.clouds.aws.components.security import SecurityGroups, SecurityGroupsArgs
from gpuinfra.clouds.aws.components.storage import SharedFilesystem, SharedFilesystemArgs
from gpuinfra.clouds.aws.instances import mount_subnets
from gpuinfra.clouds.aws.profile import OPENZFS_ROOT
from gpuinfra.clouds.build import ClusterBuilder, Pools, pool_args, site_bucket, site_subnet
from gpuinfra.clouds.homes import mounted
from gpuinfra.clouds.instances import CONTROL_ROLE, STORE
from gpuinfra.monitoring.config import topic_name
from gpuinfra.plan.model import FileSystemPlan, MonitoringPlan
from gpuinfra.plan.recovery_model import RecoveryPlan


class Builder(ClusterBuilder[FoundationRefs, SiteRefs]):
    """Creates the layers of a cluster on AWS."""

    existing_type = Existing
    foundation_refs = FoundationRefs
    site_refs = SiteRefs
    scope_type = Scope
    ready_type, ready_args = NodesReady, NodesReadyArgs
    scope: Scope

    def foundation(self) -> FoundationRefs:
        plan = self.plan
        created = self.create(Foundation, "foundation", FoundationArgs(scope=self.scope, plan=plan))
        return FoundationRefs(
            data_key_arn=created.data_key_arn,
            log_key_arn=created.log_key_arn,
            access_log_bucket=created.audit.log_bucket if created.audit else None,
            evidence_bucket=created.evidence.bucket,
            evidence_bucket_arn=created.evidence.arn,
            audit_trail_arn=created.audit.trail_arn if created.audit else None,
            audit_bucket=created.audit.bucket if created.audit else None,
        )

    def site(self, foundation: FoundationRefs) -> SiteRefs:
        plan = self.plan
        vpc_id, subnet_ids, file_system_subnet_ids = self._network(foundation)
        security = self.create(
            SecurityGroups, "security", SecurityGroupsArgs(scope=self.scope, plan=plan, vpc_id=vpc_id)
        )
        file_systems = []
        sources: dict[str, ReplicationSource] = {}
        homes: list[HomeSource] = []
        for file_system in plan.file_systems:
            if file_system.kind == "object":
                bucket = self._bucket(file_system, foundation)
                if file_system.bucket == "auto" or file_system.replicated:
                    sources[file_system.name] = self._source(file_system, bucket, foundation)
                server = f"s3.{plan.region}.amazonaws.com"
                file_systems.append(mounted(file_system, server, bucket))
            if file_system.service == "openzfs" and security.storage_group_id is not None:
                args = OpenZfsHomeDirectoriesArgs(
                    scope=self.scope,
                    plan=file_system,
                    subnet_id=file_system_subnet_ids[file_system.subnet],
                    security_group_id=security.storage_group_id,
                    clients=(plan.network.cidr if plan.network else "") or "*",
                    key_arn=foundation.data_key_arn,
                )
                openzfs = self.create(OpenZfsHomeDirectories, file_system.name, args)
                file_systems.append(mounted(file_system, openzfs.dns_name, OPENZFS_ROOT))
            if file_system.service == "efs" and security.homes_group_id is not None:
                args = HomeDirectoriesArgs(
                    scope=self.scope,
                    plan=file_system,
                    subnet_ids={name: file_system_subnet_ids[name] for name in mount_subnets(plan)},
                    security_group_id=security.homes_group_id,
                    key_arn=foundation.data_key_arn,
                )
                home = self.create(HomeDirectories, file_system.name, args)
                homes.append(HomeSource(file_system_id=home.file_system_id, plan=file_system))
                file_systems.append(mounted(file_system, home.dns_name, "/"))
            if file_system.kind != "lustre" or security.storage_group_id is None:
                continue
            args = SharedFilesystemArgs(
                scope=self.scope,
                plan=file_system,
                subnet_id=file_system_subnet_ids[file_system.subnet],
                security_group_id=security.storage_group_id,
                key_arn=foundation.data_key_arn,
                log_key_arn=foundation.log_key_arn,
                log_to=foundation.access_log_bucket,
            )
            created = self.create(SharedFilesystem, file_system.name, args)
            if (file_system.bucket == "auto" or file_system.replicated) and created.bucket is not None:
                sources[file_system.name] = self._source(file_system, created.bucket, foundation)
            file_systems.append(created.mounted)
        file_systems += [one.mounted for one in plan.existing_file_systems]
        site = SiteRefs(
            vpc_id=vpc_id,
            subnet_ids=subnet_ids,
            nodes_group_id=security.nodes_group_id,
            file_systems=file_systems,
            data_buckets={
                one.name: sources[one.name].bucket
                for one in plan.file_systems
                if one.bucket == "auto" and one.name in sources
            }
            or None,
            recovery=self._second_region(plan.recovery, foundation, sources, homes) if plan.recovery else None,
        )
        if not plan.roles.node_role_in_site:
            return site
        return replace(site, **self._node_role(foundation, site))

    def _source(
        self, file_system: FileSystemPlan, bucket: pulumi.Input[str], foundation: FoundationRefs
    ) -> ReplicationSource:
        recovery = self.plan.recovery
        key = recovery.existing_key_arn if recovery and file_system.replicated else None
        return ReplicationSource(bucket=bucket, key_arn=key or foundation.data_key_arn)

    def _bucket(self, file_system: FileSystemPlan, foundation: FoundationRefs) -> pulumi.Input[str]:
        """Return the bucket of a mount: the declared bucket, or a new one."""
        if file_system.bucket and file_system.bucket != "auto":
            return file_system.bucket
        args = PrivateBucketArgs(
            scope=self.scope,
            purpose=file_system.name,
            key_arn=foundation.data_key_arn,
            log_to=foundation.access_log_bucket,
        )
        return self.create(PrivateBucket, file_system.name, args).bucket

    def _second_region(
        self,
        recovery: RecoveryPlan,
        foundation: FoundationRefs,
        data: Mapping[str, ReplicationSource],
        homes: Sequence[HomeSource],
    ) -> dict[str, Any]:
        plan = self.plan
        evidence = ReplicationSource(bucket=foundation.evidence_bucket, key_arn=foundation.data_key_arn)
        args = RegionCloneArgs(
            scope=self.scope,
            region=recovery.region,
            sources={"evidence": evidence, **data},
            recipients=recovery.recipients,
            alert_after_s=recovery.alert_after_s,
            log_days=plan.audit.log_retention_days if foundation.access_log_bucket is not None else None,
            images=[one.ref for one in recovery.images if one.copied],
            homes=[one for one in homes if any(one.plan.name == each.name for each in recovery.homes)],
        )
        created = self.create(RegionClone, "recovery", args)
        return {
            "region": recovery.region,
            "data_key_arn": created.data_key_arn,
            "log_key_arn": created.log_key_arn,
            "access_log_bucket": created.access_log_bucket,
            "buckets": created.buckets,
            "images": created.images,
            "homes": created.homes,
            "replication_role_arn": created.role_arn,
        }

    def _network(
        self, foundation: FoundationRefs
    ) -> tuple[pulumi.Input[str], Mapping[str, pulumi.Input[str]], Mapping[str, pulumi.Input[str]]]:
        """Return the ID of the network, its subnets for nodes, and its subnets for file systems."""
        plan = self.plan
        if network := self.existing_network("vpc_id"):
            return *network, network[1]
        created = self.create(
            Network, "network", NetworkArgs(scope=self.scope, plan=plan, log_key_arn=foundation.log_key_arn)
        )
        return created.vpc_id, created.subnet_ids, created.file_system_subnet_ids

    def _node_role(
        self, foundation: FoundationRefs, site: SiteRefs, logs: NodeLogs | None = None
    ) -> dict[str, pulumi.Output[str]]:
        """Create the role of the nodes, and return the references to it."""
        plan = self.plan
        args = NodeRoleArgs(
            scope=self.scope,
            plan=plan,
            bucket_arn=foundation.evidence_bucket_arn,
            key_arn=foundation.data_key_arn,
            log_group_arn=logs.group_arn if logs else None,
            mounts=[
                MountedBucket(
                    arn=pulumi.Output.concat("arn:", self.scope.partition, ":s3:::", site_bucket(site, one)),
                    read_only=one.read_only,
                    key_arn=one.key_arn,
                )
                for one in plan.mounted_buckets
            ],
        )
        role = self.create(NodeRole, "node", args)
        return {"node_role": role.role_name, "node_role_id": role.unique_id, "node_profile_arn": role.profile_arn}

    def cluster(self, foundation: FoundationRefs, site: SiteRefs) -> Pools:
        plan = self.plan
        logs = self._logs(foundation)
        if not plan.roles.node_role_in_site:
            site = replace(site, **self._node_role(foundation, site, logs))
        role, owner, profile = map(_known, (site.node_role, site.node_role_id, site.node_profile_arn))
        store, topics = self._store(foundation), self._topics()
        pools = []
        for pool in plan.pools:
            identity, shared, disk, url, own_topics = (profile, role, owner), site, None, None, None
            if plan.monitoring and pool.name == plan.monitoring.pool:
                component = naming.logical(plan.name, pool.name)
                disk = data_disk(component, plan.monitoring.disk, foundation.data_key_arn, self.opts)
                identity = self._control_role(plan.monitoring, foundation, disk, store, topics, logs)
                shared, url = replace(site, file_systems=()), store.url if store else None
                own_topics = topics
            args = NodePoolArgs(
                scope=self.scope,
                subnet_id=site_subnet(site, pool.subnet, pool),
                security_group_id=site.nodes_group_id,
                profile_arn=identity[0],
                node_role=identity[1],
                evidence_owner=identity[2],
                log_group=logs.group_name if logs else None,
                key_arn=foundation.data_key_arn,
                data_disk=disk.id if disk else None,
                metrics_url=url,
                alert_topics=own_topics,
                **pool_args(pool, foundation, shared),
            )
            pools.append(self.create(NodePool, pool.name, args))
        return Pools(pools=pools, outputs={"node_role": role})

    def _store(self, foundation: FoundationRefs) -> MetricsStore | None:
        """Create the workspace to which the control node writes metrics, if the plan has one."""
        if self.plan.monitoring is None or self.plan.monitoring.store is None:
            return None
        args = MetricsStoreArgs(scope=self.scope, plan=self.plan.monitoring.store, key_arn=foundation.data_key_arn)
        return self.create(MetricsStore, STORE, args)

    def _topics(self) -> dict[str, pulumi.Output[str]]:
        """Create the topics of the receivers of alerts by email, and return their ARNs by their names in `node.json`."""
        emails = self.plan.monitoring.emails if self.plan.monitoring else ()
        return {
            topic_name(one.receiver): self.create(
                AlertEmail, one.receiver, AlertEmailArgs(scope=self.scope, plan=one)
            ).topic_arn
            for one in emails
        }

    def _logs(self, foundation: FoundationRefs) -> NodeLogs | None:
        """Create the log group of the nodes, if the plan has logs."""
        if self.plan.logs is None:
            return None
        args = NodeLogsArgs(scope=self.scope, plan=self.plan.logs, key_arn=foundation.log_key_arn)
        return self.create(NodeLogs, "logs", args)

    def _control_role(
        self,
        monitoring: MonitoringPlan,
        foundation: FoundationRefs,
        disk: aws.ebs.Volume,
        store: MetricsStore | None,
        topics: Mapping[str, pulumi.Output[str]],
        logs: NodeLogs | None,
    ) -> tuple[pulumi.Output[str], pulumi.Output[str], pulumi.Output[str]]:
        """Create the role of the control node. Return the ARN of its instance profile, its name and its unique ID."""
        args = NodeRoleArgs(
            scope=self.scope,
            plan=self.plan,
            bucket_arn=foundation.evidence_bucket_arn,
            key_arn=foundation.data_key_arn,
            monitoring=monitoring,
            data_disk_arn=disk.arn,
            workspace_arn=store.workspace_arn if store else None,
            topic_arns=list(topics.values()),
            log_group_arn=logs.group_arn if logs else None,
        )
        role = self.create(NodeRole, CONTROL_ROLE, args)
        return role.profile_arn, role.role_name, role.unique_id


def _known(value: pulumi.Input[str] | None) -> pulumi.Output[str]:
    """Return a reference to the nodes' role. A different stack may have created the site without the role."""

    def found(id_: str | None) -> str:
        if id_ is None:
            raise pulumi.RunError(
                "access.node_role_in_site is true, but the site has no role for the nodes; set access.node_role_in_site in the site's "
                "declaration and run `pulumi up` on the site stack first"
            )
        return id_

    return pulumi.Output.from_input(value).apply(found)
