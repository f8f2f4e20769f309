"""A pool of nodes: one uniform scale set for each group in the plan.

A scale set is a single InfiniBand fabric (https://learn.microsoft.com/azure/virtual-machines/setup-infiniband, page dated 2026-09-25),
so a pool with InfiniBand has one scale set.
A changed profile is rolled out in batches. The rollout stops if upgraded nodes are unhealthy. A node is healthy after it passes all checks,
because the health extension queries the agent on the node.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_azure_native import compute

from gpuinfra import bundle
from gpuinfra.base import naming
from gpuinfra.clouds.azure import resources as rows
from gpuinfra.clouds.azure.components.images import pinned_version
from gpuinfra.clouds.azure.components.model import ModelArgs, machine_model, template_hash
from gpuinfra.clouds.azure.components.scope import Scope, child
from gpuinfra.clouds.azure.fixed import SCALE_SET
from gpuinfra.clouds.azure.handover.upload import Upload, UploadArgs
from gpuinfra.clouds.azure.instances import MIN_BATCH_PERCENT, REGIONAL
from gpuinfra.clouds.node_pool import BaseNodePool, BaseNodePoolArgs, RunningGroup
from gpuinfra.plan.model import Group, PoolPlan

MOST_UNHEALTHY_PERCENT = 20
"""Maximum percentage of upgraded nodes that can be unhealthy before the upgrade stops. The first batch is the canary."""

BATCH_PAUSE = "PT2M"
"""Pause between batches. It gives the nodes of a batch time to report that they are not verified yet. Otherwise, their previous health state would count."""


@dataclass(frozen=True, kw_only=True)
class NodePoolArgs(BaseNodePoolArgs):
    """Arguments for a pool on Azure. References can also point to existing resources."""

    scope: Scope
    subnet_id: pulumi.Input[str]
    """Private subnet for all nodes."""
    identity_id: pulumi.Input[str]
    """Identity for the nodes (`NodeRole.identity_id`)."""
    client_id: pulumi.Input[str]
    """Client ID of this identity, which nodes use to request tokens (`NodeRole.client_id`)."""
    security_group_id: pulumi.Input[str] | None = None
    """Network security group for every interface (`SecurityGroups.nodes_group_id`). If unset, only the security rules of the subnet apply."""
    members_group_id: pulumi.Input[str] | None = None
    """Application security group that every interface joins. If unset, the interfaces join none."""
    disk_encryption_set_id: pulumi.Input[str] | None = None
    """Disk encryption set. If unset, Azure encrypts the disks with a Microsoft-managed key."""


class NodePool(BaseNodePool[NodePoolArgs]):
    """Nodes of one machine type, in a scale set for each group in the plan."""

    def __init__(self, name: str, args: NodePoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:azure:NodePool", name, args, args.scope, opts)

    def _create(self, built: bundle.Bundle) -> tuple[RunningGroup, ...]:
        args = self._args
        image = pinned_version(self._name, args.scope, args.plan, self)
        upload, key = self._upload(built)
        user_data = self._user_data("azure", args.scope, key, identity={"client_id": args.client_id})
        return tuple(self._group(group, image, user_data, upload) for group in args.plan.groups)

    def _upload(self, built: bundle.Bundle) -> tuple[Upload, str]:
        """Upload the bundle and return the blob and its name. The name contains the checksum, so the bundle that a scale set references never changes."""
        key = built.key_of(self._args.scope.cluster, self.plan.name)
        source = pulumi.FileAsset(str(bundle.on_disk(built)))
        upload = Upload(
            rows.BUNDLE.logical(self._name),
            UploadArgs(container=self._args.bucket, blob=key, sha256=built.sha256, source=source),
            child(self, rows.BUNDLE),
        )
        return upload, key

    def _group(
        self, group: Group, image: pulumi.Output[str] | None, user_data: pulumi.Output[str], upload: Upload
    ) -> RunningGroup:
        args, pool, scope = self._args, self._args.plan, self._args.scope
        model = ModelArgs(
            scope=scope,
            pool=pool,
            group=group,
            image_version=image,
            subnet_id=args.subnet_id,
            security_group_id=args.security_group_id,
            members_group_id=args.members_group_id,
            disk_encryption_set_id=args.disk_encryption_set_id,
            user_data=user_data,
        )
        version = template_hash(model)
        spot = group.kind == "spot"
        tags = scope.tagged(
            f"{scope.cluster}-{pool.name}", gpuinfra_pool=pool.name, gpuinfra_group=group.name, **pool.tags
        )
        scale_set = compute.VirtualMachineScaleSet(
            rows.SCALE_SET.logical(naming.logical(scope.cluster, group.name)),
            resource_group_name=scope.group,
            zones=None if group.zone == REGIONAL else [group.zone],
            orchestration_mode="Uniform",
            # Set explicitly, because the default depends on the zones
            # (https://learn.microsoft.com/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-use-availability-zones, page dated 2026-05-19).
            single_placement_group=group.single_fabric,
            platform_fault_domain_count=group.fault_domains,
            # Overprovisioned nodes that Azure later deletes consume quota and incur costs.
            overprovision=False,
            sku=compute.SkuArgs(name=pool.machine, tier="Standard", capacity=group.count),
            identity=compute.VirtualMachineScaleSetIdentityArgs(
                type=compute.ResourceIdentityType.USER_ASSIGNED, user_assigned_identities=[args.identity_id]
            ),
            upgrade_policy=_rolling(pool, group),
            spot_restore_policy=compute.SpotRestorePolicyArgs(enabled=True, restore_timeout="PT1H") if spot else None,
            virtual_machine_profile=machine_model(model),
            tags={**tags, "gpuinfra:template": version},
            # If capacity is limited, two scale sets cannot exist at the same time.
            opts=child(
                self,
                rows.SCALE_SET,
                depends_on=[upload],
                replace_on_changes=SCALE_SET,
                delete_before_replace=group.terminate_first or None,
            ),
        )
        return RunningGroup(plan=group, group=scale_set.id, template_version=version, resources=(scale_set,))


def _rolling(pool: PoolPlan, group: Group) -> compute.UpgradePolicyArgs:
    """Upgrade the group in batches of the size that the pool allows. The first batch is the canary.

    If capacity is limited, a node is stopped before it is upgraded. Otherwise, Azure adds a node first.
    Unhealthy nodes are upgraded first and do not stop the upgrade, because the new profile may fix them.
    """
    percent = min(100, max(MIN_BATCH_PERCENT, pool.at_once_percent))
    return compute.UpgradePolicyArgs(
        mode=compute.UpgradeMode.ROLLING,
        rolling_upgrade_policy=compute.RollingUpgradePolicyArgs(
            max_batch_instance_percent=percent,
            max_unhealthy_instance_percent=100,
            max_unhealthy_upgraded_instance_percent=MOST_UNHEALTHY_PERCENT,
            # The health extension reads the state every 15 s and needs two identical readings, so the state from before the update counts for 30 s.
            pause_time_between_batches=BATCH_PAUSE,
            prioritize_unhealthy_instances=True,
            rollback_failed_instances_on_policy_breach=False,
            max_surge=False if group.terminate_first else None,
        ),
        automatic_os_upgrade_policy=compute.AutomaticOSUpgradePolicyArgs(
            # Image upgrades happen only when you request them.
            enable_automatic_os_upgrade=False
        ),
    )
