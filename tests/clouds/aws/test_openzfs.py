"""Home directories on FSx for OpenZFS: encryption, exports, who reaches the file servers, what `destroy` retains, and what nodes mount."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from gpuinfra.clouds.aws import file_systems
from gpuinfra.clouds.aws.components import one_file_system
from gpuinfra.plan.make import build_plan
from gpuinfra.spec import parse_spec
from tests.clouds.aws.reach import Out, holes, outwards
from tests.clouds.recorder import Recording, Registered
from tests.clouds.stacks import TODAY, recording_of_spec
from tests.oracle.claims import group
from tests.permissions.needed import permissions_of
from tests.rules.cases import declaration

OPENZFS = "aws:fsx/openZfsFileSystem:OpenZfsFileSystem"
BACKUP = "backup-0123456789abcdef0"
HOME: dict[str, Any] = {
    "kind": "home",
    "service": "openzfs",
    "capacity_gib": 512,
    "throughput_mb_s": 320,
    "backup_days": 7,
}
SPEC = {
    "name": "train",
    "where": {"cloud": "aws", "region": "us-east-1", "zone": "use1-az4"},
    "pools": [{"name": "gpu", "machine": "p4d.24xlarge", "capacity": [{"kind": "spot", "count": 1}]}],
    "storage": [HOME, {"kind": "home", "mount": "/tools"}],
}
NFS = [(111, 111), (2049, 2049), (20001, 20003)]
PLAN = build_plan(parse_spec(declaration(("aws", {"storage": [{**HOME, "restore_from": BACKUP}]}))), TODAY)


@functools.cache
def recording() -> Recording:
    """A cluster with home directories on FSx for OpenZFS, and others on EFS."""
    return recording_of_spec(SPEC)


def state() -> list[dict[str, Any]]:
    """The recording in the format of an exported state."""
    return [{"type": one.type, "id": one.id, "inputs": one.inputs, "outputs": {}} for one in recording().custom]


def the_file_system() -> Registered:
    """The only file system on FSx for OpenZFS."""
    (found,) = recording().of(OPENZFS)
    return found


def test_the_file_system_is_encrypted_and_has_the_declared_settings() -> None:
    """The file system uses the data key and SSD storage, and has the declared size, throughput and days of backups."""
    inputs = the_file_system().inputs
    assert inputs["kmsKeyId"].startswith("arn:aws:kms:")
    assert (inputs["deploymentType"], inputs["storageType"]) == ("SINGLE_AZ_2", "SSD")
    assert (inputs["storageCapacity"], inputs["throughputCapacity"], inputs["automaticBackupRetentionDays"]) == (
        512,
        320,
        7,
    )


def test_the_root_volume_is_exported_to_the_network_with_root_access() -> None:
    """The export allows the addresses of the network only, and root can create home directories in it."""
    (client,) = the_file_system().inputs["rootVolumeConfiguration"]["nfsExports"]["clientConfigurations"]
    (vpc,) = recording().of("aws:ec2/vpc:Vpc")
    assert client["clients"] == vpc.inputs["cidrBlock"]
    assert {"rw", "no_root_squash"} <= set(client["options"])


def test_only_nodes_reach_the_ports_of_nfs() -> None:
    """The group of the file servers allows the ports of NFS from the group of the nodes only, and the nodes send to it."""
    have = group(state())
    nodes = have["ec2_LaunchTemplate"][0]["networkInterfaces"][0]["securityGroups"][0]
    (servers,) = the_file_system().inputs["securityGroupIds"]
    rules = [one for one in have["vpc_SecurityGroupIngressRule"] if one["securityGroupId"] == servers]
    shown = sorted((one["referencedSecurityGroupId"], one["ipProtocol"], int(one["fromPort"]), int(one["toPort"])) for one in rules)  # fmt: skip
    assert shown == sorted((nodes, "tcp", *ports) for ports in NFS)
    for ports in NFS:
        assert Out(to=servers, protocol="tcp", ports=ports) in outwards(state())
    assert holes(state()) == []


def test_destroy_retains_the_file_system_with_its_network() -> None:
    """The network interface of the file system is in the subnet and has the security group, so both stay, together with the VPC."""
    made = recording()
    assert the_file_system().retained
    kept = {one.name for one in made.custom if one.retained}
    (subnet,) = the_file_system().inputs["subnetIds"]
    (servers,) = the_file_system().inputs["securityGroupIds"]
    for one in made.custom:
        if one.id in (subnet, servers) or one.type == "aws:ec2/vpc:Vpc":
            assert one.name in kept, one.name
    assert "train-security-nodes" not in kept


def test_nodes_mount_each_home_in_its_own_way() -> None:
    """Nodes use TLS for EFS only, and mount the exported root volume of FSx for OpenZFS."""
    plan = build_plan(parse_spec(SPEC), TODAY)
    (pool,) = plan.pools
    first, second = pool.versions["HOMES"].split("; ")
    assert first.startswith("/home plain nfsvers=4.1,")
    assert second.startswith("/tools tls nfsvers=4.1,")
    assert pool.versions["HOME_TLS_PORT"] == "2049"
    alone = build_plan(parse_spec({**SPEC, "storage": [HOME]}), TODAY)
    assert "HOME_TLS_PORT" not in alone.pools[0].versions
    (mounts,) = [one["file_systems"] for urn, one in recording().outputs.items() if "file_systems" in one]
    assert {one["mount"]: one["mount_name"] for one in mounts} == {"/home": "/fsx", "/tools": "/"}


def test_the_number_of_resources_is_planned() -> None:
    """The number of resources in the plan is the number that the program registers."""
    types = [one.type for one in recording().custom]
    planned = build_plan(parse_spec(SPEC), TODAY).resources
    assert {type_: types.count(type_) for type_ in planned} == planned


class Pages:
    """FSx with file systems on two pages."""

    def __init__(self, *pages: list[dict[str, Any]]) -> None:
        self.pages = pages

    def get_paginator(self, name: str) -> Pages:
        assert name == "describe_file_systems"
        return self

    def paginate(self) -> list[dict[str, Any]]:
        return [{"FileSystems": page} for page in self.pages]


def test_the_tag_identifies_the_file_system() -> None:
    """The file system is found by the tag of the stack; those of other stacks and those that failed are not."""

    def one(id_: str, value: str, lifecycle: str = "AVAILABLE") -> dict[str, Any]:
        tags = [{"Key": "Name", "Value": "train"}, {"Key": file_systems.IDENTITY, "Value": value}]
        return {"FileSystemId": id_, "Lifecycle": lifecycle, "Tags": tags, "OpenZFSConfiguration": {}}

    wanted = the_file_system().inputs["tags"][file_systems.IDENTITY]
    found = Pages([one("fs-other", "train-home-0-ffff")], [one("fs-failed", wanted, "FAILED"), one("fs-1", wanted)])
    assert file_systems.find(found, wanted) == "fs-1"
    assert file_systems.find(Pages([{"FileSystemId": "fs-2", "Lifecycle": "AVAILABLE"}]), wanted) is None


FITS = {"FileSystemType": "OPENZFS", "StorageType": "SSD", "StorageCapacity": 512, "OpenZFSConfiguration": {"DeploymentType": "SINGLE_AZ_HA_2"}}  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"Lifecycle": "AVAILABLE", "FileSystem": FITS}, ""),
        ({"FileSystem": {}}, ""),
        ({"FileSystem": {**FITS, "FileSystemType": "LUSTRE"}}, "of the type LUSTRE; use a backup of FSx for OpenZFS"),
        ({"FileSystem": {**FITS, "StorageCapacity": 64}}, "has 64 GiB, but the declaration has 512 GiB; set capacity_gib to 64"),
        ({"FileSystem": {**FITS, "StorageType": "INTELLIGENT_TIERING"}}, "has the storage class INTELLIGENT_TIERING"),
        (ClientError({"Error": {"Code": "BackupNotFound"}}, "DescribeBackups"), "does not exist in us-east-1"),
    ],
)  # fmt: skip
def test_only_a_backup_that_fits_is_restored(
    monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any] | ClientError, reason: str
) -> None:
    """A backup of another kind or size is refused before the file system is created."""

    class Fsx:
        def client(self, name: str) -> Fsx:
            assert name == "fsx"
            return self

        def describe_backups(self, BackupIds: list[str]) -> dict[str, Any]:
            assert BackupIds == [BACKUP]
            if not isinstance(answer, dict):
                raise answer
            return {"Backups": [answer]}

    monkeypatch.setattr(boto3.session, "Session", lambda **_: Fsx())
    (entry,) = PLAN.file_systems
    problem = ""
    try:
        one_file_system.check_backup(entry, "us-east-1", {}, "train-home-0-openzfs")
    except RuntimeError as caught:
        problem = str(caught)
    assert bool(problem) == bool(reason), problem
    assert reason in problem


def test_the_permissions_allow_the_requests_for_a_backup_only_with_one() -> None:
    """The permissions to deploy allow restoring a backup, and changes to the root volume, only as far as the plan needs them."""
    empty = replace(PLAN, file_systems=tuple(replace(one, restore_from=None) for one in PLAN.file_systems))
    restores = "fsx:CreateFileSystemFromBackup"
    assert restores in json.dumps(permissions_of(PLAN).documents)
    text = json.dumps(permissions_of(empty).documents)
    assert restores not in text
    for action in ("fsx:CreateFileSystem", "fsx:DescribeVolumes", "fsx:UpdateVolume", "fsx.amazonaws.com"):
        assert action in text, action
