"""The stand-in answers in the shape of Azure's published examples."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from rehearsal.tests.cloud import microsoft
from rehearsal.tests.cloud.conftest import Client

LUSTRE: dict[str, Any] = {
    "storageCapacityTiB": float,
    "throughputProvisionedMBps": int,
    "health": {"state": str, "statusDescription": str},
    "provisioningState": str,
    "filesystemSubnet": str,
    "clientInfo": {
        "mgsAddress": str,
        "mountCommand": str,
        "lustreVersion": str,
        "containerStorageInterface": {"persistentVolumeClaim": str, "persistentVolume": str, "storageClass": str},
    },
    "maintenanceWindow": {"dayOfWeek": str, "timeOfDayUTC": str},
    "rootSquashSettings": {"mode": str, "status": str},
    "zones": list,
}
"""Keys and types of the answer. Azure/azure-rest-api-specs (MIT), specification/storagecache/resource-manager/Microsoft.StorageCache/stable/2024-03-01/
examples/amlFilesystems_CreateOrUpdate.json, commit 1038654."""


def _differences(path: str, value: Any, shape: Any) -> list[str]:
    """Where a value differs from a shape. A whole number can stand for a fraction."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return [f"{path} is {type(value).__name__}"]
        return [one for key, inner in shape.items() for one in _differences(f"{path}.{key}", value.get(key), inner)]
    fits = isinstance(value, (int, float)) if shape in (int, float) else isinstance(value, shape)
    return [] if fits else [f"{path} is {type(value).__name__}, Azure answers {shape.__name__}"]


def test_a_managed_lustre_file_system_has_the_shape_of_azures_example(azure: Client) -> None:
    """Every key of the published answer is in the stand-in's, with the same type, and the mount command names the address."""
    microsoft.group(azure)
    subnet = microsoft.subnet(azure)
    made = azure.create(
        "azure-native:storagecache:AmlFilesystem",
        {
            **microsoft.WHERE, "amlFilesystemName": "scratch", "sku": {"name": "AMLFS-Durable-Premium-250"}, "storageCapacityTiB": 16.0,
            "zones": ["1"], "filesystemSubnet": subnet.id, "maintenanceWindow": {"dayOfWeek": "Sunday", "timeOfDayUTC": "03:00"},
            "rootSquashSettings": {"mode": "None"},
        },
        "scratch",
    )  # fmt: skip
    assert _differences("", made.outputs, LUSTRE) == []
    info = made.outputs["clientInfo"]
    assert f"{info['mgsAddress']}@tcp:/lustrefs" in info["mountCommand"]


def test_a_file_share_has_the_limits_of_its_account(azure: Client) -> None:
    """An NFS share requires an account for SSD file shares, and has 100 to 102400 GiB. The account is deleted with its shares."""
    microsoft.group(azure)
    share = {"resourceGroupName": "rg", "accountName": "homes0a1b", "shareName": "home-0", "enabledProtocols": "NFS"}
    token = "azure-native:storage:FileShare"
    with pytest.raises(grpc.RpcError, match="storageAccounts/homes0a1b' was not found"):
        azure.create(token, {**share, "shareQuota": 1024}, "home")
    microsoft.account(azure, "blobs0a1b")
    with pytest.raises(grpc.RpcError, match="NFS is not supported for the account"):
        azure.create(token, {**share, "accountName": "blobs0a1b", "shareQuota": 1024}, "home")
    account = microsoft.account(azure, "homes0a1b", kind="FileStorage", sku={"name": "Premium_LRS"})
    made = azure.create(token, {**share, "shareQuota": 1024}, "home")
    assert made.id == f"{account.id}/fileServices/default/shares/home-0"
    for size in (99, 102_401):
        (failure,) = azure.failures(token, {**share, "shareQuota": size})
        assert f"must be 100 to 102400 for an SSD file share, got {size}" in failure
    azure.delete(account)
    again = microsoft.account(azure, "homes0a1b", kind="FileStorage", sku={"name": "Premium_LRS"})
    assert again.id == account.id
    azure.create(token, {**share, "shareQuota": 1024}, "home")
