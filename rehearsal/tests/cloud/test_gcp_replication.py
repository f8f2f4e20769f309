"""What Storage Transfer Service rejects: replication jobs without buckets, without permissions, with a name or with deletions."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from gpuinfra_rehearsal.cloud.gcp import ids
from rehearsal.tests.cloud import google
from rehearsal.tests.cloud.conftest import Client, Made

JOB, ROLE = "gcp:storage/transferJob:TransferJob", "gcp:projects/iAMCustomRole:IAMCustomRole"
TRANSFER = f"serviceAccount:project-{ids.PROJECT_NUMBER}@storage-transfer-service.iam.gserviceaccount.com"
STORAGE = f"serviceAccount:service-{ids.PROJECT_NUMBER}@gs-project-accounts.iam.gserviceaccount.com"
GRANTS = {
    "events": (TRANSFER, ("pubsub.topics.create", "pubsub.subscriptions.create", "pubsub.subscriptions.consume")),
    "notifications": (
        STORAGE,
        ("pubsub.topics.publish", "pubsub.subscriptions.create", "pubsub.subscriptions.consume"),
    ),
    "source": (TRANSFER, ("storage.buckets.get", "storage.buckets.update", "storage.objects.get")),
    "replica": (TRANSFER, ("storage.buckets.get", "storage.objects.create", "storage.objects.get")),
}
"""Permissions by place: two on the project, and one on each bucket."""


def _grants(gcp: Client, without: str = "") -> None:
    """Both buckets, and all grants except one permission of one place: `source storage.objects.get`."""
    for name in ("source", "replica"):
        google.bucket(gcp, f"{name}-1")
    for place, (member, permissions) in GRANTS.items():
        kept = [one for one in permissions if f"{place} {one}" != without]
        role = gcp.create(ROLE, {"roleId": place, "title": place, "permissions": kept}, place)
        assert role.outputs["name"] == f"projects/{ids.PROJECT}/roles/{place}"
        inputs = {"role": role.id, "member": member}
        if place in ("source", "replica"):
            gcp.create("gcp:storage/bucketIAMMember:BucketIAMMember", {**inputs, "bucket": f"{place}-1"}, place)
        else:
            gcp.create("gcp:projects/iAMMember:IAMMember", {**inputs, "project": ids.PROJECT}, place)


def _job(gcp: Client, name: str = "", **options: Any) -> Made:
    spec = {
        "gcsDataSource": {"bucketName": "source-1"},
        "gcsDataSink": {"bucketName": "replica-1"},
        "transferOptions": {"overwriteWhen": "DIFFERENT", **options},
    }
    return gcp.create(
        JOB, {"name": name, "description": "replicates", "status": "ENABLED", "replicationSpec": spec}, "job"
    )


def test_the_service_assigns_the_name_of_a_job(gcp: Client) -> None:
    """The name is in the outputs and in the ID, a second check changes nothing, and blocks are read back with their defaults."""
    _grants(gcp)
    made = _job(gcp)
    number = made.outputs["name"].removeprefix("transferJobs/")
    assert number.isdigit()
    assert made.id == f"{ids.PROJECT}/{number}"
    assert made.outputs["replicationSpec"]["gcsDataSource"] == {"bucketName": "source-1", "path": ""}
    assert made.outputs["replicationSpec"]["transferOptions"]["deleteObjectsUniqueInSink"] is False
    assert not gcp.diff(made, made.inputs).diffs


def test_a_job_with_a_name_is_rejected(gcp: Client) -> None:
    """Without an empty name, the provider generates one, and the service rejects it."""
    _grants(gcp)
    with pytest.raises(grpc.RpcError, match="Custom names are not supported"):
        _job(gcp, name="transferJobs/mine")
    spec = {"gcsDataSource": {"bucketName": "source-1"}, "gcsDataSink": {"bucketName": "replica-1"}}
    with pytest.raises(grpc.RpcError, match="Custom names are not supported"):
        gcp.create(JOB, {"description": "replicates", "replicationSpec": spec}, "job")


@pytest.mark.parametrize("option", ["deleteObjectsUniqueInSink", "deleteObjectsFromSourceAfterTransfer"])
def test_a_job_that_deletes_objects_is_rejected(gcp: Client, option: str) -> None:
    """Delete options are not supported for replication."""
    _grants(gcp)
    with pytest.raises(grpc.RpcError, match="Delete options are not supported"):
        _job(gcp, **{option: True})


@pytest.mark.parametrize(
    "missing", [f"{place} {one}" for place, (_, permissions) in GRANTS.items() for one in permissions]
)
def test_a_job_requires_each_permission(gcp: Client, missing: str) -> None:
    """Without one of the permissions that Google lists, the creation fails and names it."""
    _grants(gcp, without=missing)
    with pytest.raises(grpc.RpcError, match=f"needs {missing.partition(' ')[2]}"):
        _job(gcp)


def test_a_job_requires_both_buckets(gcp: Client) -> None:
    """A bucket that does not exist is an error that names it."""
    _grants(gcp)
    spec = {"gcsDataSource": {"bucketName": "source-1"}, "gcsDataSink": {"bucketName": "elsewhere-1"}}
    with pytest.raises(grpc.RpcError, match="destination bucket elsewhere-1 does not exist"):
        gcp.create(JOB, {"name": "", "description": "replicates", "replicationSpec": spec}, "job")


def test_a_job_is_checked_before_it_is_created(gcp: Client) -> None:
    """A job needs one kind of specification, and a replication has no schedule."""
    assert any("must be specified" in one for one in gcp.failures(JOB, {"name": "", "description": "nothing"}))
    start = {"scheduleStartDate": {"year": 2026, "month": 1, "day": 1}}
    both = {
        "name": "",
        "description": "both",
        "schedule": start,
        "replicationSpec": {"gcsDataSource": {"bucketName": "a"}},
    }
    assert any("conflicts with replicationSpec" in one for one in gcp.failures(JOB, both))
