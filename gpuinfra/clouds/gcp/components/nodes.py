"""A pool of nodes: one instance template and one zonal managed instance group for each of the plan's groups.

One group for each kind of capacity, because a template has one provisioning model and one reservation (gcp.md 4.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from gpuinfra import bundle, naming
from gpuinfra.clouds.gcp import names
from gpuinfra.clouds.gcp.components.scope import Scope, child
from gpuinfra.clouds.gcp.components.template import TemplateArgs, instance_template, pinned_image
from gpuinfra.clouds.gcp.resources import near
from gpuinfra.clouds.node_pool import BaseNodePool, BaseNodePoolArgs, RunningGroup
from gpuinfra.plan.model import Group, PoolPlan

WARMUP_S = 600
"""Time that a rolling update waits after each new node; the handover judges the node itself."""


@dataclass(frozen=True, kw_only=True)
class NodePoolArgs(BaseNodePoolArgs):
    """Arguments of a pool on Google Cloud. Each reference may be a resource that the program did not create here."""

    scope: Scope
    subnet_ids: Mapping[str, pulumi.Input[str]]
    """Subnets by the names in the plan: `private-0` for the first interface, `data-0`... for further ones, `roce-0`... for RDMA."""
    service_account: pulumi.Input[str]
    """Address of the service account of the nodes (`NodeRole.email`)."""
    key_id: pulumi.Input[str] | None = None
    """Key of the disks; if it is not set, Google encrypts them with its own key."""


class NodePool(BaseNodePool[NodePoolArgs]):
    """Nodes of one machine type, launched by one managed instance group for each group of the plan."""

    def __init__(self, name: str, args: NodePoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:gcp:NodePool", name, args, opts)

    def _create(self, built: bundle.Bundle) -> tuple[RunningGroup, ...]:
        args = self._args
        uploaded = gcp.storage.BucketObject(
            naming.logical(self._name, "bundle"),
            bucket=args.bucket,
            # The name holds the checksum, so the bundle that a template names never changes, and a new one is there before the old one is deleted.
            name=built.key_of(args.scope.cluster, args.plan.name),
            source=pulumi.FileAsset(str(bundle.on_disk(built))),
            content_type="application/gzip",
            opts=pulumi.ResourceOptions(parent=self),
        )
        image = pinned_image(self._name, args.scope, args.plan, self)
        policies = self._near()
        user_data = self._user_data("gcp", args.scope, uploaded.name)
        return tuple(self._group(group, image, user_data, policies) for group in args.plan.groups)

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
            group=manager.id,
            template_id=template.self_link_unique,
            template_version=template.name,
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
