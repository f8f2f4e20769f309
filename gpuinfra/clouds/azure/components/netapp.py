"""Home directories on Azure NetApp Files: an NFS 3 volume in its own capacity pool for each file system. `destroy` retains the volumes and their network.

Clients are authorized by their address, in the export policy and in the security group of the delegated subnet. Azure encrypts the volumes at rest with
keys that it manages. NFS 3 transfers files without encryption inside the virtual network.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_azure_native import netapp

from gpuinfra.clouds.azure import names
from gpuinfra.clouds.azure import resources as rows
from gpuinfra.clouds.azure.components.scope import Scope, child
from gpuinfra.clouds.azure.fixed import NETAPP_POOL, NETAPP_VOLUME
from gpuinfra.clouds.azure.instances import NETAPP
from gpuinfra.plan.model import FileSystemPlan

_GIB = 2**30
_SNAPSHOT_HOUR = 2
"""Hour of the daily snapshots, in UTC."""


@dataclass(frozen=True, kw_only=True)
class NetAppHomeDirectoriesArgs:
    """Arguments for the home directories."""

    scope: Scope
    plans: tuple[FileSystemPlan, ...]
    """File systems on Azure NetApp Files. Each is a volume."""
    subnet_id: pulumi.Input[str]
    """Subnet that is delegated to `Microsoft.Netapp/volumes`. A network has at most one."""
    clients: str = "0.0.0.0/0"
    """Address range that can mount the volumes, such as the range of the node subnet."""


class NetAppHomeDirectories(pulumi.ComponentResource):
    """A NetApp account, and a capacity pool with a volume for each file system."""

    account_id: pulumi.Output[str]
    """ID of the account."""
    servers: dict[str, pulumi.Output[str]]
    """Address of the file server of each volume, keyed by the name of the file system in the plan."""
    paths: dict[str, pulumi.Output[str]]
    """Exported path of each volume, keyed by the name of the file system in the plan."""

    def __init__(self, name: str, args: NetAppHomeDirectoriesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:azure:NetAppHomeDirectories", name, None, args.scope.options(opts))
        self._name, self._args = name, args
        self._account = netapp.Account(
            rows.NETAPP_ACCOUNT.logical(name),
            account_name=args.scope.unique_name(NETAPP),
            resource_group_name=args.scope.group,
            opts=child(self, rows.NETAPP_ACCOUNT),
        )
        self.account_id = self._account.id
        self.servers, self.paths = {}, {}
        for plan in args.plans:
            volume = self._volume(plan)
            self.servers[plan.name] = volume.mount_targets.apply(lambda targets: targets[0].ip_address)
            self.paths[plan.name] = pulumi.Output.concat("/", volume.creation_token)
        self.register_outputs({"account_id": self.account_id, "servers": self.servers, "paths": self.paths})

    def _volume(self, plan: FileSystemPlan) -> netapp.CapacityPoolVolume:
        args, scope = self._args, self._args.scope
        part = names.share(plan.name)
        pool = netapp.CapacityPool(
            rows.NETAPP_POOL.logical(self._name, part=plan.name),
            pool_name=part,
            account_name=self._account.name,
            resource_group_name=scope.group,
            service_level=plan.deployment,
            size=plan.capacity_gib * _GIB,
            qos_type=netapp.QosType.AUTO,
            opts=child(self, rows.NETAPP_POOL, replace_on_changes=NETAPP_POOL),
        )
        snapshots = self._snapshots(plan, part)
        return netapp.CapacityPoolVolume(
            rows.NETAPP_VOLUME.logical(self._name, part=plan.name),
            volume_name=part,
            pool_name=pool.name,
            account_name=self._account.name,
            resource_group_name=scope.group,
            # The path must be unique in the subnet (https://learn.microsoft.com/azure/azure-netapp-files/faq-nfs, retrieved 2026-11-27).
            creation_token=scope.unique_name(part, 80),
            service_level=plan.deployment,
            usage_threshold=plan.capacity_gib * _GIB,
            subnet_id=args.subnet_id,
            network_features=netapp.NetworkFeatures.STANDARD,
            protocol_types=["NFSv3"],
            security_style=netapp.SecurityStyle.UNIX,
            unix_permissions="0755",
            snapshot_directory_visible=True,
            export_policy=netapp.VolumePropertiesExportPolicyArgs(rules=[_export(args.clients)]),
            data_protection=netapp.VolumePropertiesDataProtectionArgs(
                snapshot=netapp.VolumeSnapshotPropertiesArgs(snapshot_policy_id=snapshots.id)
            )
            if snapshots
            else None,
            opts=child(self, rows.NETAPP_VOLUME, replace_on_changes=NETAPP_VOLUME),
        )

    def _snapshots(self, plan: FileSystemPlan, part: str) -> netapp.SnapshotPolicy | None:
        if not plan.snapshot_days:
            return None
        return netapp.SnapshotPolicy(
            rows.NETAPP_SNAPSHOTS.logical(self._name, part=plan.name),
            snapshot_policy_name=part,
            account_name=self._account.name,
            resource_group_name=self._args.scope.group,
            enabled=True,
            daily_schedule=netapp.DailyScheduleArgs(
                hour=_SNAPSHOT_HOUR, minute=0, snapshots_to_keep=plan.snapshot_days
            ),
            opts=child(self, rows.NETAPP_SNAPSHOTS),
        )


def _export(clients: str) -> netapp.ExportPolicyRuleArgs:
    """Allow NFS 3 for the clients. Root can access the volume, because the bootstrap creates home directories as root."""
    return netapp.ExportPolicyRuleArgs(
        rule_index=1,
        allowed_clients=clients,
        nfsv3=True,
        nfsv41=False,
        cifs=False,
        unix_read_only=False,
        unix_read_write=True,
        has_root_access=True,
        chown_mode=netapp.ChownMode.RESTRICTED,
    )
