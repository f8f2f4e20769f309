"""A cluster with a second region, rehearsed with the permissions that `gpuinfra permissions` prints."""

from __future__ import annotations

import pytest

from .conftest import Rehearse, cloud_resources

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("needs_nodes")]


def test_a_second_region_is_created_and_destroyed(rehearse: Rehearse) -> None:
    """The replicas are in the second region, the second `up` changes nothing, and `destroy` retains keys and replicas and ends the replication."""
    up = rehearse("up", "aws-recovery", "--under-least-permissions")
    assert up.code == 0, up.out + up.err
    replicated = [one for one in up.state if "BucketReplicationConfig" in one["type"]]
    assert {one["inputs"]["region"] for one in replicated} == {"us-east-1"}
    assert len(replicated) == 2
    again = rehearse("up", "aws-recovery", "--under-least-permissions")
    assert again.code == 0, again.out + again.err
    assert set(again.report["engine"]["operations"]) == {"same"}
    gone = rehearse("destroy", "aws-recovery", "--under-least-permissions")
    assert gone.code == 0, gone.out + gone.err
    left = {(type_, name) for type_, name, _ in cloud_resources(gone.root)}
    assert {name for type_, name in left if type_ == "aws:s3/bucket:Bucket" and "-us-west-2-" in name}
    assert not [type_ for type_, _ in left if "ReplicationConfig" in type_ or "MetricAlarm" in type_ or "sns/" in type_]
