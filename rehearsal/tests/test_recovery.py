"""A cluster with a second region, rehearsed with the permissions that `gpuinfra permissions` prints."""

from __future__ import annotations

import pytest

from .conftest import Rehearse, cloud_resources

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("needs_nodes")]

REPLICATION = {
    "aws": "aws:s3/bucketReplicationConfig:BucketReplicationConfig",
    "gcp": "gcp:storage/transferJob:TransferJob",
    "azure": "azure-native:storage:ObjectReplicationPolicy",
}
BUCKET = {
    "aws": "aws:s3/bucket:Bucket",
    "gcp": "gcp:storage/bucket:Bucket",
    "azure": "azure-native:storage:BlobContainer",
}
SECOND = {"aws": "us-west-2", "gcp": "us-east4", "azure": "recovery-eastus2"}
"""Part of the names of replicas. On Azure, it is part of the resource group."""
COUNT = {"aws": 2, "gcp": 2, "azure": 4}
"""Replications of two buckets. On Azure, each has a policy in both accounts."""
PLACE = {"aws": "us-east-2", "gcp": None, "azure": None}
"""Region of the replication itself. Jobs of Storage Transfer Service are global, and a policy is part of its account."""
ENDED = {
    "aws": ("ReplicationConfig", "MetricAlarm", "EventRule", "EventTarget", "sns/"),
    "gcp": ("TransferJob", "AlertPolicy", "NotificationChannel", "IAMCustomRole", "projects/iAMMember"),
    "azure": ("ObjectReplicationPolicy", "MetricAlert", "ActivityLogAlert", "ActionGroup"),
}
"""Parts of the types that `destroy` removes."""


@pytest.mark.parametrize("cloud", REPLICATION)
def test_a_second_region_is_created_and_destroyed(cloud: str, rehearse: Rehearse) -> None:
    """The replicas are in the second region, the second `up` changes nothing, and `destroy` retains keys and replicas and ends the replication."""
    stack = f"{cloud}-recovery"
    up = rehearse("up", stack, "--under-least-permissions")
    assert up.code == 0, up.out + up.err
    replicated = [one for one in up.state if one["type"] == REPLICATION[cloud]]
    assert len(replicated) == COUNT[cloud]
    assert {one["inputs"].get("region") for one in replicated} == {PLACE[cloud]}
    replicas = {one["id"] for one in up.state if one["type"] == BUCKET[cloud] and f"-{SECOND[cloud]}-" in one["id"]}
    assert len(replicas) >= 2
    again = rehearse("up", stack, "--under-least-permissions")
    assert again.code == 0, again.out + again.err
    assert set(again.report["engine"]["operations"]) == {"same"}
    gone = rehearse("destroy", stack, "--under-least-permissions")
    assert gone.code == 0, gone.out + gone.err
    left = {(type_, name) for type_, name, _ in cloud_resources(gone.root)}
    assert replicas <= {name for type_, name in left if type_ == BUCKET[cloud]}
    assert not [type_ for type_, _ in left if any(part in type_ for part in ENDED[cloud])]
