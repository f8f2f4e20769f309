"""Launch templates of node groups.

Values come from the plan. This module converts them to the format that the EC2 API requires: booleans as strings, Base64-encoded user data,
and security groups on each network interface.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from gpuinfra.base import naming
from gpuinfra.clouds.aws import resources as rows
from gpuinfra.clouds.aws.components.scope import Scope, child
from gpuinfra.plan.model import Group, Nic, PoolPlan

ROOT_DEVICE = "/dev/sda1"
"""Root device name of Ubuntu images and of the GPU images based on them."""


@dataclass(frozen=True, kw_only=True)
class TemplateArgs:
    """Arguments for a group's launch template."""

    scope: Scope
    pool: PoolPlan
    group: Group
    image_id: pulumi.Input[str]
    security_group_id: pulumi.Input[str]
    profile_arn: pulumi.Input[str]
    key_arn: pulumi.Input[str] | None
    user_data: pulumi.Input[str]
    """User data as plain text."""


def launch_template(name: str, args: TemplateArgs, parent: pulumi.Resource) -> aws.ec2.LaunchTemplate:
    """The launch template of a group."""
    pool, group = args.pool, args.group
    tags = node_tags(args.scope, pool, group)
    return aws.ec2.LaunchTemplate(
        name,
        description=f"{pool.machine}, {group.kind}",
        image_id=args.image_id,
        instance_type=pool.machine,
        update_default_version=True,
        iam_instance_profile=aws.ec2.LaunchTemplateIamInstanceProfileArgs(arn=args.profile_arn),
        network_interfaces=[interface(nic, args.security_group_id, alone=len(pool.nics) == 1) for nic in pool.nics],
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
            aws.ec2.LaunchTemplateTagSpecificationArgs(resource_type=kind, tags=tags)
            for kind in ("instance", "volume", "network-interface")
        ],
        opts=child(parent, rows.LAUNCH_TEMPLATE),
    )


def node_tags(scope: Scope, pool: PoolPlan, group: Group) -> dict[str, str]:
    """Return the tags for the instances, volumes and network interfaces of a group."""
    return {
        **scope.tagged(f"{scope.cluster}-{pool.name}", gpuinfra_pool=pool.name, gpuinfra_group=group.name),
        **pool.tags,
    }


def interface(
    nic: Nic, security_group_id: pulumi.Input[str], *, alone: bool
) -> aws.ec2.LaunchTemplateNetworkInterfaceArgs:
    """Return one network interface, without a public address.

    A subnet with `MapPublicIpOnLaunch` gives a public address to an instance with one interface, unless the request has
    `AssociatePublicIpAddress: false`. An instance with several interfaces gets none, and EC2 does not accept the setting on a template with several
    interfaces (`AssociatePublicIpAddress` in the EC2 API model of botocore, retrieved 2026-08; aws/aws-parallelcluster#7457).
    """
    return aws.ec2.LaunchTemplateNetworkInterfaceArgs(
        network_card_index=nic.card,
        device_index=nic.device,
        interface_type=nic.kind,
        security_groups=[security_group_id],
        delete_on_termination="true",
        associate_public_ip_address="false" if alone else None,
        description=f"card {nic.card}, device {nic.device}",
    )


def pinned_image(name: str, scope: Scope, pool: PoolPlan, parent: pulumi.Resource) -> pulumi.Output[str]:
    """Resolve the image ID of a pool once and store it in an SSM parameter of the account.

    The image that `latest` refers to changes every few weeks. Without the stored ID, an unrelated `pulumi up` would replace all nodes.
    A changed image reference in the plan creates a new parameter.
    """
    image = pool.image
    if image.source == "id":
        return pulumi.Output.from_input(image.ref)
    asked = pulumi.InvokeOutputOptions(parent=parent)
    if image.source == "ssm":
        current = aws.ssm.get_parameter_output(name=image.ref, region=scope.region, opts=asked).value
    elif image.source == "name":
        filters = {"name": image.ref, "architecture": image.arch}
        # AWS deprecates old releases. They remain usable, but the API lists them only if the request includes deprecated images.
        current = aws.ec2.get_ami_output(
            owners=["amazon"],
            filters=[aws.ec2.GetAmiFilterArgs(name=name, values=[value]) for name, value in filters.items()],
            include_deprecated=True,
            region=scope.region,
            opts=asked,
        ).id
    else:
        allowed = "'id', 'name', 'ssm'"
        raise ValueError(f"the image source of pool {pool.name!r} is {image.source!r}; allowed on AWS: {allowed}")
    token = naming.text_token(image.ref)
    pin = aws.ssm.Parameter(
        rows.IMAGE.logical(name, token=token),
        name=f"/gpuinfra/{scope.unique_name(pool.name)}/image-{token}",
        description=f"Image of pool {pool.name}: {image.ref}",
        type="String",
        insecure_value=current,
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
    """Return the Capacity Block settings of a group. A launch template sets them together with the market type;
    other reservations are set on the Auto Scaling group."""
    if group.kind != "block":
        return None
    return aws.ec2.LaunchTemplateCapacityReservationSpecificationArgs(
        capacity_reservation_target=aws.ec2.LaunchTemplateCapacityReservationSpecificationCapacityReservationTargetArgs(
            capacity_reservation_id=group.reservation_id
        )
    )
