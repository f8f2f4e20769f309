"""A stack that runs in its second region declares `recovery` for the replicas of the first one."""

from __future__ import annotations

from typing import Any

import pytest

from gpuinfra.base.findings import Level
from gpuinfra.plan.make import build_plan
from gpuinfra.rules import check
from gpuinfra.spec import ClusterSpec, parse_spec
from tests.clouds.recorder import Recording
from tests.clouds.stacks import TODAY, recording_of_spec, spec_of
from tests.permissions.needed import permissions_of

ACCOUNT = (
    "/subscriptions/00000000-0000-4000-8000-00000000abcd/resourceGroups/r/providers/Microsoft.Storage/storageAccounts"
)
CONTAINER = f"{ACCOUNT}/replica/blobServices/default/containers/data"
KEY = "arn:aws:kms:us-east-2:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
REPLICA = {
    "aws-recovery": "train-scratch-0-replica",
    "azure-recovery": CONTAINER,
    "gcp-recovery": "train-scratch-0-replica",
}


def protected(stack: str, **more: Any) -> ClusterSpec:
    """The stack, with the replica of another stack as the bucket of its file system."""
    body = spec_of(stack).model_dump(mode="json", exclude_unset=True)
    body["storage"][0]["bucket"] = REPLICA[stack]
    body["recovery"] |= {
        "existing_buckets": True,
        **({"existing_key_arn": KEY} if stack == "aws-recovery" else {}),
        **more,
    }
    return parse_spec(body)


def directions(recording: Recording) -> set[tuple[str, str]]:
    """The source and the destination of each replication."""
    found = set[tuple[str, str]]()
    for one in recording.of("aws:s3/bucketReplicationConfig:BucketReplicationConfig"):
        found |= {
            (one.inputs["bucket"], rule["destination"]["bucket"].rpartition(":")[2]) for rule in one.inputs["rules"]
        }
    for one in recording.of("gcp:storage/transferJob:TransferJob"):
        spec = one.inputs["replicationSpec"]
        found.add((spec["gcsDataSource"]["bucketName"], spec["gcsDataSink"]["bucketName"]))
    for one in recording.of("azure-native:storage:ObjectReplicationPolicy"):
        ends = [one.inputs[f"{end}Account"].rpartition("/")[2] for end in ("source", "destination")]
        (rule,) = one.inputs["rules"]
        found.add((f"{ends[0]}/{rule['sourceContainer']}", f"{ends[1]}/{rule['destinationContainer']}"))
    return found


@pytest.mark.parametrize("stack", REPLICA)
def test_a_replica_is_replicated_to_a_bucket_of_the_stack(stack: str) -> None:
    """The replica is the source of one replication and the destination of none, so no object returns to it."""
    spec = protected(stack)
    assert [one for one in check(spec, TODAY) if one.level is Level.ERROR] == []
    recording = recording_of_spec(spec, stack=stack)
    replica = REPLICA[stack].replace(f"{ACCOUNT}/", "").replace("blobServices/default/containers/", "")
    found = directions(recording)
    assert len(found) == 2
    assert len([to for source, to in found if source == replica]) == 1
    assert not {source for source, _ in found} & {to for _, to in found}


def test_the_replication_of_aws_decrypts_the_replica() -> None:
    """The role can use the key of the replica, which a different stack created."""
    recording = recording_of_spec(protected("aws-recovery"), stack="aws-recovery")
    policy = recording.one("aws:iam/rolePolicy:RolePolicy", "train-recovery-replication-policy").inputs["policy"]
    assert KEY in policy
    assert f"arn:aws:s3:::{REPLICA['aws-recovery']}" in policy


@pytest.mark.parametrize("stack", ["aws-recovery", "gcp-recovery"])
def test_the_operator_can_configure_and_copy_the_replica(stack: str) -> None:
    """The scopes of the permissions contain the name of the bucket."""
    assert REPLICA[stack] in str(permissions_of(build_plan(protected(stack), TODAY)))
