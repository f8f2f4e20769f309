"""The disk with the data of the control node. It is a resource of the stack, so it stays when the node is replaced."""

from __future__ import annotations

import pulumi
from pulumi_azure_native import compute

from gpuinfra.clouds.azure import resources as rows
from gpuinfra.clouds.azure.components.scope import Scope, child
from gpuinfra.clouds.azure.fixed import DATA_DISK
from gpuinfra.clouds.azure.instances import REGIONAL
from gpuinfra.clouds.saved import never_smaller
from gpuinfra.plan.model import DataDisk


def data_disk(
    component: str,
    scope: Scope,
    plan: DataDisk,
    encryption_set_id: pulumi.Input[str] | None,
    opts: pulumi.ResourceOptions,
) -> compute.Disk:
    """Create the disk, with the parent and the defaults in `opts`. `component` is the name of the pool."""
    assert opts.parent is not None
    name = rows.DATA_DISK.logical(component)
    encryption = None
    if encryption_set_id is not None:
        encryption = compute.EncryptionArgs(
            type=compute.EncryptionType.ENCRYPTION_AT_REST_WITH_CUSTOMER_KEY, disk_encryption_set_id=encryption_set_id
        )
    return compute.Disk(
        name,
        resource_group_name=scope.group,
        zones=None if plan.zone == REGIONAL else [plan.zone],
        creation_data=compute.CreationDataArgs(create_option=compute.DiskCreateOption.EMPTY),
        disk_size_gb=never_smaller(plan.size_gib, rows.DATA_DISK.type, name, "diskSizeGB"),
        sku=compute.DiskSkuArgs(name=plan.kind),
        encryption=encryption,
        network_access_policy=compute.NetworkAccessPolicy.DENY_ALL,
        public_network_access=compute.PublicNetworkAccess.DISABLED,
        opts=pulumi.ResourceOptions.merge(
            opts,
            pulumi.ResourceOptions.merge(
                child(opts.parent, rows.DATA_DISK), pulumi.ResourceOptions(replace_on_changes=list(DATA_DISK))
            ),
        ),
    )
