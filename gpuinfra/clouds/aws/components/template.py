"""Launch templates: what one node of a group is.

Everything here is read off the plan; what the EC2 API wants in an odd form (booleans as strings, user data in base64, security groups in each interface)
is put into that form here and nowhere else.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from gpuinfra import naming
from gpuinfra.clouds.aws import resources as rows
from gpuinfra.clouds.aws.components.scope import Scope, child
from gpuinfra.plan.model import Group, Nic, PoolPlan

ROOT_DEVICE = "/dev/sda1"
"""Name of the root device of Ubuntu images and of the GPU images made from them."""


@dataclass(frozen=True, kw_only=True)
class TemplateArgs:
    """What the nodes of one group have in common."""

    scope: Scope
    pool: PoolPlan
    group: Group
    image_id: pulumi.Input[str]
    security_group_id: pulumi.Input[str]
    profile_arn: pulumi.Input[str]
    key_arn: pulumi.Input[str] | None
    user_data: pulumi.Input[str]
    """What the node runs at its first boot, as plain text."""


def launch_template(name: str, args: TemplateArgs, parent: pulumi.Resource) -> aws.ec2.LaunchTemplate:
    """The launch template of one group."""
    pool, group = args.pool, args.group
    marks = node_tags(args.scope, pool, group)
    return aws.ec2.LaunchTemplate(
        name,
        description=f"{pool.machine}, {group.kind}",
        image_id=args.image_id,
        instance_type=pool.machine,
        update_default_version=True,
        iam_instance_profile=aws.ec2.LaunchTemplateIamInstanceProfileArgs(arn=args.profile_arn),
        network_interfaces=[interface(nic, args.security_group_id) for nic in pool.nics],
        block_device_mappings=[_root_disk(pool, args.key_arn)],
        metadata_options=aws.ec2.LaunchTemplateMetadataOptionsArgs(
            http_endpoint="enabled",
            http_tokens="required",
            http_put_response_hop_limit=pool.metadata_hop_limit,
            instance_metadata_tags="disabled",
        ),
        monitoring=aws.ec2.LaunchTemplateMonitoringArgs(enabled=True),
        capacity_reservation_specification=_block_target(group),
        instance_market_options=aws.ec2.LaunchTemplateInstanceMarketOptionsArgs(market_type="capacity-block")
        if group.kind == "block"
        else None,
        user_data=pulumi.Output.from_input(args.user_data).apply(_encoded),
        tag_specifications=[
            aws.ec2.LaunchTemplateTagSpecificationArgs(resource_type=kind, tags=marks)
            for kind in ("instance", "volume", "network-interface")
        ],
        opts=child(parent, rows.LAUNCH_TEMPLATE),
    )


def node_tags(scope: Scope, pool: PoolPlan, group: Group) -> dict[str, str]:
    """Tags of a group's nodes and of what belongs to them; membership is read from them."""
    return {
        **scope.tagged(f"{scope.cluster}-{pool.name}", gpuinfra_pool=pool.name, gpuinfra_group=group.name),
        **pool.tags,
    }


def interface(nic: Nic, security_group_id: pulumi.Input[str]) -> aws.ec2.LaunchTemplateNetworkInterfaceArgs:
    """One interface. EC2 takes these booleans as text, and an address setting on none of several interfaces (aws.md 1.2, 1.5, 10)."""
    return aws.ec2.LaunchTemplateNetworkInterfaceArgs(
        network_card_index=nic.card,
        device_index=nic.device,
        interface_type=nic.kind,
        security_groups=[security_group_id],
        delete_on_termination="true",
        description=f"card {nic.card}, device {nic.device}",
    )


def pinned_image(name: str, scope: Scope, pool: PoolPlan, parent: pulumi.Resource) -> pulumi.Output[str]:
    """The id of the pool's image: what its reference means on the day it is first used, and the same from then on.

    A vendor's `latest` moves every few weeks; followed, it would roll the whole fleet in an unrelated `up`.
    The id is therefore written down once, in a parameter of the account; a new reference in the plan is a new parameter.
    """
    image = pool.image
    if image.source == "id":
        return pulumi.Output.from_input(image.ref)
    if image.source != "ssm":
        raise ValueError(
            f"the image source {image.source!r} of pool {pool.name!r} does not exist on AWS; allowed are 'id' and 'ssm'"
        )
    now = aws.ssm.get_parameter_output(
        name=image.ref, region=scope.region, opts=pulumi.InvokeOutputOptions(parent=parent)
    )
    token = naming.text_token(image.ref)
    pin = aws.ssm.Parameter(
        rows.IMAGE.logical(name, token=token),
        name=f"/gpuinfra/{scope.unique_name(pool.name)}/image-{token}",
        description=f"Image of pool {pool.name}: {image.ref}",
        type="String",
        insecure_value=now.value,
        opts=child(parent, rows.IMAGE, ignore_changes=["insecureValue"]),
    )
    return pin.insecure_value


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _root_disk(pool: PoolPlan, key_arn: pulumi.Input[str] | None) -> aws.ec2.LaunchTemplateBlockDeviceMappingArgs:
    disk = pool.disk
    ebs = aws.ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
        volume_size=disk.size_gib,
        volume_type=disk.kind,
        iops=disk.iops,
        throughput=disk.throughput_mib_s,
        encrypted="true" if disk.encrypted else "false",
        kms_key_id=key_arn if disk.encrypted else None,
        delete_on_termination="true",
    )
    return aws.ec2.LaunchTemplateBlockDeviceMappingArgs(device_name=ROOT_DEVICE, ebs=ebs)


def _block_target(group: Group) -> aws.ec2.LaunchTemplateCapacityReservationSpecificationArgs | None:
    """A capacity block is named in the template, beside its market type; a plain reservation in the group."""
    if group.kind != "block":
        return None
    return aws.ec2.LaunchTemplateCapacityReservationSpecificationArgs(
        capacity_reservation_target=aws.ec2.LaunchTemplateCapacityReservationSpecificationCapacityReservationTargetArgs(
            capacity_reservation_id=group.reservation_id
        )
    )
