"""FSx for OpenZFS file systems for home directories, in one zone. `destroy` retains the file system, its security group and its network.

Nodes mount the root volume over NFS 4.1. Its exports allow the addresses of the network, and the security group allows only the nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from gpuinfra.clouds.aws import resources as rows
from gpuinfra.clouds.aws.components.one_file_system import before_create
from gpuinfra.clouds.aws.components.scope import Scope, child
from gpuinfra.clouds.aws.file_systems import IDENTITY
from gpuinfra.plan.model import FileSystemPlan, Lifetime

_EXPORT = ["rw", "crossmnt", "no_root_squash"]
"""Options of the export: the service's defaults, and `no_root_squash`, because the bootstrap creates home directories as root (exports(5))."""


@dataclass(frozen=True, kw_only=True)
class OpenZfsHomeDirectoriesArgs:
    """Arguments for the home directories."""

    scope: Scope
    plan: FileSystemPlan
    subnet_id: pulumi.Input[str]
    """Subnet of the file servers, in the zone of the file system."""
    security_group_id: pulumi.Input[str]
    """Security group for the file servers (`SecurityGroups.storage_group_id`)."""
    clients: str = "*"
    """Addresses that can mount the file system, such as 10.64.0.0/16. `*` allows all addresses, as far as the security group allows them."""
    key_arn: pulumi.Input[str] | None = None
    """KMS key for the files. If unset, FSx uses its own key."""


class OpenZfsHomeDirectories(pulumi.ComponentResource):
    """A file system whose root volume contains home directories."""

    file_system_id: pulumi.Output[str]
    """ID of the file system."""
    dns_name: pulumi.Output[str]
    """DNS name to mount."""

    def __init__(self, name: str, args: OpenZfsHomeDirectoriesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:aws:OpenZfsHomeDirectories", name, None, args.scope.options(opts))
        scope, plan, row = args.scope, args.plan, rows.OPENZFS
        identity = scope.unique_name(plan.name)
        exports = aws.fsx.OpenZfsFileSystemRootVolumeConfigurationNfsExportsArgs(
            client_configurations=[
                aws.fsx.OpenZfsFileSystemRootVolumeConfigurationNfsExportsClientConfigurationArgs(
                    clients=args.clients, options=_EXPORT
                )
            ]
        )
        file_system = aws.fsx.OpenZfsFileSystem(
            row.logical(name),
            deployment_type=plan.deployment,
            storage_type="SSD",
            storage_capacity=plan.capacity_gib,
            throughput_capacity=plan.throughput_mb_s or 0,
            automatic_backup_retention_days=plan.backup_days,
            copy_tags_to_backups=True,
            # The policies of `gpuinfra permissions` allow changes only to resources with the tags of the cluster.
            copy_tags_to_volumes=True,
            backup_id=plan.restore_from,
            root_volume_configuration=aws.fsx.OpenZfsFileSystemRootVolumeConfigurationArgs(
                data_compression_type="LZ4", nfs_exports=exports
            ),
            subnet_ids=[args.subnet_id],
            security_group_ids=[args.security_group_id],
            kms_key_id=args.key_arn,
            tags={IDENTITY: identity},
            # FSx does not return the security groups and the backup. After `gpuinfra adopt`, their "change" would replace the file system.
            opts=pulumi.ResourceOptions.merge(
                child(self, row, data=plan.lifetime is Lifetime.KEPT, ignore_changes=["securityGroupIds", "backupId"]),
                pulumi.ResourceOptions(hooks=before_create(row.logical(name), identity, scope.region, plan)),
            ),
        )
        self.file_system_id = file_system.id
        self.dns_name = file_system.dns_name
        self.register_outputs({"file_system_id": self.file_system_id, "dns_name": self.dns_name})
