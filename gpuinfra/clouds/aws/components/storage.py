"""FSx for Lustre file systems and their linked buckets.

A data repository association imports objects from a bucket as files and exports files to it as objects.
`destroy` retains the bucket. The plan states whether `destroy` also retains the file system.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws

from gpuinfra.base import naming
from gpuinfra.clouds.aws import resources as rows
from gpuinfra.clouds.aws.components.buckets import PrivateBucket, PrivateBucketArgs
from gpuinfra.clouds.aws.components.one_file_system import before_create
from gpuinfra.clouds.aws.components.scope import Scope, child
from gpuinfra.clouds.aws.file_systems import log_group
from gpuinfra.clouds.homes import mounted
from gpuinfra.clouds.ready_after import ready_after
from gpuinfra.plan.model import FileSystemPlan, Lifetime


@dataclass(frozen=True, kw_only=True)
class SharedFilesystemArgs:
    """Arguments for a file system."""

    scope: Scope
    plan: FileSystemPlan
    subnet_id: pulumi.Input[str]
    """Subnet of the file servers, in the zone of the file system."""
    security_group_id: pulumi.Input[str]
    """Security group for the file servers (`SecurityGroups.storage_group_id`)."""
    key_arn: pulumi.Input[str] | None = None
    """KMS key for the file system and its bucket. If unset, FSx and S3 use their own keys."""
    log_key_arn: pulumi.Input[str] | None = None
    """KMS key for the log group. If unset, CloudWatch Logs uses its own key."""
    log_to: pulumi.Input[str] | None = None
    """Bucket that receives the access log of the linked bucket. If unset, access is not logged."""


class SharedFilesystem(pulumi.ComponentResource):
    """A Lustre file system, its log group, and its linked bucket."""

    file_system_id: pulumi.Output[str]
    """ID of the file system."""
    dns_name: pulumi.Output[str]
    """DNS name to mount. Resolves after the data repository association exists, so that nodes start after it and are terminated before it is deleted."""
    mount_name: pulumi.Output[str]
    """Mount name in the mount source `<dns_name>@tcp:/<mount_name>`."""
    bucket: pulumi.Output[str] | None
    """Linked bucket, or `None` without a link."""
    mounted: dict[str, Any]
    """Entry for `file_systems` of `NodePoolArgs`."""

    def __init__(self, name: str, args: SharedFilesystemArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:aws:SharedFilesystem", name, None, args.scope.options(opts))
        scope, plan = args.scope, args.plan
        data = plan.lifetime is Lifetime.KEPT
        group = log_group(scope.cluster, plan.name, scope.token)
        log = aws.cloudwatch.LogGroup(
            rows.LUSTRE_LOG_GROUP.logical(name),
            name=group,
            retention_in_days=90,
            kms_key_id=args.log_key_arn,
            opts=child(self, rows.LUSTRE_LOG_GROUP, data=data),
        )
        file_system = aws.fsx.LustreFileSystem(
            rows.LUSTRE.logical(name),
            deployment_type=plan.deployment,
            storage_capacity=plan.capacity_gib,
            per_unit_storage_throughput=plan.throughput_mb_s_per_tib,
            file_system_type_version=plan.version,
            metadata_configuration=_metadata(plan),
            efa_enabled=True if plan.efa else None,
            data_compression_type="LZ4",
            # An explicit 0 disables the backups of an earlier value or of a restored backup. Scratch file systems have no backups.
            automatic_backup_retention_days=plan.backup_days if plan.deployment.startswith("PERSISTENT") else None,
            backup_id=plan.restore_from,
            subnet_ids=args.subnet_id,
            security_group_ids=[args.security_group_id],
            kms_key_id=args.key_arn,
            log_configuration=aws.fsx.LustreFileSystemLogConfigurationArgs(destination=log.arn, level="WARN_ERROR"),
            # FSx does not return the security groups and the backup. After `gpuinfra adopt`, their "change" would replace the file system,
            # and so would the removal of the backup from the declaration.
            opts=pulumi.ResourceOptions.merge(
                child(self, rows.LUSTRE, data=data, ignore_changes=["securityGroupIds", "backupId"]),
                pulumi.ResourceOptions(
                    hooks=before_create(rows.LUSTRE.logical(name), group, scope.region, plan),
                    # The provider waits 30 minutes, which is too short with EFA
                    # (hashicorp/terraform-provider-aws pull request 40568).
                    custom_timeouts=pulumi.CustomTimeouts(create="90m", update="90m", delete="60m"),
                ),
            ),
        )
        self.bucket = self._bucket(name, args)
        links = [self._link(name, args, file_system, self.bucket)] if self.bucket is not None else []
        self.file_system_id = file_system.id
        self.dns_name = ready_after(file_system.dns_name, links)
        self.mount_name = file_system.mount_name
        self.mounted = mounted(plan, self.dns_name, self.mount_name)
        self.register_outputs(
            {
                "file_system_id": self.file_system_id,
                "dns_name": self.dns_name,
                "mount_name": self.mount_name,
                "bucket": self.bucket,
            }
        )

    def _bucket(self, name: str, args: SharedFilesystemArgs) -> pulumi.Output[str] | None:
        if args.plan.bucket is None:
            return None
        if args.plan.bucket != "auto":
            return pulumi.Output.from_input(args.plan.bucket)
        store = PrivateBucket(
            naming.logical(name, "data"),
            PrivateBucketArgs(scope=args.scope, purpose=args.plan.name, key_arn=args.key_arn, log_to=args.log_to),
            pulumi.ResourceOptions(parent=self),
        )
        return store.bucket

    def _link(
        self, name: str, args: SharedFilesystemArgs, file_system: aws.fsx.LustreFileSystem, bucket: pulumi.Output[str]
    ) -> pulumi.Resource:
        plan = args.plan
        imports = (
            aws.fsx.DataRepositoryAssociationS3AutoImportPolicyArgs(events=list(plan.import_events))
            if plan.import_events
            else None
        )
        exports = (
            aws.fsx.DataRepositoryAssociationS3AutoExportPolicyArgs(events=list(plan.export_events))
            if plan.export_events
            else None
        )
        return aws.fsx.DataRepositoryAssociation(
            rows.DATA_REPOSITORY.logical(name),
            file_system_id=file_system.id,
            file_system_path=plan.bucket_path,
            # FSx returns the path without a trailing slash. A difference would cause a replacement.
            data_repository_path=pulumi.Output.concat("s3://", bucket, "/", plan.bucket_prefix).apply(
                lambda path: path.rstrip("/")
            ),
            batch_import_meta_data_on_create=True,
            delete_data_in_filesystem=False,
            s3=aws.fsx.DataRepositoryAssociationS3Args(auto_import_policy=imports, auto_export_policy=exports),
            opts=pulumi.ResourceOptions.merge(
                child(self, rows.DATA_REPOSITORY),
                # The provider waits 10 minutes. A bucket with many objects takes longer
                # (aws-samples/amazon-eks-machine-learning-with-terraform-and-kubeflow issue 112).
                pulumi.ResourceOptions(custom_timeouts=pulumi.CustomTimeouts(create="60m", update="60m", delete="60m")),
            ),
        )


def _metadata(plan: FileSystemPlan) -> aws.fsx.LustreFileSystemMetadataConfigurationArgs | None:
    if plan.metadata_mode is None:
        return None
    return aws.fsx.LustreFileSystemMetadataConfigurationArgs(mode=plan.metadata_mode, iops=plan.metadata_iops)
