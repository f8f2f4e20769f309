"""Rejects a second file system for the same data, and a backup that does not fit the declaration.

FSx file systems do not have unique names. Without this check, a change that replaces a file system
(a smaller size, fewer metadata IOPS, an older version, another zone or key) creates an empty one, and so does an `up`
after a `destroy` that retained it. Nodes would mount the empty file system.

A file system that is created from a backup gets the capacity of the backup: the provider does not send the declared capacity
(`CreateFileSystemFromBackup` in terraform-provider-aws `internal/service/fsx/lustre_file_system.go`, retrieved 2026-11-27). With a smaller
declared capacity, the next `up` would replace the file system. The provider also does not send 0 days of automatic backups, and FSx then uses
the days of the original. FSx restores a backup only with the type, storage class, throughput, capacity and compression of the original
("Restoring backups" in https://docs.aws.amazon.com/fsx/latest/LustreGuide/using-backups-fsx.html), and not with an older version
(API reference, `CreateFileSystemFromBackup`; both retrieved 2026-11-27).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi

from gpuinfra.clouds.aws import credentials
from gpuinfra.clouds.aws.file_systems import find
from gpuinfra.clouds.operation import owner_of_hooks
from gpuinfra.plan.model import FileSystemPlan

_OUTSIDE = "restore it with the AWS CLI, and declare the new file system with existing"


def before_create(name: str, identity: str, region: str, plan: FileSystemPlan) -> pulumi.ResourceHookBinding | None:
    """Return the hook of the file system with this logical name and identity (`file_systems.find`), or None outside a program."""
    if owner_of_hooks() is None:
        return None
    settings = credentials.of_running_program()

    def run(_: pulumi.ResourceHookArgs) -> None:
        check_absent(identity, region, settings, name)
        if plan.restore_from:
            check_backup(plan, region, settings, name)

    options = pulumi.ResourceHookOptions(on_dry_run=True)
    hook = pulumi.ResourceHook(f"gpuinfra-one-{name}", run, options)
    return pulumi.ResourceHookBinding(before_create=[hook])


def check_absent(identity: str, region: str, settings: Mapping[str, object], name: str) -> None:
    """Raise an error if the account has the file system, or if the request to the account fails."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        existing = find(credentials.session(settings, region).client("fsx"), identity)
    except (BotoCoreError, ClientError) as problem:
        raise RuntimeError(
            f"cannot check whether {name} already exists: {problem}; set credentials in the environment or in "
            "`aws:profile` that allow fsx:DescribeFileSystems"
        ) from None
    if existing is None:
        return
    stack = pulumi.get_stack()
    raise RuntimeError(
        f"{name} exists: {existing}. A second file system would be empty, and the nodes would mount it. "
        f"If an earlier destroy of {stack} retained it, run `gpuinfra adopt {stack}`, then `pulumi up`. "
        "If you did not destroy the stack, this change replaces the file system (`pulumi preview --diff` shows the "
        "input). FSx can only increase the size and the metadata IOPS; undo the change, or declare another mount, copy "
        "the files, and then remove this one."
    )


def check_backup(plan: FileSystemPlan, region: str, settings: Mapping[str, object], name: str) -> None:
    """Raise an error if the backup cannot be restored to the planned file system, or if the request to the account fails."""
    from botocore.exceptions import BotoCoreError, ClientError

    backup = str(plan.restore_from)
    try:
        fsx = credentials.session(settings, region).client("fsx")
        backups = fsx.describe_backups(BackupIds=[backup])["Backups"]
    except (BotoCoreError, ClientError) as problem:
        if isinstance(problem, ClientError) and problem.response.get("Error", {}).get("Code") == "BackupNotFound":
            raise RuntimeError(
                f"{name}: {backup} does not exist in {region}; backups can be restored only in their Region: correct restore_from, or copy the backup"
            ) from None
        raise RuntimeError(
            f"cannot read {backup} for {name}: {problem}; set credentials in the environment or in `aws:profile` that allow fsx:DescribeBackups"
        ) from None
    for backup_record in backups:
        if problem_of_backup := _unfit(plan, backup_record):
            raise RuntimeError(f"{name}: {backup} {problem_of_backup}")


def _unfit(plan: FileSystemPlan, backup: dict[str, Any]) -> str | None:
    """Return why a backup cannot be restored to the planned file system, and the fix. FSx does not return every field for each backup."""
    of = backup.get("FileSystem") or {}
    state, kind, size = backup.get("Lifecycle"), of.get("FileSystemType"), of.get("StorageCapacity")
    storage = of.get("StorageType")
    wanted, service = ("LUSTRE", "FSx for Lustre") if plan.kind == "lustre" else ("OPENZFS", "FSx for OpenZFS")
    if kind not in (None, wanted):
        return f"is a backup of a file system of the type {kind}; use a backup of {service}"
    if state not in (None, "AVAILABLE"):
        return f"is {state}; wait until it is AVAILABLE, or use another backup"
    if storage not in (None, "SSD"):
        return (
            f"has the storage class {storage}, but gpuinfra creates SSD file systems; use another backup, or {_OUTSIDE}"
        )
    if size not in (None, plan.capacity_gib):
        return f"has {size} GiB, but the declaration has {plan.capacity_gib} GiB; set capacity_gib to {size}, and increase it after the restore"
    return _unfit_for_lustre(plan, of) if plan.kind == "lustre" else None


def _unfit_for_lustre(plan: FileSystemPlan, of: dict[str, Any]) -> str | None:
    """Return which setting of a backup of FSx for Lustre differs from the planned file system, and the fix."""
    lustre = of.get("LustreConfiguration") or {}
    deployment, tier = lustre.get("DeploymentType"), lustre.get("PerUnitStorageThroughput")
    compression = lustre.get("DataCompressionType")
    version, days = of.get("FileSystemTypeVersion"), lustre.get("AutomaticBackupRetentionDays")
    if deployment not in (None, plan.deployment):
        return f"is of the type {deployment}, but the declaration has {plan.deployment}; set deployment to {str(deployment).lower()}"
    if tier not in (None, plan.throughput_mb_s_per_tib):
        return f"has {tier} MB/s per TiB, but the declaration has {plan.throughput_mb_s_per_tib}; set throughput_mb_s_per_tib to {tier}"
    if compression not in (None, "LZ4"):
        return (
            f"has the data compression {compression}, but gpuinfra uses LZ4, and FSx restores a backup only with its compression; "
            f"set LZ4 on the original file system (aws fsx update-file-system), and create another backup, or {_OUTSIDE}"
        )
    if version and plan.version and _numbers(version) > _numbers(plan.version):
        return f"has Lustre {version}, but the declaration has {plan.version}, which is older; set version to {version}"
    if days and not plan.backup_days:
        return (
            "is of a file system with automatic backups, which the new one inherits, but the declaration has none; "
            f"set backup_days to {days}, and to 0 after the restore to disable them"
        )
    return None


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version such as 2.15."""
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
