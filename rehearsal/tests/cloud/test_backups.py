"""What FSx rejects when a file system is created from a backup."""

from __future__ import annotations

import grpc
import pytest

from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from rehearsal.tests.cloud import stacks
from rehearsal.tests.cloud.conftest import Client

BACKUP = {
    "FileSystemTypeVersion": "2.12",
    "StorageType": "SSD",
    "StorageCapacity": 4800,
    "LustreConfiguration": {
        "DeploymentType": "PERSISTENT_2",
        "PerUnitStorageThroughput": 250,
        "DataCompressionType": "LZ4",
        "AutomaticBackupRetentionDays": 30,
    },
}


def test_a_backup_is_restored_only_with_the_settings_of_the_original(aws: Client, cloud: Cloud) -> None:
    """Other settings and an older version are rejected, a newer version is accepted, and without days of automatic backups the original's apply."""
    _, subnet = stacks.network(aws)
    id, token = "backup-0123456789abcdef0", "aws:fsx/lustreFileSystem:LustreFileSystem"
    cloud.store.put("external", id, BACKUP)
    inputs = {
        "backupId": id, "subnetIds": subnet.id, "storageCapacity": 4800, "deploymentType": "PERSISTENT_2",
        "perUnitStorageThroughput": 250, "dataCompressionType": "LZ4", "fileSystemTypeVersion": "2.15",
    }  # fmt: skip
    for change, reason in (
        ({"deploymentType": "PERSISTENT_1"}, "DeploymentType PERSISTENT_2"),
        ({"perUnitStorageThroughput": 125}, "PerUnitStorageThroughput 250"),
        ({"dataCompressionType": "NONE"}, "DataCompressionType LZ4"),
        ({"storageType": "HDD"}, "StorageType SSD"),
        ({"fileSystemTypeVersion": "2.10"}, "older than 2.12"),
        ({"backupId": "backup-00000000000000001"}, "BackupNotFound"),
    ):
        with pytest.raises(grpc.RpcError, match=reason):
            aws.create(token, {**inputs, **change})
    assert (
        aws.create(token, {**inputs, "automaticBackupRetentionDays": 0}).outputs["automaticBackupRetentionDays"] == 30
    )
    made = aws.create(token, {**inputs, "automaticBackupRetentionDays": 7}, "other")
    assert made.outputs["automaticBackupRetentionDays"] == 7
