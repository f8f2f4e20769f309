"""Home directories on AWS: encryption, mount targets, the policy of the file system, and who reaches it."""

from __future__ import annotations

import functools
import json
from typing import Any

from gpuinfra.clouds.aws.resources import resources
from gpuinfra.clouds.homes import for_nodes
from gpuinfra.cost import price
from gpuinfra.plan.make import build_plan
from gpuinfra.spec import parse_spec
from gpuinfra_rehearsal.cloud.aws import policy
from gpuinfra_rehearsal.cloud.core.interfaces import AccessRequest
from tests.clouds.aws.reach import Out, holes, outwards
from tests.clouds.recorder import Recording
from tests.clouds.stacks import TODAY, recording_of_spec
from tests.oracle.claims import group

SPEC = {
    "name": "train",
    "where": {"cloud": "aws", "region": "us-east-1", "zone": "use1-az4"},
    "pools": [
        {"name": "gpu", "machine": "p4d.24xlarge", "capacity": [{"kind": "spot", "count": 1}]},
        {"name": "cpu", "machine": "g5.xlarge", "zone": "use1-az6", "capacity": [{"kind": "spot", "count": 1}]},
    ],
    "storage": [{"kind": "home"}],
}


@functools.cache
def recording() -> Recording:
    """A cluster with pools in two zones and home directories."""
    return recording_of_spec(SPEC)


def state() -> list[dict[str, Any]]:
    """The recording in the format of an exported state."""
    return [{"type": one.type, "id": one.id, "inputs": one.inputs, "outputs": {}} for one in recording().custom]


def test_each_zone_has_a_mount_target_of_an_encrypted_file_system() -> None:
    """The file system uses the data key and elastic throughput; each zone with nodes has one mount target."""
    have = group(state())
    (home,) = have["efs_FileSystem"]
    assert home["encrypted"] is True
    assert home["kmsKeyId"].startswith("arn:aws:kms:")
    assert home["throughputMode"] == "elastic"
    nodes = {subnet for one in have["autoscaling_Group"] for subnet in one["vpcZoneIdentifiers"]}
    assert len(nodes) == 2
    assert sorted(one["subnetId"] for one in have["efs_MountTarget"]) == sorted(nodes)


def test_only_nodes_reach_the_mount_targets() -> None:
    """The group of the mount targets allows NFS from the group of the nodes only, and the nodes send to it."""
    have = group(state())
    nodes = have["ec2_LaunchTemplate"][0]["networkInterfaces"][0]["securityGroups"][0]
    (homes,) = {name for one in have["efs_MountTarget"] for name in one["securityGroups"]}
    rules = [one for one in have["vpc_SecurityGroupIngressRule"] if one["securityGroupId"] == homes]
    shown = [
        (one["referencedSecurityGroupId"], one["ipProtocol"], int(one["fromPort"]), int(one["toPort"])) for one in rules
    ]
    assert shown == [(nodes, "tcp", 2049, 2049)]
    assert Out(to=homes, protocol="tcp", ports=(2049, 2049)) in outwards(state())
    assert holes(state()) == []


def test_the_file_system_accepts_connections_with_tls_only() -> None:
    """A client that mounts with TLS through a mount target is allowed; without TLS, or past the mount targets, it is denied.
    The policy names the file system, as EFS returns it."""
    (one,) = group(state())["efs_FileSystemPolicy"]
    document = json.dumps(one["policy"])
    (home,) = recording().of("aws:efs/fileSystem:FileSystem")
    (arn,) = {statement["Resource"] for statement in one["policy"]["Statement"]}
    assert arn.startswith("arn:")
    assert home.name in arn

    def allowed(**context: str) -> bool:
        mount = {"elasticfilesystem:AccessedViaMountTarget": "true", "aws:SecureTransport": "true"}
        keys = {"tls": "aws:SecureTransport", "target": "elasticfilesystem:AccessedViaMountTarget"}
        known = mount | {keys[name]: value for name, value in context.items()}
        request = AccessRequest("*", "elasticfilesystem:ClientMount", arn, known)
        return policy.decide(request, [], [document])[0]

    assert allowed()
    assert not allowed(tls="false")
    assert not allowed(target="false")


def test_destroy_retains_the_file_system_and_its_policy_only() -> None:
    """The files and their policy stay; mount targets and their security group are deleted, so the network can be deleted."""
    retained = {one.type.rpartition(":")[2]: one.retained for one in recording().custom if ":efs/" in one.type}
    assert retained == {"FileSystem": True, "FileSystemPolicy": True, "MountTarget": False}
    groups = {one.name: one.retained for one in recording().custom if one.type.endswith(":SecurityGroup")}
    assert groups == {"train-security-nodes": False, "train-security-homes": False}
    assert not any(one.retained for one in recording().custom if one.type.endswith((":Vpc", ":Subnet")))


RECOVERY = {"region": "us-west-2", "mode": "hot", "homes": True, "rpo_minutes": 90, "rto_minutes": 180, "checkpoint_gib": 100,
            "checkpoint_minutes": 30}  # fmt: skip
SCRATCH = {"kind": "lustre", "mount": "/scratch", "capacity_gib": 4800, "throughput_mb_s_per_tib": 250, "bucket": "auto"}  # fmt: skip


@functools.cache
def replicated() -> Recording:
    """The cluster with replicated home directories on EFS, and home directories that cannot be replicated."""
    openzfs = {"kind": "home", "mount": "/tools", "service": "openzfs"}
    return recording_of_spec({**SPEC, "storage": [{"kind": "home"}, openzfs, SCRATCH], "recovery": RECOVERY})


def test_home_directories_on_efs_are_replicated_to_an_encrypted_file_system() -> None:
    """The replica is in the second Region, has the same token, its own key and a policy, and is retained. Its protection is no input (`home_replicas.py`)."""
    first, second = replicated().of("aws:efs/fileSystem:FileSystem")
    assert (first.inputs["region"], second.inputs["region"]) == ("us-east-1", "us-west-2")
    assert first.inputs["creationToken"] == second.inputs["creationToken"]
    assert ":us-west-2:" in second.inputs["kmsKeyId"] or second.inputs["kmsKeyId"] != first.inputs["kmsKeyId"]
    assert second.retained
    assert "protection" not in second.inputs
    (replication,) = replicated().of("aws:efs/replicationConfiguration:ReplicationConfiguration")
    assert replication.inputs["region"] == "us-east-1"
    assert replication.inputs["sourceFileSystemId"] == first.id
    assert replication.inputs["destination"] == {"region": "us-west-2", "fileSystemId": second.id}
    policies = replicated().of("aws:efs/fileSystemPolicy:FileSystemPolicy")
    assert [one.inputs["fileSystemId"] for one in policies] == [first.id, second.id]
    plan = build_plan(parse_spec({**SPEC, "storage": [{"kind": "home"}, SCRATCH], "recovery": RECOVERY}), TODAY)
    planned = {one.name for one in resources(plan)}
    assert {one.name for one in (second, replication)} <= planned


def test_a_replica_gets_mount_targets_only() -> None:
    """The stack of the second Region creates no file system, and nodes do not require that they can write before a failover."""
    replica = "fs-0123456789abcdef0"
    spec = {**SPEC, "storage": [{"kind": "home", "replica": replica}]}
    recorded = recording_of_spec(spec)
    assert not recorded.of("aws:efs/fileSystem:FileSystem")
    assert not recorded.of("aws:efs/fileSystemPolicy:FileSystemPolicy")
    assert {one.inputs["fileSystemId"] for one in recorded.of("aws:efs/mountTarget:MountTarget")} == {replica}
    plan = build_plan(parse_spec(spec), TODAY)
    assert {one.name for one in resources(plan)} == {one.name for one in recorded.custom}
    entry = {"kind": "home", "mount": "/home", "service": "efs", "replica": replica}
    (for_node,) = for_nodes("aws", plan.pools[0], [entry])
    assert for_node == {"kind": "home", "mount": "/home", "setting": for_node["setting"]}
    assert for_node["setting"].startswith("tls nfsvers=4.1,")
    assert for_node["setting"].endswith(",x-gpuinfra.replica")
    assert not [line for line in price(plan, TODAY).lines if "home directories" in line.what]


def test_the_plan_has_the_price_of_the_replica() -> None:
    """The storage of the replica is a line, with the price of the transfer of each changed GB."""
    spec = {**SPEC, "storage": [{"kind": "home"}, SCRATCH], "recovery": {**RECOVERY, "region": "us-east-2"}}
    (line,) = [one for one in price(build_plan(parse_spec(spec), TODAY), TODAY).lines if "replica of the home" in one.what]  # fmt: skip
    assert line.quantity == 1024
    assert line.what.startswith("/home: replica of the home directories in us-east-2, if they hold 1024 GiB")
    assert "USD for the transfer of each changed GB" in line.what
