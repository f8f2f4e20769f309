"""A pool of nodes: an instance template and a zonal managed instance group for each group in the plan.

Each kind of capacity has its own group, because a template has one provisioning model and one reservation (docstring of
`compute.InstanceTemplate`, pulumi_gcp 10.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from gpuinfra import bundle
from gpuinfra.base import naming
from gpuinfra.clouds.gcp import names
from gpuinfra.clouds.gcp import resources as rows
from gpuinfra.clouds.gcp.components.scope import Scope, child
from gpuinfra.clouds.gcp.components.template import TemplateArgs, instance_template, pinned_image
from gpuinfra.clouds.gcp.instances import created_placement_policies, is_queued
from gpuinfra.clouds.node_pool import BaseNodePool, BaseNodePoolArgs, RunningGroup
from gpuinfra.plan.model import Group, PoolPlan

GRACE_S = 3600
"""Time for which a group ignores failed health checks of a new node. With a plain image, a node is verified after about 15 minutes."""


@dataclass(frozen=True, kw_only=True)
class NodePoolArgs(BaseNodePoolArgs):
    """Arguments for a pool on Google Cloud. References can also point to existing resources."""

    scope: Scope
    subnet_ids: Mapping[str, pulumi.Input[str]]
    """Subnets, keyed by name in the plan: `private-0` for the first interface, `data-0`... for additional interfaces, `roce-0`... for RDMA."""
    service_account: pulumi.Input[str]
    """Email address of the node service account (`NodeRole.email`)."""
    health_check: pulumi.Input[str] | None = None
    """Health check that a new node must pass before the next node is replaced (`NodeHealth.check`). If unset, a rolling update does not wait for
    verified nodes."""
    key_id: pulumi.Input[str] | None = None
    """Key that encrypts the disks. If unset, Google Cloud uses a Google-owned key."""


class NodePool(BaseNodePool[NodePoolArgs]):
    """Nodes of one machine type, created by a managed instance group for each group in the plan."""

    def __init__(self, name: str, args: NodePoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:gcp:NodePool", name, args, args.scope, opts, node_role=args.service_account)

    def _create(self, built: bundle.Bundle) -> tuple[RunningGroup, ...]:
        args = self._args
        uploaded = gcp.storage.BucketObject(
            rows.BUNDLE.logical(self._name),
            bucket=args.bucket,
            # The name contains the checksum, so the bundle that a template references never changes, and a new bundle is created before the old one is deleted.
            name=built.key_of(args.scope.cluster, args.plan.name),
            source=pulumi.FileAsset(str(bundle.on_disk(built))),
            content_type="application/gzip",
            opts=child(self, rows.BUNDLE, delete_before_replace=False),
        )
        image = pinned_image(self._name, args.scope, args.plan, self)
        policies = self._placement_policies()
        user_data = self._user_data("gcp", args.scope, uploaded.name)
        return tuple(self._group(group, image, user_data, policies) for group in args.plan.groups)

    def _placement_policies(self) -> dict[str, gcp.compute.ResourcePolicy]:
        """Create workload policies for compact placement. The policy is set on the group, not on its template (https://docs.cloud.google.com/ai-hypercomputer/docs/create/create-mig-with-a4-or-a3ultra)."""
        scope = self._args.scope
        policies = {}
        for policy in created_placement_policies(self._args.plan):
            logical = rows.PLACEMENT_POLICY.logical(naming.logical(scope.cluster, policy))
            policies[policy] = gcp.compute.ResourcePolicy(
                logical,
                name=scope.physical_name(logical),
                region=scope.region,
                description=f"Compact placement of the nodes of pool {self._args.plan.name}",
                workload_policy=gcp.compute.ResourcePolicyWorkloadPolicyArgs(type="HIGH_THROUGHPUT"),
                opts=child(self, rows.PLACEMENT_POLICY),
            )
        return policies

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
            rows.TEMPLATE.logical(logical),
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
        # The state contains the size 0, because resize requests change the size only in the cloud, and the provider sends a size only if it differs
        # from the state. After the cluster expires, a different description therefore replaces the group, which deletes its nodes.
        ended = ", ended" if queued and not is_queued(group) else ""
        manager = gcp.compute.InstanceGroupManager(
            rows.GROUP.logical(logical),
            name=scope.physical_name(logical),
            zone=group.zone,
            base_instance_name=names.fitted(logical, names.GROUP_BASE_LIMIT),
            description=f"Nodes of pool {pool.name}, {group.kind}{ended}",
            versions=[
                gcp.compute.InstanceGroupManagerVersionArgs(name="current", instance_template=template.self_link_unique)
            ],
            target_size=group.count,
            resource_policies=gcp.compute.InstanceGroupManagerResourcePoliciesArgs(workload_policy=policy.self_link)
            if policy
            else None,
            update_policy=_update_policy(pool, group),
            auto_healing_policies=None
            if queued or args.health_check is None
            else gcp.compute.InstanceGroupManagerAutoHealingPoliciesArgs(
                health_check=args.health_check, initial_delay_sec=GRACE_S
            ),
            instance_lifecycle_policy=gcp.compute.InstanceGroupManagerInstanceLifecyclePolicyArgs(
                # A group cannot recreate a node that a resize request created (https://docs.cloud.google.com/ai-hypercomputer/docs/create/create-mig-with-a4-or-a3ultra).
                default_action_on_failure="DO_NOTHING" if queued else "REPAIR",
                # A node that fails its checks stays for diagnosis. The handover reports it.
                on_failed_health_check=None if queued else "DO_NOTHING",
                force_update_on_repair="YES",
            ),
            # Scarce capacity can be delayed or unavailable. The handover waits for it and reports the errors of the group.
            wait_for_instances=False,
            # Resize requests change the size of a queued group, so Pulumi must not reset it.
            opts=pulumi.ResourceOptions.merge(
                child(self, rows.GROUP, ignore_changes=["targetSize"] if is_queued(group) else ()),
                # The provider waits 15 minutes for the instances to terminate, which can take 30 minutes
                # (kubernetes/kubernetes issue 76492).
                pulumi.ResourceOptions(
                    custom_timeouts=pulumi.CustomTimeouts(delete="60m"),
                    replace_on_changes=["description"] if queued else None,
                ),
            ),
        )
        return RunningGroup(
            plan=group,
            group=manager.id,
            template_id=template.self_link_unique,
            template_version=template.name,
            resources=(manager, *([self._resize_request(logical, group, manager)] if is_queued(group) else [])),
        )

    def _resize_request(
        self, component: str, group: Group, manager: gcp.compute.InstanceGroupManager
    ) -> gcp.compute.ResizeRequest:
        """Request all nodes of a queued group together. A request cannot be changed, so a different size or duration creates a new request."""
        logical = rows.RESIZE_REQUEST.logical(component)
        content = f"{group.max_count} {group.max_run_s} {self._args.scope.token}"
        return gcp.compute.ResizeRequest(
            logical,
            name=names.by_content(logical, content),
            zone=group.zone,
            instance_group_manager=manager.name,
            resize_by=group.max_count,
            requested_run_duration=gcp.compute.ResizeRequestRequestedRunDurationArgs(seconds=str(group.max_run_s)),
            opts=child(self, rows.RESIZE_REQUEST),
        )


def _update_policy(pool: PoolPlan, group: Group) -> gcp.compute.InstanceGroupManagerUpdatePolicyArgs:
    """Return the update policy. A new template is rolled out in batches of the size that the pool allows. The next batch
    begins after the nodes of the current batch pass the health check, so the first batch is the canary.

    If capacity is limited, a node is deleted before its replacement is requested. A queued group has no capacity for replacements, so a new
    template applies only when its nodes change.
    """
    batch = max(1, max(group.count, 1) * pool.at_once_percent // 100)
    full = group.terminate_first
    return gcp.compute.InstanceGroupManagerUpdatePolicyArgs(
        type="OPPORTUNISTIC" if group.kind == "flex" else "PROACTIVE",
        minimal_action="REPLACE",
        most_disruptive_allowed_action="REPLACE",
        replacement_method="RECREATE" if full else "SUBSTITUTE",
        max_surge_fixed=0 if full else batch,
        max_unavailable_fixed=batch if full else 0,
    )
