"""The requests of a failback on AWS. botocore's Stubber validates requests and responses by the service models."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.aws.region import failback as aws
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.region.failover import BucketPair, Copy

START = datetime(2026, 11, 26, tzinfo=UTC)
PAIR = BucketPair(source="train-scratch-us-east-1", replica="train-scratch-us-west-2")
ROLE = "arn:aws:iam::000000000000:role/replication"
UPLOAD = {"Bucket": PAIR.source, "Key": "k", "UploadId": "u"}
SOURCE = {"Bucket": PAIR.replica, "Key": "k", "VersionId": "2"}


class Clients:
    """A client for each service and Region, which answers with these responses, in order."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], tuple[Any, Stubber]] = {}

    def __call__(self, service: str, region: str) -> Any:
        if (service, region) not in self._made:
            made = boto3.client(service, region_name=region, aws_access_key_id="a", aws_secret_access_key="b")  # pyright: ignore[reportCallIssue, reportArgumentType]
            stubber = Stubber(made)
            stubber.activate()
            self._made[service, region] = made, stubber
        return self._made[service, region][0]

    def answer(self, region: str, method: str, answer: Any, expected: Any = None, service: str = "s3") -> None:
        """Add a response. A string is an error code."""
        self(service, region)
        stubber = self._made[service, region][1]
        if isinstance(answer, str):
            stubber.add_client_error(method, answer, "refused", http_status_code=412)
        else:
            stubber.add_response(method, answer, expected)

    def done(self) -> aws.AwsFailback:
        """A failback with these clients."""
        return aws.AwsFailback(self, "us-east-1", "us-west-2")

    def check(self) -> None:
        """Check that all responses were used."""
        for _, stubber in self._made.values():
            stubber.assert_no_pending_responses()


def version(id: str, hours: int, *, latest: bool = True) -> dict[str, Any]:
    """A version of the object `k`."""
    return {"Key": "k", "VersionId": id, "IsLatest": latest, "Size": 7, "ETag": f'"{id}"', "LastModified": START + timedelta(hours=hours)}  # fmt: skip


def marker(id: str, hours: int, *, latest: bool = True) -> dict[str, Any]:
    """A delete marker of the object `k`."""
    return {"Key": "k", "VersionId": id, "IsLatest": latest, "LastModified": START + timedelta(hours=hours)}


def old(found: dict[str, Any]) -> dict[str, Any]:
    """The version as a noncurrent one."""
    return {**found, "IsLatest": False}


def listing(versions: list[dict[str, Any]]) -> dict[str, Any]:
    """The response to ListObjectVersions."""
    objects, markers = [one for one in versions if "Size" in one], [one for one in versions if "Size" not in one]
    return {"IsTruncated": False, "Versions": objects, "DeleteMarkers": markers}


ONE, TWO, THREE = version("1", 1), version("2", 2), version("3", 3)
COPY, NEWER, BOTH_SECOND, BOTH_FIRST = "copy", "newer", "both, second", "both, first"


@pytest.mark.parametrize(
    ("here", "there", "copy_of", "expected"),
    [
        pytest.param([ONE], [ONE], None, None, id="replicated"),
        pytest.param([ONE], [TWO, old(ONE)], None, COPY, id="written in the second region"),
        pytest.param([], [TWO], None, COPY, id="created in the second region"),
        pytest.param([version("9", 3), old(ONE)], [TWO, old(ONE)], "2", None, id="copied"),
        pytest.param([version("9", 3), old(ONE)], [THREE, old(TWO), old(ONE)], "2", COPY, id="written after a copy"),
        pytest.param([TWO, old(ONE)], [ONE], "", NEWER, id="not replicated"),
        pytest.param([version("8", 1), old(version("0", 0))], [TWO, old(version("0", 0))], "", BOTH_SECOND, id="both, later in the second"),
        pytest.param([THREE, old(ONE)], [TWO, old(ONE)], "", BOTH_FIRST, id="both, later in the first"),
        pytest.param([THREE, old(ONE)], [TWO, old(THREE), old(ONE)], None, BOTH_FIRST, id="replicated before an earlier write"),
        pytest.param([TWO, old(ONE)], [TWO, old(THREE), old(ONE)], None, BOTH_SECOND, id="replicated after the second region wrote"),
        pytest.param([version("9", 4), old(TWO), old(ONE)], [TWO, old(THREE), old(ONE)], "3", None, id="the same after the copy"),
        pytest.param([marker("d", 3), old(ONE)], [ONE], None, None, id="deleted in the first region"),
        pytest.param([marker("d", 1), old(ONE)], [TWO, old(marker("d", 1)), old(ONE)], None, COPY, id="created again"),
        pytest.param([marker("d", 3), old(ONE)], [TWO, old(ONE)], None, BOTH_FIRST, id="deleted after the failover"),
        pytest.param([ONE], [marker("d", 2), old(ONE)], None, "deleted", id="deleted in the second region"),
        pytest.param([], [marker("d", 2)], None, None, id="deleted in both"),
        pytest.param([ONE], [], None, None, id="only in the first region"),
    ],
)  # fmt: skip
def test_only_continuations_are_copied(
    here: list[dict[str, Any]], there: list[dict[str, Any]], copy_of: str | None, expected: str | None
) -> None:
    """A version is copied if the first region has an earlier version of it. Other differences are conflicts, and only the later version can be copied."""
    clients = Clients()
    clients.answer("us-east-1", "list_object_versions", listing(here), {"Bucket": PAIR.source})
    clients.answer("us-west-2", "list_object_versions", listing(there), {"Bucket": PAIR.replica})
    if copy_of is not None:
        asked = {"Bucket": PAIR.source, "Key": "k", "VersionId": here[0]["VersionId"]}
        clients.answer("us-east-1", "head_object", {"Metadata": {aws.MARK: copy_of} if copy_of else {}}, asked)
    found = clients.done().compare(PAIR)
    clients.check()
    result = None
    if found.copies:
        (copy,) = found.copies
        result = COPY
        assert copy.version == there[0]["VersionId"]
        assert copy.replaces == (here[0]["ETag"] if here and "Size" in here[0] else None)
    for one in found.conflicts:
        result = NEWER if "is newer" in one.reason else f"both, {one.reason.split()[-2]}"
        assert (one.copy is not None) is (result == BOTH_SECOND)
        if one.copy:
            assert one.copy.replaces == here[0]["ETag"]
    assert found.deleted == (expected == "deleted")
    assert (result or ("deleted" if found.deleted else None)) == expected


HEAD = {"ContentType": "application/x", "Metadata": {"file-owner": "1000"}, "TagCount": 1}
VALUES = {"ContentType": "application/x", "Metadata": {"file-owner": "1000", aws.MARK: "2"}, "Tagging": "team=a+b"}


@pytest.mark.parametrize("replaces", ['"1"', None])
def test_copy_keeps_metadata_and_checks_what_it_replaces(replaces: str | None) -> None:
    """S3 copies the version with its metadata and tags, only if the current version is still the one that was compared."""
    clients = Clients()
    clients.answer("us-west-2", "head_object", HEAD, SOURCE)
    clients.answer("us-west-2", "get_object_tagging", {"TagSet": [{"Key": "team", "Value": "a b"}]}, SOURCE)
    guard = {"IfMatch": replaces} if replaces else {"IfNoneMatch": "*"}
    asked = {
        "Bucket": PAIR.source,
        "Key": "k",
        "CopySource": SOURCE,
        "MetadataDirective": "REPLACE",
        "TaggingDirective": "REPLACE",
        **VALUES,
        **guard,
    }
    clients.answer("us-east-1", "copy_object", {"CopyObjectResult": {"ETag": "e"}}, asked)
    clients.done().copy(PAIR, [Copy(key="k", version="2", size=7, replaces=replaces)])
    clients.check()


def test_large_object_is_copied_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object above the size of a part is copied by ranges that cover it, and completed with the same condition."""
    monkeypatch.setattr(aws, "THREADS", 1)
    size = 2 * aws.PART + 1
    clients = Clients()
    clients.answer("us-west-2", "head_object", {"Metadata": {}}, SOURCE)
    clients.answer("us-east-1", "create_multipart_upload", {"UploadId": "u"}, {"Bucket": PAIR.source, "Key": "k", "Metadata": {aws.MARK: "2"}})  # fmt: skip
    spans = [(0, aws.PART - 1), (aws.PART, 2 * aws.PART - 1), (2 * aws.PART, size - 1)]
    for number, (begin, end) in enumerate(spans, 1):
        asked = {**UPLOAD, "CopySource": SOURCE, "PartNumber": number, "CopySourceRange": f"bytes={begin}-{end}"}
        clients.answer("us-east-1", "upload_part_copy", {"CopyPartResult": {"ETag": f"e{number}"}}, asked)
    parts = {"Parts": [{"PartNumber": number, "ETag": f"e{number}"} for number in (1, 2, 3)]}
    clients.answer("us-east-1", "complete_multipart_upload", {"ETag": "e"}, {**UPLOAD, "MultipartUpload": parts, "IfMatch": '"1"'})  # fmt: skip
    clients.done().copy(PAIR, [Copy(key="k", version="2", size=size, replaces='"1"')])
    clients.check()


def test_object_that_changes_during_the_copy_is_not_replaced() -> None:
    """If S3 rejects the condition, the error names the object."""
    clients = Clients()
    clients.answer("us-west-2", "head_object", {}, SOURCE)
    clients.answer("us-east-1", "copy_object", "PreconditionFailed")
    with pytest.raises(DeploymentError, match="k in train-scratch-us-east-1 changed after the comparison"):
        clients.done().copy(PAIR, [Copy(key="k", version="2", size=7, replaces='"1"')])


@pytest.mark.parametrize("changed", [False, True])
def test_objects_of_a_disabled_replication_are_copied_to_themselves(changed: bool) -> None:
    """S3 replicates new versions only, so an object that the replica lacks gets one with the same content. One that changed meanwhile has a new version."""
    clients, own = Clients(), {"Bucket": PAIR.source, "Key": "k"}
    clients.answer("us-west-2", "list_object_versions", listing([]), {"Bucket": PAIR.replica})
    clients.answer("us-west-2", "get_bucket_policy", "NoSuchBucketPolicy")
    clients.answer("us-east-1", "list_object_versions", listing([ONE]), {"Bucket": PAIR.source})
    clients.answer("us-east-1", "list_object_versions", listing([ONE]), {"Bucket": PAIR.source})
    source = {**own, "VersionId": ONE["VersionId"]}
    clients.answer("us-east-1", "head_object", {"Metadata": {"file-owner": "1000"}}, source)
    asked = {**own, "CopySource": source, "MetadataDirective": "REPLACE", "TaggingDirective": "REPLACE", "IfMatch": ONE["ETag"]}  # fmt: skip
    asked["Metadata"] = {"file-owner": "1000", aws.MARK: ONE["VersionId"]}
    clients.answer("us-east-1", "copy_object", "PreconditionFailed" if changed else {"CopyObjectResult": {"ETag": "e"}}, asked)  # fmt: skip
    assert clients.done().replicate_again(PAIR) == 1
    clients.check()


def test_replication_and_launches_are_enabled() -> None:
    """Only the status of the rules changes, and only the suspended process is resumed. A group that does not exist is left alone."""
    rules = [{"ID": "all", "Priority": 0, "Status": "Disabled", "Destination": {"Bucket": f"arn:aws:s3:::{PAIR.replica}"}}]  # fmt: skip
    clients = Clients()
    asked = {"Bucket": PAIR.source}
    clients.answer("us-east-1", "get_bucket_replication", {"ReplicationConfiguration": {"Role": ROLE, "Rules": rules}}, asked)  # fmt: skip
    enabled = {"Role": ROLE, "Rules": [{**rules[0], "Status": "Enabled"}]}
    clients.answer("us-east-1", "put_bucket_replication", {}, {**asked, "ReplicationConfiguration": enabled})
    group = {"AutoScalingGroupName": "g", "MinSize": 0, "MaxSize": 0, "DesiredCapacity": 0, "DefaultCooldown": 0,
             "AvailabilityZones": ["a"], "HealthCheckType": "EC2", "CreatedTime": START}  # fmt: skip
    own = {"AutoScalingGroupName": "g"}
    for call, answer, expected in (
        ("describe_auto_scaling_groups", {"AutoScalingGroups": [group]}, None),
        ("update_auto_scaling_group", {}, {**own, "MaxSize": 3, "DesiredCapacity": 3}),
        ("resume_processes", {}, {**own, "ScalingProcesses": ["Launch"]}),
    ):
        clients.answer("us-east-1", call, answer, expected, service="autoscaling")
    clients.answer("us-east-1", "describe_auto_scaling_groups", {"AutoScalingGroups": []}, service="autoscaling")
    failback = clients.done()
    failback.start_replication(PAIR)
    failback.start_group("g", 3)
    failback.start_group("g", 3)
    clients.check()
    assert "--auto-scaling-group-name g --scaling-processes Launch --region us-west-2" in failback.start_command("g")


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_a_cloud_without_the_capability_has_no_failback(cloud: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cloud supports a failback. A cloud whose class has no `failback` does not."""
    assert cloud_of(cloud).failback("first", "second", {}) is not None
    monkeypatch.delattr(type(cloud_of(cloud)), "failback")
    assert cloud_of(cloud).failback("first", "second", {}) is None
