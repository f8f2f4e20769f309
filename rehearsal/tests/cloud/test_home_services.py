"""What FSx for OpenZFS and Azure NetApp Files accept and return in the stand-in cloud."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from rehearsal.tests.cloud import stacks
from rehearsal.tests.cloud.conftest import Client, Made

OPENZFS = "aws:fsx/openZfsFileSystem:OpenZfsFileSystem"
ACCOUNT, POOL, VOLUME, SNAPSHOTS = (
    f"azure-native:netapp:{kind}" for kind in ("Account", "CapacityPool", "CapacityPoolVolume", "SnapshotPolicy")
)
TIB = 2**40
GROUP = {"resourceGroupName": "rg"}


def openzfs(subnet: str, **changes: Any) -> dict[str, Any]:
    """Inputs of a file system."""
    return {
        "deploymentType": "SINGLE_AZ_2", "storageCapacity": 1024, "throughputCapacity": 320, "subnetIds": [subnet], **changes,
    }  # fmt: skip


def test_a_file_system_on_openzfs_can_be_mounted_and_only_grows(aws: Client) -> None:
    """It has a DNS name and one network interface, which keeps its subnet in use, and its size cannot decrease."""
    vpc, subnet = stacks.network(aws)
    made = aws.create(OPENZFS, openzfs(subnet.id))
    assert made.outputs["dnsName"] == f"{made.id}.fsx.us-east-1.amazonaws.com"
    assert made.outputs["vpcId"] == vpc.id
    assert len(made.outputs["networkInterfaceIds"]) == 1
    with pytest.raises(grpc.RpcError, match="DependencyViolation"):
        aws.delete(subnet)
    with pytest.raises(grpc.RpcError, match="can only grow"):
        aws.update(made, {"storageCapacity": 512})
    assert aws.update(made, {"throughputCapacity": 160}).outputs["throughputCapacity"] == 160


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"throughputCapacity": 128}, "is not a throughput capacity of SINGLE_AZ_2"),
        ({"subnetIds": ["subnet-00000000000000009"]}, "does not exist"),
        ({"securityGroupIds": ["sg-00000000000000009"]}, "does not exist"),
        ({"backupId": "backup-00000000000000001"}, "BackupNotFound"),
        ({"backupId": "backup-00000000000000002"}, "of the type LUSTRE"),
    ],
)
def test_openzfs_refuses_what_fsx_refuses(aws: Client, cloud: Cloud, change: dict[str, Any], reason: str) -> None:
    """A throughput of another type, an unknown subnet or group, and a backup of another service are refused."""
    _, subnet = stacks.network(aws)
    cloud.store.put("external", "backup-00000000000000002", {"FileSystemType": "LUSTRE"})
    with pytest.raises(grpc.RpcError, match=reason):
        aws.create(OPENZFS, openzfs(subnet.id, **change))


def test_a_restored_file_system_has_the_size_of_its_backup(aws: Client, cloud: Cloud) -> None:
    """The provider does not send the capacity with a backup."""
    _, subnet = stacks.network(aws)
    cloud.store.put("external", "backup-00000000000000003", {"FileSystemType": "OPENZFS", "StorageCapacity": 2048})
    made = aws.create(OPENZFS, openzfs(subnet.id, backupId="backup-00000000000000003"))
    assert made.outputs["storageCapacity"] == 2048


def netapp(azure: Client) -> tuple[Made, Made, Made]:
    """A network with a delegated subnet and another one, an account and a pool. Returns the delegated subnet, the account and the pool."""
    network = {**GROUP, "virtualNetworkName": "net", "addressSpace": {"addressPrefixes": ["10.0.0.0/16"]}}
    azure.create("azure-native:network:VirtualNetwork", network, "net")
    delegation = [{"name": "netapp", "serviceName": "Microsoft.Netapp/volumes"}]
    delegated, _ = (
        azure.create(
            "azure-native:network:Subnet",
            {
                **GROUP,
                "virtualNetworkName": "net",
                "subnetName": name,
                "addressPrefix": prefix,
                "delegations": delegations,
            },
            name,
        )
        for name, prefix, delegations in (("anf", "10.0.0.0/24", delegation), ("plain", "10.0.1.0/24", []))
    )
    account = azure.create(ACCOUNT, {**GROUP, "accountName": "homes"}, "account")
    pool = {**GROUP, "accountName": "homes", "poolName": "home-0", "size": 2 * TIB, "serviceLevel": "Premium"}
    return delegated, account, azure.create(POOL, pool, "pool")


def volume(subnet: str, name: str = "home-0", **changes: Any) -> dict[str, Any]:
    """Inputs of a volume."""
    return {
        **GROUP, "accountName": "homes", "poolName": "home-0", "volumeName": name, "creationToken": f"lab-{name}",
        "usageThreshold": TIB, "subnetId": subnet, "protocolTypes": ["NFSv3"], **changes,
    }  # fmt: skip


def test_a_volume_has_the_address_of_its_server(azure: Client) -> None:
    """The response has one mount target. The pool, the account and the subnet stay while the volume exists."""
    subnet, account, pool = netapp(azure)
    (target,) = azure.create(VOLUME, volume(subnet.id), "volume").outputs["mountTargets"]
    assert target["ipAddress"].startswith("10.")
    for made in (pool, account):
        with pytest.raises(grpc.RpcError, match="cannot be deleted"):
            azure.delete(made)
    with pytest.raises(grpc.RpcError, match="InUse"):
        azure.delete(subnet)


def test_volumes_fit_into_their_pool_and_have_unique_paths(azure: Client) -> None:
    """Volumes have together at most the size of the pool, and a path is unique in the subnet."""
    subnet = netapp(azure)[0].id
    azure.create(VOLUME, volume(subnet), "volume")
    with pytest.raises(grpc.RpcError, match="too small"):
        azure.create(VOLUME, volume(subnet, "home-1", usageThreshold=2 * TIB), "large")
    with pytest.raises(grpc.RpcError, match="is in use"):
        azure.create(VOLUME, volume(subnet, "home-1", creationToken="lab-home-0"), "same")
    azure.create(VOLUME, volume(subnet, "home-1"), "second")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"poolName": "other"}, "was not found"),
        ({"accountName": "other"}, "was not found"),
        ({"subnetId": "plain"}, "is not delegated"),
    ],
)
def test_a_volume_requires_a_pool_and_a_delegated_subnet(azure: Client, change: dict[str, str], reason: str) -> None:
    """Without its pool, without its account, and in another subnet, the volume is refused."""
    subnet = netapp(azure)[0].id
    if "subnetId" in change:
        change = {"subnetId": subnet.replace("/anf", "/plain")}
    with pytest.raises(grpc.RpcError, match=reason):
        azure.create(VOLUME, volume(subnet, **change))


def test_sizes_outside_the_limits_are_rejected(azure: Client) -> None:
    """A pool has a multiple of 1 TiB, and a volume 50 GiB to 100 TiB."""
    subnet = netapp(azure)[0].id
    pool = {**GROUP, "accountName": "homes", "poolName": "odd", "serviceLevel": "Premium"}
    for size in (TIB // 2, TIB + 1, 2049 * TIB):
        assert azure.failures(POOL, {**pool, "size": size})
    assert not azure.failures(POOL, {**pool, "size": TIB})
    for size in (2**30, 101 * TIB):
        assert azure.failures(VOLUME, volume(subnet, usageThreshold=size))


def test_a_snapshot_policy_in_use_is_not_deleted(azure: Client) -> None:
    """The policy can be deleted after the volume that refers to it."""
    subnet = netapp(azure)[0].id
    policy = azure.create(
        SNAPSHOTS, {**GROUP, "accountName": "homes", "snapshotPolicyName": "home-0", "enabled": True}, "policy"
    )
    protection = {"snapshot": {"snapshotPolicyId": policy.id}}
    made = azure.create(VOLUME, volume(subnet, dataProtection=protection), "volume")
    with pytest.raises(grpc.RpcError, match="is used by"):
        azure.delete(policy)
    azure.delete(made)
    azure.delete(policy)
