"""The disk with the data of the control node. It is a resource of the stack, so it stays when the node is replaced."""

from __future__ import annotations

import pulumi
import pulumi_gcp as gcp

from gpuinfra.clouds.gcp import resources as rows
from gpuinfra.clouds.gcp.components.scope import Scope, child
from gpuinfra.clouds.saved import never_smaller
from gpuinfra.plan.model import DataDisk


def data_disk(
    component: str, scope: Scope, plan: DataDisk, key_id: pulumi.Input[str] | None, opts: pulumi.ResourceOptions
) -> gcp.compute.Disk:
    """Create the disk, with the parent and the defaults in `opts`. `component` is the name of the pool."""
    assert opts.parent is not None
    name = rows.DATA_DISK.logical(component)
    return gcp.compute.Disk(
        name,
        name=scope.physical_name(name),
        zone=plan.zone,
        size=never_smaller(plan.size_gib, rows.DATA_DISK.type, name, "size"),
        type=plan.kind,
        disk_encryption_key=None if key_id is None else gcp.compute.DiskDiskEncryptionKeyArgs(kms_key_self_link=key_id),
        opts=pulumi.ResourceOptions.merge(opts, child(opts.parent, rows.DATA_DISK)),
    )
