"""A Lustre file system from a backup: what is sent, and what is refused before it is created."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from gpuinfra.clouds.aws.components import one_file_system
from gpuinfra.clouds.aws.timing import TIMING
from gpuinfra.clouds.timing import ready_time
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import FileSystemPlan, Plan
from gpuinfra.report.plan_tables import storage_text
from gpuinfra.spec import parse_spec
from tests.clouds.stacks import TODAY, recording_of_spec
from tests.permissions.needed import permissions_of
from tests.rules.cases import declaration, lustre

BACKUP = "backup-0123456789abcdef0"
CONFIGURATION = {
    "DeploymentType": "PERSISTENT_2",
    "PerUnitStorageThroughput": 250,
    "DataCompressionType": "LZ4",
    "AutomaticBackupRetentionDays": 0,
}
FITS = {
    "FileSystemType": "LUSTRE",
    "FileSystemTypeVersion": "2.12",
    "StorageType": "SSD",
    "StorageCapacity": 4800,
    "LustreConfiguration": CONFIGURATION,
}


def original(**configuration: Any) -> dict[str, Any]:
    """A backup of a file system with another configuration."""
    return {"FileSystem": {**FITS, "LustreConfiguration": {**CONFIGURATION, **configuration}}}


PLAN = build_plan(parse_spec(declaration(("aws", {"storage": lustre(restore_from=BACKUP)}))), TODAY)


class Fsx:
    """FSx with one backup, or with an error."""

    def __init__(self, answer: dict[str, Any] | ClientError) -> None:
        self.answer = answer

    def client(self, name: str) -> Fsx:
        assert name == "fsx"
        return self

    def describe_backups(self, BackupIds: list[str]) -> dict[str, Any]:
        assert BackupIds == [BACKUP]
        if not isinstance(self.answer, dict):
            raise self.answer
        return {"Backups": [self.answer]}


def check(monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any] | ClientError, plan: FileSystemPlan) -> None:
    """Compare the plan with a backup."""
    monkeypatch.setattr(boto3.session, "Session", lambda **_: Fsx(answer))
    one_file_system.check_backup(plan, "us-east-1", {}, "train-scratch-0-lustre")


def test_a_backup_that_fits_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backup with the declared values, and a backup of which FSx returns no values, are accepted."""
    (entry,) = PLAN.file_systems
    check(monkeypatch, {"Lifecycle": "AVAILABLE", "FileSystem": FITS}, entry)
    check(monkeypatch, {"FileSystem": {}}, entry)
    check(monkeypatch, original(AutomaticBackupRetentionDays=30), replace(entry, backup_days=7))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"Lifecycle": "CREATING", "FileSystem": FITS}, "is CREATING; wait until it is AVAILABLE"),
        ({"FileSystem": {"FileSystemType": "WINDOWS"}}, "is a backup of a file system of the type WINDOWS"),
        (
            {"FileSystem": {**FITS, "StorageCapacity": 7200}},
            "has 7200 GiB, but the declaration has 4800 GiB; set capacity_gib to 7200",
        ),
        (
            original(DeploymentType="PERSISTENT_1"),
            "is of the type PERSISTENT_1, but the declaration has PERSISTENT_2; set deployment to persistent_1",
        ),
        (
            original(PerUnitStorageThroughput=125),
            "has 125 MB/s per TiB, but the declaration has 250; set throughput_mb_s_per_tib to 125",
        ),
        (
            {"FileSystem": {**FITS, "StorageType": "INTELLIGENT_TIERING", "StorageCapacity": 0}},
            "has the storage class INTELLIGENT_TIERING, but gpuinfra creates SSD file systems; use another backup, or restore it with the AWS CLI",
        ),
        (
            original(DataCompressionType="NONE"),
            "has the data compression NONE, but gpuinfra uses LZ4, and FSx restores a backup only with its compression; set LZ4 on the original",
        ),
        (
            {"FileSystem": {**FITS, "FileSystemTypeVersion": "2.15"}},
            "has Lustre 2.15, but the declaration has 2.12, which is older; set version to 2.15",
        ),
        (
            original(AutomaticBackupRetentionDays=30),
            "with automatic backups, which the new one inherits, but the declaration has none; set backup_days to 30",
        ),
        (ClientError({"Error": {"Code": "BackupNotFound"}}, "DescribeBackups"), "does not exist in us-east-1"),
        (ClientError({"Error": {"Code": "AccessDenied"}}, "DescribeBackups"), "allow fsx:DescribeBackups"),
    ],
)
def test_a_backup_that_does_not_fit_is_refused(
    monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any] | ClientError, reason: str
) -> None:
    """The error names the file system, the backup, the difference and the value to set."""
    (entry,) = PLAN.file_systems
    if "2.12" in reason:
        entry = replace(entry, version="2.12")
    with pytest.raises(RuntimeError) as caught:
        check(monkeypatch, answer, entry)
    assert reason in str(caught.value)
    assert BACKUP in str(caught.value)
    assert "train-scratch-0-lustre" in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "days"),
    [({}, 0), ({"backup_days": 7}, 7), ({"restore_from": BACKUP}, 0), ({"deployment": "scratch_2"}, None)],
)
def test_the_days_of_automatic_backups_are_explicit(fields: dict[str, Any], days: int | None) -> None:
    """A persistent file system gets the declared days, also 0, and a scratch file system gets none."""
    recording = recording_of_spec(parse_spec(declaration(("aws", {"storage": lustre(**fields)}))))
    (made,) = [one for one in recording.custom if one.type == "aws:fsx/lustreFileSystem:LustreFileSystem"]
    assert made.inputs.get("automaticBackupRetentionDays") == days


def test_the_plan_shows_the_backup_and_a_lower_limit_of_the_time() -> None:
    """The table shows the backup, and the time of the file system is a lower limit."""
    assert f"4,800 GiB at 250 MB/s per TiB, from {BACKUP};" in storage_text(PLAN.file_systems[0])
    parts = {one.type: one for one in ready_time(PLAN, TIMING).parts}  # type: ignore[union-attr]
    assert parts["aws:fsx/lustreFileSystem:LustreFileSystem"].at_least
    empty = replace(PLAN, file_systems=tuple(replace(one, restore_from=None) for one in PLAN.file_systems))
    parts = {one.type: one for one in ready_time(empty, TIMING).parts}  # type: ignore[union-attr]
    assert not parts["aws:fsx/lustreFileSystem:LustreFileSystem"].at_least


def test_the_permissions_allow_the_requests_for_a_backup_only_with_one() -> None:
    """The permissions to deploy allow reading and restoring a backup, the permissions to preview allow reading it,
    and a plan without a backup needs neither."""
    restores, reads = "fsx:CreateFileSystemFromBackup", "fsx:DescribeBackups"

    def actions(plan: Plan, *, read: bool = False) -> set[str]:
        text = json.dumps(permissions_of(plan, read_only=read).documents)
        return {action for action in (restores, reads) if action in text}

    assert actions(PLAN) == {restores, reads}
    assert actions(PLAN, read=True) == {reads}
    empty = replace(PLAN, file_systems=tuple(replace(one, restore_from=None) for one in PLAN.file_systems))
    assert actions(empty) == set()
