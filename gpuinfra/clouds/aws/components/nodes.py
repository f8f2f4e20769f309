"""A pool of nodes: a launch template and an Auto Scaling group for each group in the plan.

Each group has its own launch template, because the template sets the market type for Capacity Blocks, and so that groups can be updated separately.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from gpuinfra import bundle
from gpuinfra.base import naming
from gpuinfra.clouds.aws import resources as rows
from gpuinfra.clouds.aws.components.scope import Scope, child
from gpuinfra.clouds.aws.components.template import (
    TemplateArgs,
    launch_template,
    node_tags,
    pinned_image,
)
from gpuinfra.clouds.aws.instances import created_placement_groups, schedule
from gpuinfra.clouds.node_pool import BaseNodePool, BaseNodePoolArgs, RunningGroup
from gpuinfra.plan.model import Group, PoolPlan

GRACE_S = 1200
"""Health check grace period. With a plain image, installing the driver, rebooting and running the checks take about 15 minutes."""

WARMUP_S = 600
"""Instance warmup of an instance refresh. The handover verifies the nodes."""


@dataclass(frozen=True, kw_only=True)
class NodePoolArgs(BaseNodePoolArgs):
    """Arguments for a pool on AWS. References can also point to existing resources."""

    scope: Scope
    subnet_id: pulumi.Input[str]
    """Private subnet for all nodes."""
    security_group_id: pulumi.Input[str]
    """Security group for every network interface (`SecurityGroups.nodes_group_id`)."""
    profile_arn: pulumi.Input[str]
    """Instance profile for the nodes (`NodeRole.profile_arn`)."""
    node_role: pulumi.Input[str]
    """Name of the role in this profile (`NodeRole.role_name`). Evidence is accepted only from this role."""
    evidence_owner: pulumi.Input[str]
    """Unique ID of the role (`NodeRole.unique_id`). It is the first part of the name of each node's evidence folder."""
    log_group: pulumi.Input[str] | None = None
    """Name of the log group of the nodes, if they send logs."""
    key_arn: pulumi.Input[str] | None = None
    """KMS key for the disks. If unset, EBS uses the default key of the account."""


class NodePool(BaseNodePool[NodePoolArgs]):
    """Nodes of one machine type, launched by an Auto Scaling group for each group in the plan."""

    def __init__(self, name: str, args: NodePoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(
            "gpuinfra:aws:NodePool",
            name,
            args,
            args.scope,
            opts,
            node_role=args.node_role,
            evidence_owner=args.evidence_owner,
        )

    def _create(self, built: bundle.Bundle) -> tuple[RunningGroup, ...]:
        args = self._args
        uploaded = aws.s3.BucketObjectv2(
            rows.BUNDLE.logical(self._name),
            bucket=args.bucket,
            # The object key contains the checksum, so the bundle that a launch template references never changes.
            key=built.key_of(args.scope.cluster, args.plan.name),
            source=pulumi.FileAsset(str(bundle.on_disk(built))),
            content_type="application/gzip",
            opts=child(self, rows.BUNDLE),
        )
        image_id = pinned_image(self._name, args.scope, args.plan, self)
        placement = self._placement_groups()
        logs = {} if args.log_group is None else {"log_group": args.log_group}
        user_data = self._user_data("aws", args.scope, uploaded.key, evidence={"owner": args.evidence_owner}, **logs)
        return tuple(self._group(group, image_id, user_data, placement) for group in args.plan.groups)

    def _placement_groups(self) -> dict[str, aws.ec2.PlacementGroup]:
        return {
            name: aws.ec2.PlacementGroup(
                rows.PLACEMENT_GROUP.logical(self._name, index=index),
                strategy="cluster",
                opts=child(self, rows.PLACEMENT_GROUP),
            )
            for index, name in enumerate(created_placement_groups(self._args.plan))
        }

    def _group(
        self,
        group: Group,
        image_id: pulumi.Output[str],
        user_data: pulumi.Output[str],
        placement: dict[str, aws.ec2.PlacementGroup],
    ) -> RunningGroup:
        args, pool = self._args, self._args.plan
        logical = naming.logical(args.scope.cluster, group.name)
        template = launch_template(
            rows.LAUNCH_TEMPLATE.logical(logical),
            TemplateArgs(
                scope=args.scope,
                pool=pool,
                group=group,
                image_id=image_id,
                security_group_id=args.security_group_id,
                profile_arn=args.profile_arn,
                key_arn=args.key_arn,
                user_data=user_data,
            ),
            self,
        )
        spot = group.kind == "spot"
        # A version number instead of "$Latest", because only a changed input starts an instance refresh.
        version = template.latest_version.apply(str)
        scaling = aws.autoscaling.Group(
            rows.GROUP.logical(logical),
            min_size=0,
            desired_capacity=group.count,
            max_size=_largest(group),
            vpc_zone_identifiers=[args.subnet_id],
            launch_template=None if spot else aws.autoscaling.GroupLaunchTemplateArgs(id=template.id, version=version),
            mixed_instances_policy=_all_spot(template, version, group) if spot else None,
            # With rebalancing, a recommendation alone ends a node as soon as its replacement runs. The interruption itself gives two minutes.
            capacity_rebalance=False if spot else None,
            capacity_reservation_specification=_reservation(group),
            placement_group=placement[group.placement_group].name
            if group.placement_group in placement
            else group.placement_group,
            health_check_type="EC2",
            health_check_grace_period=GRACE_S,
            # Capacity can be delayed or unavailable. The handover waits for the nodes and reports the scaling activities of the group.
            wait_for_capacity_timeout="0",
            ignore_failed_scaling_activities=True,
            instance_refresh=_rolling(pool, group),
            termination_policies=["OldestLaunchTemplate", "OldestInstance"],
            tags=self._propagated(group),
            # If the time window is in the future, scheduled actions set the group size.
            opts=pulumi.ResourceOptions.merge(
                child(
                    self, rows.GROUP, ignore_changes=["desiredCapacity"] if group.starts_at and not group.count else ()
                ),
                pulumi.ResourceOptions(custom_timeouts=_timeouts(pool.machine)),
            ),
        )
        self._schedule(logical, group, scaling)
        return RunningGroup(
            plan=group,
            group=scaling.name,
            template_id=template.id,
            template_version=template.latest_version,
            resources=(scaling,),
        )

    def _propagated(self, group: Group) -> list[aws.autoscaling.GroupTagArgs]:
        scope, pool = self._args.scope, self._args.plan
        tags = node_tags(scope, pool, group)
        return [
            aws.autoscaling.GroupTagArgs(key=key, value=value, propagate_at_launch=True)
            for key, value in sorted(tags.items())
        ]

    def _schedule(self, logical: str, group: Group, scaling: aws.autoscaling.Group) -> None:
        """Create the scheduled actions that scale a group with a time window up and down."""
        for action, moment in schedule(group):
            aws.autoscaling.Schedule(
                rows.SCHEDULE.logical(logical, action=action),
                scheduled_action_name=action,
                autoscaling_group_name=scaling.name,
                start_time=moment,
                min_size=0,
                max_size=group.max_count,
                desired_capacity=group.max_count if action == "start" else 0,
                opts=child(self, rows.SCHEDULE),
            )


def _largest(group: Group) -> int:
    """Return the maximum size of a group. It is 0 after the end of the group.

    The state contains the size of the last `up`, which is 0 if a scheduled action started the nodes. The maximum size then causes the
    update. EC2 Auto Scaling reduces the size to a smaller maximum (API reference of UpdateAutoScalingGroup, retrieved 2026-11-27).
    """
    return group.max_count if group.count or group.starts_at else 0


def _all_spot(
    template: aws.ec2.LaunchTemplate, version: pulumi.Output[str], group: Group
) -> aws.autoscaling.GroupMixedInstancesPolicyArgs:
    """Return a distribution that uses only Spot Instances.

    A mixed instances policy does not accept a launch template with a market option (awsdocs/amazon-ec2-auto-scaling-user-guide: create-launch-template.md).
    """
    specification = aws.autoscaling.GroupMixedInstancesPolicyLaunchTemplateLaunchTemplateSpecificationArgs(
        launch_template_id=template.id, version=version
    )
    distribution = aws.autoscaling.GroupMixedInstancesPolicyInstancesDistributionArgs(
        on_demand_base_capacity=0,
        on_demand_percentage_above_base_capacity=0,
        spot_allocation_strategy=group.spot_strategy,
        spot_max_price=None if group.max_price_usd is None else f"{group.max_price_usd:g}",
    )
    return aws.autoscaling.GroupMixedInstancesPolicyArgs(
        launch_template=aws.autoscaling.GroupMixedInstancesPolicyLaunchTemplateArgs(
            launch_template_specification=specification
        ),
        instances_distribution=distribution,
    )


def _reservation(group: Group) -> aws.autoscaling.GroupCapacityReservationSpecificationArgs | None:
    if group.kind == "block" or group.reservation_preference is None:
        return None
    target = None
    if group.reservation_id or group.reservation_group_arn:
        target = aws.autoscaling.GroupCapacityReservationSpecificationCapacityReservationTargetArgs(
            capacity_reservation_ids=[group.reservation_id] if group.reservation_id else None,
            capacity_reservation_resource_group_arns=[group.reservation_group_arn]
            if group.reservation_group_arn
            else None,
        )
    return aws.autoscaling.GroupCapacityReservationSpecificationArgs(
        capacity_reservation_preference=group.reservation_preference, capacity_reservation_target=target
    )


def _timeouts(machine: str) -> pulumi.CustomTimeouts:
    """Return how long the provider waits for a group's instances to terminate. The default is 10 minutes.

    Deletions that took longer are reported in terraform-provider-aws issues 567 (with lifecycle hooks) and 760.
    It is not verified that P instances take longer to stop.
    """
    minutes = 60 if machine.startswith("p") else 20
    return pulumi.CustomTimeouts(update=f"{minutes}m", delete=f"{minutes}m")


def _rolling(pool: PoolPlan, group: Group) -> aws.autoscaling.GroupInstanceRefreshArgs:
    """Return the instance refresh settings.

    The refresh that the provider starts replaces the canary and then stops.
    After the handover verifies the canary, the handover starts a refresh of the other nodes.
    At most `at_once_percent` of the group is replaced at a time. If capacity is limited, each instance is terminated before its replacement is launched.
    """
    count = max(group.count, 1)
    step = max(1, count * pool.at_once_percent // 100)
    # A checkpoint is reached when at least this percentage of the nodes is new.
    first = max(1, min(pool.canary, count) * 100 // count) if pool.canary else 100
    return aws.autoscaling.GroupInstanceRefreshArgs(
        strategy="Rolling",
        preferences=aws.autoscaling.GroupInstanceRefreshPreferencesArgs(
            min_healthy_percentage=(count - step) * 100 // count if group.terminate_first else 100,
            max_healthy_percentage=100 if group.terminate_first else min(200, 100 + math.ceil(step * 100 / count)),
            instance_warmup=str(WARMUP_S),
            skip_matching=True,
            checkpoint_percentages=[first],
            checkpoint_delay="0",
        ),
    )
