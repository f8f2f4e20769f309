"""The virtual machine profile of a scale set, which configures the nodes of a group.

This module converts the plan to the format that the Compute API requires, such as Base64-encoded scripts.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import compute

from gpuinfra.clouds.azure import names
from gpuinfra.clouds.azure.components.scope import Scope
from gpuinfra.clouds.azure.renew import renewal
from gpuinfra.clouds.azure.tunnel import USER, placeholder_key
from gpuinfra.node.health import PATH, PORT
from gpuinfra.plan.model import Group, PoolPlan

GRACE_S = 3600
"""Grace period of the health extension. With a plain image, installing the driver, rebooting and running the checks take about 15 minutes."""


@dataclass(frozen=True, kw_only=True)
class ModelArgs:
    """Arguments for a group's profile."""

    scope: Scope
    pool: PoolPlan
    group: Group
    image_version: pulumi.Input[str] | None
    """Version of the marketplace image, or `None` for an image that is referenced by ID."""
    subnet_id: pulumi.Input[str]
    security_group_id: pulumi.Input[str] | None
    members_group_id: pulumi.Input[str] | None
    disk_encryption_set_id: pulumi.Input[str] | None
    user_data: pulumi.Input[str]
    """Script that nodes run at first boot, as plain text."""


def machine_model(args: ModelArgs) -> compute.VirtualMachineScaleSetVMProfileArgs:
    """Build the profile of a group."""
    group = args.group
    spot = group.kind == "spot"
    return compute.VirtualMachineScaleSetVMProfileArgs(
        priority="Spot" if spot else "Regular",
        eviction_policy="Delete" if spot else None,
        billing_profile=compute.BillingProfileArgs(
            # -1 sets the limit to the on-demand price, so that Azure does not evict nodes because of the price.
            max_price=-1 if group.max_price_usd is None else group.max_price_usd
        )
        if spot
        else None,
        capacity_reservation=compute.CapacityReservationProfileArgs(
            capacity_reservation_group=compute.SubResourceArgs(id=group.reservation_id)
        )
        if group.reservation_id
        else None,
        # No security type is set, because ND A100 v4 does not support Trusted Launch,
        # and Secure Boot rejects kernel modules that are built on the node
        # (https://learn.microsoft.com/azure/virtual-machines/trusted-launch, page dated 2025-04-21).
        security_profile=compute.SecurityProfileArgs(encryption_at_host=True),
        # Boot diagnostics with managed storage provide the console log of nodes that do not report.
        diagnostics_profile=compute.DiagnosticsProfileArgs(boot_diagnostics=compute.BootDiagnosticsArgs(enabled=True)),
        os_profile=_os(args),
        storage_profile=_disks(args),
        network_profile=_network(args),
        extension_profile=compute.VirtualMachineScaleSetExtensionProfileArgs(
            extensions=[_health(), _renew(args)], extensions_time_budget="PT90M"
        ),
    )


def template_hash(args: ModelArgs) -> pulumi.Output[str]:
    """Return a short hash of the node configuration. A node with a different hash is out of date."""
    pool, group = args.pool, args.group
    fixed = (pool.machine, pool.image.ref, pool.disk.size_gib, pool.disk.kind, group.kind, group.reservation_id)
    parts = pulumi.Output.all(args.user_data, args.image_version, args.subnet_id, args.disk_encryption_set_id)
    return parts.apply(lambda known: hashlib.sha256(repr((fixed, *known)).encode()).hexdigest()[:12])


def _os(args: ModelArgs) -> compute.VirtualMachineScaleSetOSProfileArgs:
    keys = args.pool.ssh_keys or (placeholder_key(),)
    return compute.VirtualMachineScaleSetOSProfileArgs(
        computer_name_prefix=names.computer_prefix(args.scope.cluster, args.pool.name),
        admin_username=USER,
        custom_data=pulumi.Output.from_input(args.user_data).apply(_encoded),
        linux_configuration=compute.LinuxConfigurationArgs(
            disable_password_authentication=True,
            provision_vm_agent=True,
            ssh=compute.SshConfigurationArgs(
                public_keys=[
                    compute.SshPublicKeyArgs(path=f"/home/{USER}/.ssh/authorized_keys", key_data=key) for key in keys
                ]
            ),
        ),
    )


def _disks(args: ModelArgs) -> compute.VirtualMachineScaleSetStorageProfileArgs:
    disk = args.pool.disk
    encryption = None
    if args.disk_encryption_set_id is not None:
        encryption = compute.DiskEncryptionSetParametersArgs(id=args.disk_encryption_set_id)
    return compute.VirtualMachineScaleSetStorageProfileArgs(
        image_reference=_image(args),
        os_disk=compute.VirtualMachineScaleSetOSDiskArgs(
            create_option="FromImage",
            caching=compute.CachingTypes.READ_WRITE,
            disk_size_gb=disk.size_gib,
            managed_disk=compute.VirtualMachineScaleSetManagedDiskParametersArgs(
                storage_account_type=disk.kind, disk_encryption_set=encryption
            ),
        ),
    )


def _image(args: ModelArgs) -> compute.ImageReferenceArgs:
    image = args.pool.image
    if image.source == "id":
        return compute.ImageReferenceArgs(id=image.ref)
    publisher, offer, sku, _ = image.ref.split(":")
    return compute.ImageReferenceArgs(publisher=publisher, offer=offer, sku=sku, version=args.image_version)


def _network(args: ModelArgs) -> compute.VirtualMachineScaleSetNetworkProfileArgs:
    """Return the network interfaces in the plan. InfiniBand adapters are passed through and not declared."""
    security_group = None
    if args.security_group_id is not None:
        security_group = compute.SubResourceArgs(id=args.security_group_id)
    return compute.VirtualMachineScaleSetNetworkProfileArgs(
        network_interface_configurations=[
            compute.VirtualMachineScaleSetNetworkConfigurationArgs(
                name=f"nic-{index}",
                primary=index == 0,
                enable_accelerated_networking=True,
                enable_ip_forwarding=False,
                network_security_group=security_group,
                ip_configurations=[
                    compute.VirtualMachineScaleSetIPConfigurationArgs(
                        name=f"ip-{index}",
                        primary=True,
                        subnet=compute.ApiEntityReferenceArgs(id=args.subnet_id),
                        application_security_groups=[compute.SubResourceArgs(id=args.members_group_id)]
                        if args.members_group_id is not None
                        else None,
                    )
                ],
            )
            for index, _ in enumerate(args.pool.nics)
        ]
    )


def _health() -> compute.VirtualMachineScaleSetExtensionArgs:
    """Return the health extension. It queries the agent on the node, which reports healthy after the node is verified."""
    return compute.VirtualMachineScaleSetExtensionArgs(
        name="gpuinfra-health",
        publisher="Microsoft.ManagedServices",
        type="ApplicationHealthLinux",
        type_handler_version="2.0",
        auto_upgrade_minor_version=True,
        enable_automatic_upgrade=True,
        settings={
            "protocol": "http",
            "port": PORT,
            "requestPath": PATH,
            "intervalInSeconds": 15,
            "numberOfProbes": 2,
            "gracePeriod": GRACE_S,
        },
    )


def _renew(args: ModelArgs) -> compute.VirtualMachineScaleSetExtensionArgs:
    """Return the extension that updates the bundle of running nodes. Azure passes custom data to a node only at first boot."""
    return compute.VirtualMachineScaleSetExtensionArgs(
        name="gpuinfra-renew",
        publisher="Microsoft.Azure.Extensions",
        type="CustomScript",
        type_handler_version="2.1",
        auto_upgrade_minor_version=True,
        settings={"script": pulumi.Output.from_input(args.user_data).apply(lambda text: _encoded(renewal(text)))},
    )


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
