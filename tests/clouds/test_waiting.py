"""The order of creation: a resource is used after everything that protects it is in force."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.clouds.recorder import Recording, Registered
from tests.clouds.stacks import recording_of

Pairs = Iterator[tuple[Registered, list[Registered]]]
"""A resource, and the resources that it requires."""


def _buckets(recording: Recording) -> Pairs:
    """Resources that write to a bucket, or let others write to it, require all of its settings."""
    settings: dict[str, list[Registered]] = {}
    for one in recording.custom:
        if one.type.startswith("aws:s3/bucket") and not one.type.endswith((":Bucket", ":BucketObjectv2")):
            settings.setdefault(str(one.inputs["bucket"]), []).append(one)
    named = {
        "aws:s3/bucketObjectv2:BucketObjectv2": "bucket",
        "aws:s3/bucketLogging:BucketLogging": "targetBucket",
        "aws:cloudtrail/trail:Trail": "s3BucketName",
        "gpuinfra:index:NodesReady": "evidenceBucket",
    }
    for one in recording.custom:
        if one.type in named and str(one.inputs[named[one.type]]) in settings:
            yield one, settings[str(one.inputs[named[one.type]])]
        if one.type == "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation":
            bucket = str(one.inputs["dataRepositoryPath"]).removeprefix("s3://").split("/")[0]
            yield one, settings.get(bucket, [])


def _groups(recording: Recording) -> Pairs:
    """Launch templates and file systems require every rule of their security groups."""
    rules: dict[str, list[Registered]] = {}
    for one in recording.custom:
        if one.type.startswith("aws:vpc/securityGroup"):
            rules.setdefault(str(one.inputs["securityGroupId"]), []).append(one)
    for one in recording.custom:
        groups = list(one.inputs.get("securityGroupIds") or []) if "lustre" in one.type else []
        for interface in (one.inputs.get("networkInterfaces") or []) if one.type.endswith(":LaunchTemplate") else []:
            groups += interface["securityGroups"]
        for group in dict.fromkeys(groups):
            if group in rules:
                yield one, rules[group]


def _links(recording: Recording) -> Pairs:
    """Launch templates require the links between file systems and buckets, so that nodes find the files of the bucket,
    and are terminated before the links are deleted."""
    links = recording.of("aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation")
    for one in recording.of("aws:ec2/launchTemplate:LaunchTemplate"):
        yield one, links


def _firewalls(recording: Recording) -> Pairs:
    """Groups require every firewall rule of the networks of their nodes."""
    rules: dict[str, list[Registered]] = {}
    for one in recording.of("gcp:compute/firewall:Firewall"):
        rules.setdefault(str(one.inputs["network"]), []).append(one)
    networks = {one.id: str(one.inputs["network"]) for one in recording.of("gcp:compute/subnetwork:Subnetwork")}
    templates = {one.id: one for one in recording.of("gcp:compute/instanceTemplate:InstanceTemplate")}
    for group in recording.of("gcp:compute/instanceGroupManager:InstanceGroupManager"):
        (version,) = group.inputs["versions"]
        used = [one for id, one in templates.items() if f"/{id}?" in str(version["instanceTemplate"])]
        assert len(used) == 1
        for interface in used[0].inputs["networkInterfaces"]:
            if network := networks.get(str(interface.get("subnetwork"))):
                yield group, rules.get(network, [])


def _apis(recording: Recording) -> Pairs:
    """Resources of a project require the APIs that the stack enables."""
    services = recording.of("gcp:projects/service:Service")
    for one in recording.custom:
        if one.inputs.get("project") and one not in services and services:
            yield one, services


def _replicated(recording: Recording) -> Pairs:
    """Each bundle with the replication of its bucket, which covers only objects that are written later."""
    kinds = ("aws:s3/bucketReplicationConfig:BucketReplicationConfig", "gcp:storage/transferJob:TransferJob")
    needed = [one for kind in kinds for one in recording.of(kind)]
    for kind in ("aws:s3/bucketObjectv2:BucketObjectv2", "gcp:storage/bucketObject:BucketObject"):
        for one in recording.of(kind):
            yield one, [other for other in needed if "evidence" in other.name]


def _identities(recording: Recording) -> Pairs:
    """Groups of nodes require the grants of the identity of the nodes, so that no node starts without its rights."""
    kinds = ("azure-native:authorization:RoleAssignment", "gcp:storage/bucketIAMMember:BucketIAMMember")
    grants = [one for kind in kinds for one in recording.of(kind) if "-node-" in one.name]
    groups = ("azure-native:compute:VirtualMachineScaleSet", "gcp:compute/instanceGroupManager:InstanceGroupManager")
    for one in (one for kind in groups for one in recording.of(kind)):
        yield one, grants


REQUIRES: dict[str, dict[str, Callable[[Recording], Pairs]]] = {
    "aws-p4d": {"buckets": _buckets, "groups": _groups, "links": _links},
    "aws-p5-block": {"buckets": _buckets, "groups": _groups, "links": _links},
    "aws-recovery": {"replication": _replicated},
    "gcp-recovery": {"replication": _replicated},
    "gcp-a3mega": {"firewalls": _firewalls, "apis": _apis, "identities": _identities},
    "azure-ndv4": {"identities": _identities},
    "gcp-a3high": {"firewalls": _firewalls, "apis": _apis},
    "gcp-a3ultra": {"firewalls": _firewalls, "apis": _apis},
}


@pytest.mark.parametrize(("stack", "what"), [(stack, what) for stack, all_ in REQUIRES.items() for what in all_])
def test_required_resources_are_created_first(stack: str, what: str) -> None:
    """Bucket settings exist before objects, rules before nodes, and APIs before resources, also through indirect dependencies."""
    recording = recording_of(stack)
    pairs = list(REQUIRES[stack][what](recording))
    assert pairs
    assert max(len(needed) for _, needed in pairs) > (0 if what in ("replication", "links", "identities") else 1)
    for one, needed in pairs:
        late = {row.urn for row in needed} - {row.urn for row in recording.before(one)}
        assert not late, f"{one.name} may come before {sorted(late)}"
