"""A pool of nodes: one launch template and one Auto Scaling group for each of the plan's groups.

One template per group, so that a new version rolls one group at a time and a capacity block's market type touches nobody else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws

from gpuinfra import bundle, naming
from gpuinfra.clouds.aws.components.scope import Scope, child
from gpuinfra.clouds.aws.components.template import (
    TemplateArgs,
    launch_template,
    node_tags,
    node_user_data,
    pinned_image,
)
from gpuinfra.clouds.aws.resources import made_placement_groups, window
from gpuinfra.plan.model import Group, PoolPlan

GRACE_S = 1200
"""Time before a new node's health counts: driver, reboot and checks of a plain image take about a quarter of an hour."""

WARMUP_S = 600
"""Time that a rolling update waits for each new node, and at its canary; the handover judges the node itself."""


@dataclass(frozen=True, kw_only=True)
class NodePoolArgs:
    """What a pool stands on; everything but the plan may be somebody else's."""

    scope: Scope
    plan: PoolPlan
    subnet_id: pulumi.Input[str]
    """The private subnet of all its nodes."""
    security_group_id: pulumi.Input[str]
    """Group of every interface (`Security.nodes_group_id`)."""
    profile_arn: pulumi.Input[str]
    """Instance profile of its nodes (`NodeRole.profile_arn`)."""
    bucket: pulumi.Input[str]
    """Bucket that its bundle is put into and its evidence is written to."""
    evidence_prefix: str
    """Where its nodes write in the bucket."""
    evidence_owner: pulumi.Input[str]
    """Unique id of the nodes' role, first half of each node's folder."""
    key_arn: pulumi.Input[str] | None = None
    """Key of its disks; left out, the account's default for EBS is used."""
    file_systems: pulumi.Output[Sequence[Mapping[str, Any]]] | Sequence[Mapping[str, Any]] = ()
    """What its nodes mount: `kind`, `mount`, `dns_name`, `mount_name`; may hold outputs."""


@dataclass(frozen=True, kw_only=True)
class RunningGroup:
    """One group of the pool, for those who wait for its nodes."""

    plan: Group
    name: pulumi.Output[str]
    template_id: pulumi.Output[str]
    template_version: pulumi.Output[int]
    resource: aws.autoscaling.Group


class NodePool(pulumi.ComponentResource):
    """Nodes of one machine type, launched by one Auto Scaling group for each kind of capacity."""

    group_names: dict[str, pulumi.Output[str]]
    """Names of the Auto Scaling groups, by the plan's names."""
    bundle_sha256: str
    """Checksum of what its nodes run at boot."""

    def __init__(self, name: str, args: NodePoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:aws:NodePool", name, None, opts)
        self._name, self._args = name, args
        self.plan = args.plan
        """What the pool was planned as."""
        built = bundle.build(args.plan)
        self.bundle_sha256 = built.sha256
        key = self._upload(built)
        image_id = pinned_image(name, args.scope, args.plan, self)
        placement = self._placement_groups()
        user_data = node_user_data(self._node_config(key), bundle.user_data)
        self.groups = tuple(self._group(group, image_id, user_data, placement) for group in args.plan.groups)
        """The groups, in the plan's order."""
        self.group_names = {group.plan.name: group.name for group in self.groups}
        self.register_outputs({"group_names": self.group_names, "bundle_sha256": self.bundle_sha256})

    def _upload(self, built: bundle.Bundle) -> pulumi.Output[str]:
        """The bundle in the bucket, under a key that is its checksum: what a template names never changes under it."""
        args = self._args
        uploaded = aws.s3.BucketObjectv2(
            naming.logical(self._name, "bundle"),
            bucket=args.bucket,
            key=built.key_of(args.scope.cluster, args.plan.name),
            source=pulumi.FileAsset(str(bundle.on_disk(built))),
            content_type="application/gzip",
            region=args.scope.region,
            # Objects take ten tags and no more, so a person's own stay off it.
            tags={
                key: value
                for key, value in args.scope.tagged(self._name).items()
                if key == "Name" or key.startswith("gpuinfra:")
            },
            opts=child(self),
        )
        return uploaded.key

    def _node_config(self, key: pulumi.Output[str]) -> dict[str, Any]:
        """`node.json`, as docs/design.md has it."""
        args = self._args
        return {
            "schema": "gpuinfra.node/1",
            "cloud": "aws",
            "cluster": args.scope.cluster,
            "pool": args.plan.name,
            "region": args.scope.region,
            "evidence": {"bucket": args.bucket, "prefix": args.evidence_prefix, "owner": args.evidence_owner},
            "bundle": {"bucket": args.bucket, "key": key, "sha256": self.bundle_sha256},
            "file_systems": args.file_systems,
        }

    def _placement_groups(self) -> dict[str, aws.ec2.PlacementGroup]:
        scope = self._args.scope
        return {
            wish: aws.ec2.PlacementGroup(
                naming.logical(self._name, "placement", index),
                strategy="cluster",
                region=scope.region,
                tags=scope.tagged(naming.logical(self._name, "placement", index)),
                opts=child(self),
            )
            for index, wish in enumerate(made_placement_groups(self._args.plan))
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
            naming.logical(logical, "template"),
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
        # latest_version and not "$Latest": a new version has to show as a change, or nothing rolls.
        version = template.latest_version.apply(str)
        scaling = aws.autoscaling.Group(
            logical,
            min_size=0,
            desired_capacity=group.count,
            max_size=group.max_count,
            vpc_zone_identifiers=[args.subnet_id],
            launch_template=None if spot else aws.autoscaling.GroupLaunchTemplateArgs(id=template.id, version=version),
            mixed_instances_policy=_all_spot(template, version, group) if spot else None,
            capacity_rebalance=True if spot else None,
            capacity_reservation_specification=_reservation(group),
            placement_group=placement[group.placement_group].name
            if group.placement_group in placement
            else group.placement_group,
            health_check_type="EC2",
            health_check_grace_period=GRACE_S,
            # Scarce capacity arrives late or not at all; whoever waits for it reads the group's activities and says which.
            wait_for_capacity_timeout="0",
            ignore_failed_scaling_activities=True,
            instance_refresh=_rolling(pool, group),
            termination_policies=["OldestLaunchTemplate", "OldestInstance"],
            tags=self._propagated(group),
            region=args.scope.region,
            # Before its window a group is filled by its schedule, at a moment when nobody runs `up`.
            opts=child(self, ignore_changes=["desiredCapacity"] if group.starts_at and not group.count else ()),
        )
        self._window(logical, group, scaling)
        return RunningGroup(
            plan=group,
            name=scaling.name,
            template_id=template.id,
            template_version=template.latest_version,
            resource=scaling,
        )

    def _propagated(self, group: Group) -> list[aws.autoscaling.GroupTagArgs]:
        scope, pool = self._args.scope, self._args.plan
        tags = node_tags(scope, pool, group)
        return [
            aws.autoscaling.GroupTagArgs(key=key, value=value, propagate_at_launch=True)
            for key, value in sorted(tags.items())
        ]

    def _window(self, logical: str, group: Group, scaling: aws.autoscaling.Group) -> None:
        """A group with a window is empty outside it; the group's own schedule fills and empties it."""
        for what, moment in window(group):
            aws.autoscaling.Schedule(
                naming.logical(logical, what),
                scheduled_action_name=what,
                autoscaling_group_name=scaling.name,
                start_time=moment,
                min_size=0,
                max_size=group.max_count,
                desired_capacity=group.max_count if what == "start" else 0,
                region=self._args.scope.region,
                opts=child(self),
            )


def _all_spot(
    template: aws.ec2.LaunchTemplate, version: pulumi.Output[str], group: Group
) -> aws.autoscaling.GroupMixedInstancesPolicyArgs:
    """Nothing but spot: a group takes no template with a market option, so that the distribution says it (aws.md 2.5)."""
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


def _rolling(pool: PoolPlan, group: Group) -> aws.autoscaling.GroupInstanceRefreshArgs:
    """A new template version rolls through the group: the canary first, then no more at a time than the pool allows.

    Where capacity is full, a node is given up before its successor is asked for.
    """
    count = max(group.count, 1)
    step = max(1, count * pool.at_once_percent // 100)
    first = math.ceil(min(pool.canary, count) * 100 / count)
    return aws.autoscaling.GroupInstanceRefreshArgs(
        strategy="Rolling",
        preferences=aws.autoscaling.GroupInstanceRefreshPreferencesArgs(
            min_healthy_percentage=(count - step) * 100 // count if group.terminate_first else 100,
            max_healthy_percentage=100 if group.terminate_first else min(200, 100 + math.ceil(step * 100 / count)),
            instance_warmup=str(WARMUP_S),
            skip_matching=True,
            checkpoint_percentages=[first, 100] if 0 < first < 100 else [100],
            checkpoint_delay=str(WARMUP_S),
        ),
    )
