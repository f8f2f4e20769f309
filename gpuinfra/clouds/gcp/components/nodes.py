"""A pool of nodes: one instance template and one zonal managed instance group for each of the plan's groups.

One group for each kind of capacity, because a template has one provisioning model and one reservation (gcp.md 4.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_gcp as gcp

from gpuinfra import bundle, naming
from gpuinfra.clouds.gcp import names
from gpuinfra.clouds.gcp.components.scope import Scope, child
from gpuinfra.clouds.gcp.components.template import TemplateArgs, instance_template, node_user_data, pinned_image
from gpuinfra.clouds.gcp.resources import near
from gpuinfra.plan.model import Group, PoolPlan

WARMUP_S = 600
"""Time that a rolling update waits after each new node; the handover judges the node itself."""


@dataclass(frozen=True, kw_only=True)
class NodePoolArgs:
    """What a pool stands on; everything but the plan may be somebody else's."""

    scope: Scope
    plan: PoolPlan
    subnet_ids: Mapping[str, pulumi.Input[str]]
    """Subnets by the plan's names: `private-0` for the first interface, `data-0`... for further ones, `roce-0`... for RDMA."""
    service_account: pulumi.Input[str]
    """Address of the nodes' service account (`NodeRole.email`)."""
    bucket: pulumi.Input[str]
    """Bucket that its bundle is put into and its evidence is written to."""
    evidence_prefix: str
    """Where its nodes write in the bucket."""
    key_id: pulumi.Input[str] | None = None
    """Key of its disks; left out, Google's own key is used."""
    file_systems: pulumi.Output[Sequence[Mapping[str, Any]]] | Sequence[Mapping[str, Any]] = ()
    """What its nodes mount: `kind`, `mount`, `dns_name`, `mount_name`; may hold outputs."""


@dataclass(frozen=True, kw_only=True)
class RunningGroup:
    """One group of the pool, for those who wait for its nodes."""

    plan: Group
    id: pulumi.Output[str]
    """`projects/P/zones/Z/instanceGroupManagers/N`."""
    template_id: pulumi.Output[str]
    """Link of the template, with the number that Google gave it."""
    template_name: pulumi.Output[str]
    """Its name, which is another one for another content."""
    resources: tuple[pulumi.Resource, ...]


class NodePool(pulumi.ComponentResource):
    """Nodes of one machine type, made by one managed instance group for each kind of capacity."""

    group_names: dict[str, pulumi.Output[str]]
    """Managed instance groups as `projects/P/zones/Z/instanceGroupManagers/N`, by the plan's names."""
    bundle_sha256: str
    """Checksum of what its nodes run at boot."""

    def __init__(self, name: str, args: NodePoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:gcp:NodePool", name, None, opts)
        self._name, self._args = name, args
        self.plan = args.plan
        """What the pool was planned as."""
        built = bundle.build(args.plan)
        self.bundle_sha256 = built.sha256
        key = self._upload(built)
        image = pinned_image(name, args.scope, args.plan, self)
        policies = self._near()
        user_data = node_user_data(self._node_config(key), bundle.user_data)
        self.groups = tuple(self._group(group, image, user_data, policies) for group in args.plan.groups)
        """The groups, in the plan's order."""
        self.group_names = {group.plan.name: group.id for group in self.groups}
        self.register_outputs({"group_names": self.group_names, "bundle_sha256": self.bundle_sha256})

    def _upload(self, built: bundle.Bundle) -> pulumi.Output[str]:
        """The bundle in the bucket, under a key that is its checksum: what a template names never changes under it."""
        uploaded = gcp.storage.BucketObject(
            naming.logical(self._name, "bundle"),
            bucket=self._args.bucket,
            name=built.key_of(self._args.scope.cluster, self._args.plan.name),
            source=pulumi.FileAsset(str(bundle.on_disk(built))),
            content_type="application/gzip",
            # Its name is its checksum, so the new one can be there before the old one goes.
            opts=pulumi.ResourceOptions(parent=self),
        )
        return uploaded.name

    def _node_config(self, key: pulumi.Output[str]) -> dict[str, Any]:
        """`node.json`, as docs/design.md has it."""
        args = self._args
        return {
            "schema": "gpuinfra.node/1",
            "cloud": "gcp",
            "cluster": args.scope.cluster,
            "pool": args.plan.name,
            "region": args.scope.region,
            "evidence": {"bucket": args.bucket, "prefix": args.evidence_prefix},
            "bundle": {"bucket": args.bucket, "key": key, "sha256": self.bundle_sha256},
            "file_systems": args.file_systems,
        }

    def _near(self) -> dict[str, gcp.compute.ResourcePolicy]:
        """Policies that have a group's nodes placed close together; a group takes its policy, its template none (gcp.md 1.4)."""
        scope = self._args.scope
        return {
            wish: gcp.compute.ResourcePolicy(
                naming.logical(scope.cluster, wish),
                name=scope.named(naming.logical(scope.cluster, wish)),
                project=scope.project,
                region=scope.region,
                description=f"Nodes of {self._args.plan.name} near each other",
                workload_policy=gcp.compute.ResourcePolicyWorkloadPolicyArgs(type="HIGH_THROUGHPUT"),
                opts=child(self),
            )
            for wish in near(self._args.plan)
        }

    def _group(
        self,
        group: Group,
        image: pulumi.Output[str],
        user_data: pulumi.Output[str],
        policies: dict[str, gcp.compute.ResourcePolicy],
    ) -> RunningGroup:
        args, pool, scope = self._args, self._args.plan, self._args.scope
        logical = naming.logical(scope.cluster, group.name)
        template = instance_template(
            naming.logical(logical, "template"),
            TemplateArgs(
                scope=scope,
                pool=pool,
                group=group,
                image=image,
                subnet_ids=args.subnet_ids,
                service_account=args.service_account,
                key_id=args.key_id,
                user_data=user_data,
            ),
            self,
        )
        policy = policies.get(group.placement_group or "")
        queued = group.kind == "flex"
        manager = gcp.compute.InstanceGroupManager(
            logical,
            name=scope.named(logical),
            project=scope.project,
            zone=group.zone,
            base_instance_name=names.fitted(logical, names.GROUP_BASE_LIMIT),
            description=f"Nodes of pool {pool.name}, {group.kind}",
            versions=[
                gcp.compute.InstanceGroupManagerVersionArgs(name="current", instance_template=template.self_link_unique)
            ],
            target_size=group.count,
            resource_policies=gcp.compute.InstanceGroupManagerResourcePoliciesArgs(workload_policy=policy.self_link)
            if policy
            else None,
            update_policy=_rolling(pool, group),
            instance_lifecycle_policy=gcp.compute.InstanceGroupManagerInstanceLifecyclePolicyArgs(
                # A node that a queued request brought is not brought again (gcp.md 4.3).
                default_action_on_failure="DO_NOTHING" if queued else "REPAIR",
                force_update_on_repair="YES",
            ),
            # Scarce capacity arrives late or not at all; whoever waits for it reads the group's errors and says which.
            wait_for_instances=False,
            # A queued group grows by its requests, and its size of today is not this program's.
            opts=child(self, ignore_changes=["targetSize"] if queued else ()),
        )
        return RunningGroup(
            plan=group,
            id=manager.id,
            template_id=template.self_link_unique,
            template_name=template.name,
            resources=(manager, *([self._request(logical, group, manager)] if queued else [])),
        )

    def _request(
        self, logical: str, group: Group, manager: gcp.compute.InstanceGroupManager
    ) -> gcp.compute.ResizeRequest:
        """Asks for all of a queued group's nodes at once. It cannot be changed, so another size or duration is another request."""
        scope = self._args.scope
        return gcp.compute.ResizeRequest(
            naming.logical(logical, "request"),
            name=names.by_content(
                naming.logical(logical, "request"), f"{group.max_count} {group.max_run_s} {scope.token}"
            ),
            project=scope.project,
            zone=group.zone,
            instance_group_manager=manager.name,
            resize_by=group.max_count,
            requested_run_duration=gcp.compute.ResizeRequestRequestedRunDurationArgs(seconds=str(group.max_run_s)),
            opts=child(self),
        )


def _rolling(pool: PoolPlan, group: Group) -> gcp.compute.InstanceGroupManagerUpdatePolicyArgs:
    """A new template rolls through the group, no more at a time than the pool allows, with a pause after each lot.

    Where capacity is full, a node is given up before its successor is asked for. A queued group changes when its nodes do: it has no
    capacity for successors.
    """
    step = max(1, max(group.count, 1) * pool.at_once_percent // 100)
    full = group.terminate_first
    return gcp.compute.InstanceGroupManagerUpdatePolicyArgs(
        type="OPPORTUNISTIC" if group.kind == "flex" else "PROACTIVE",
        minimal_action="REPLACE",
        most_disruptive_allowed_action="REPLACE",
        replacement_method="RECREATE" if full else "SUBSTITUTE",
        max_surge_fixed=0 if full else step,
        max_unavailable_fixed=step if full else 0,
        min_ready_sec=WARMUP_S,
    )
