"""A replica of home directories on Amazon EFS in the second Region, and its replication.

EFS replicates to an existing file system only if its replication overwrite protection is disabled, and enables the protection when the replication is
deleted (https://docs.aws.amazon.com/efs/latest/ug/replicate-existing-destination.html and delete-replications.html, retrieved 2026-11-30). During the
replication, EFS returns the protection REPLICATING, which the provider does not accept as an input, so the protection is not an input of the file system:
a hook disables it. The hook leaves a replica with files protected, because a failover ends the replication, and the replica then has the newest files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws

from gpuinfra.clouds.aws import credentials
from gpuinfra.clouds.aws import resources as rows
from gpuinfra.clouds.aws.components.homes import home
from gpuinfra.clouds.aws.components.scope import Scope, child
from gpuinfra.clouds.operation import owner_of_hooks
from gpuinfra.plan.model import FileSystemPlan

EMPTY_BYTES = 6 * 1024
"""Size of a file system without files (https://docs.aws.amazon.com/efs/latest/ug/metered-sizes.html, retrieved 2026-11-30)."""


@dataclass(frozen=True, kw_only=True)
class HomeSource:
    """A file system with home directories in the first Region."""

    file_system_id: pulumi.Input[str]
    """ID of the file system. Its replica is created after it resolves."""
    plan: FileSystemPlan
    """Plan of the file system, which its replica follows."""


def replicated_home(
    parent: pulumi.Resource,
    name: str,
    source: HomeSource,
    regions: tuple[Scope, Scope],
    key_arn: pulumi.Input[str],
) -> pulumi.Output[str]:
    """Create the replica of a file system and its replication. Returns the ID of the replica, after the replication is set up."""
    (first, second), purpose = regions, source.plan.name
    replica, _ = home(
        parent, second, source.plan, key_arn, name=name, rows=(rows.HOME_REPLICA, rows.HOME_REPLICA_POLICY), purpose=purpose
    )  # fmt: skip
    logical = rows.HOME_REPLICATION.logical(name, purpose=purpose)
    replication = aws.efs.ReplicationConfiguration(
        logical,
        source_file_system_id=source.file_system_id,
        destination=aws.efs.ReplicationConfigurationDestinationArgs(region=second.region, file_system_id=replica.id),
        region=first.region,
        opts=pulumi.ResourceOptions.merge(
            child(parent, rows.HOME_REPLICATION), pulumi.ResourceOptions(hooks=_before_create(logical, second.region))
        ),
    )
    return pulumi.Output.all(replica.id, replication.id).apply(lambda known: str(known[0]))


def _before_create(name: str, region: str) -> pulumi.ResourceHookBinding | None:
    """Return the hook of the replication with this logical name, or None outside a program."""
    if owner_of_hooks() is None:
        return None
    settings = credentials.of_running_program()

    def run(args: pulumi.ResourceHookArgs) -> None:
        destination: Any = (args.new_inputs or {}).get("destination") or {}
        unprotect_if_empty(str(destination["fileSystemId"]), region, settings, name)

    return pulumi.ResourceHookBinding(before_create=[pulumi.ResourceHook(f"gpuinfra-unprotect-{name}", run)])


def unprotect_if_empty(replica: str, region: str, settings: Mapping[str, object], name: str) -> None:
    """Disable the protection of a replica without files. Raise an error if it has files and is protected, or if a request fails."""
    from botocore.exceptions import BotoCoreError, ClientError

    efs = credentials.session(settings, region).client("efs")
    try:
        (system,) = efs.describe_file_systems(FileSystemId=replica)["FileSystems"]
        protection = (system.get("FileSystemProtection") or {}).get("ReplicationOverwriteProtection")
        if protection == "DISABLED":
            return
        if system["SizeInBytes"]["Value"] <= EMPTY_BYTES:
            efs.update_file_system_protection(FileSystemId=replica, ReplicationOverwriteProtection="DISABLED")
            return
    except (BotoCoreError, ClientError) as problem:
        raise RuntimeError(
            f"cannot prepare {replica} for {name}: {problem}; set credentials in the environment or in `aws:profile` that allow "
            "elasticfilesystem:DescribeFileSystems and elasticfilesystem:UpdateFileSystemProtection"
        ) from None
    raise RuntimeError(
        f"{name}: {replica} in {region} contains files, which the replication would replace with those of the first Region. If the stack failed over, "
        f"run `gpuinfra failback`. To replace the files, run `aws efs update-file-system-protection --file-system-id {replica} --region {region} "
        "--replication-overwrite-protection DISABLED`, then `pulumi up`."
    )
