"""The disk with the data of the control node. It is a resource of the stack, so it stays when the node is replaced."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from gpuinfra.clouds.aws import resources as rows
from gpuinfra.clouds.aws.components.scope import child
from gpuinfra.clouds.saved import never_smaller
from gpuinfra.plan.model import DataDisk


def data_disk(
    component: str, plan: DataDisk, key_arn: pulumi.Input[str], opts: pulumi.ResourceOptions
) -> aws.ebs.Volume:
    """Create the disk, with the parent and the defaults in `opts`. `component` is the name of the pool."""
    assert opts.parent is not None
    name = rows.DATA_DISK.logical(component)
    zone = aws.get_availability_zone_output(zone_id=plan.zone, opts=pulumi.InvokeOutputOptions(parent=opts.parent))
    return aws.ebs.Volume(
        name,
        availability_zone=zone.name,
        size=never_smaller(plan.size_gib, rows.DATA_DISK.type, name, "size"),
        type=plan.kind,
        encrypted=True,
        kms_key_id=key_arn,
        opts=pulumi.ResourceOptions.merge(opts, child(opts.parent, rows.DATA_DISK)),
    )
