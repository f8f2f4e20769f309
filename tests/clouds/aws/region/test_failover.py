"""The requests of a failover on AWS. botocore's Stubber validates requests and responses by the service models."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.exceptions import (
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
    SSLError,
)
from botocore.stub import Stubber

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.aws.region import failover as aws
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.region import reach
from gpuinfra.clouds.region.failover import BucketPair, Unreachable

NOW = datetime(2026, 11, 23, tzinfo=UTC)
PAIR = BucketPair(source="train-scratch-us-east-1", replica="train-scratch-us-west-2")
TASK = "task-0123456789abcdef0"
RULES = [{"ID": "all", "Priority": 0, "Status": "Enabled", "Destination": {"Bucket": f"arn:aws:s3:::{PAIR.replica}"}}]
ROLE = "arn:aws:iam::000000000000:role/replication"
STATE: list[dict[str, Any]] = [
    {"type": aws.GROUP, "id": "train-gpu-0"},
    {"type": aws.REPLICATION, "outputs": {"bucket": PAIR.source, "rules": [{"destination": {"bucket": f"arn:aws:s3:::{PAIR.replica}"}}]}},
    {"type": aws.LINK, "outputs": {"fileSystemId": "fs-0123456789abcdef0"}},
    {"type": aws.LINK, "outputs": {"fileSystemId": "fs-0123456789abcdef0"}},
]  # fmt: skip
STATUSES = {"SlowDown": 503, "InternalError": 500, "429": 429}
"""Status of an error code. Others have the status 400."""
Answers = list[tuple[str, Any, dict[str, Any] | None]]


@contextmanager
def cloud(service: str, region: str, answers: Answers) -> Iterator[aws.AwsFailover]:
    """A failover whose only client answers with these responses, in order. All of them must be used."""
    made = boto3.client(service, region_name=region, aws_access_key_id="a", aws_secret_access_key="b")  # pyright: ignore[reportCallIssue, reportArgumentType]

    def client(name: str, where: str) -> Any:
        assert (name, where) == (service, region)
        return made

    with Stubber(made) as stubber:
        for method, answer, expected in answers:
            if isinstance(answer, str):
                stubber.add_client_error(method, answer, "refused", http_status_code=STATUSES.get(answer, 400))
            else:
                stubber.add_response(method, answer, expected)
        yield aws.AwsFailover(client, "us-east-1", "us-west-2")
        stubber.assert_no_pending_responses()


@pytest.fixture(autouse=True)
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between attempts, which take no time."""
    pauses: list[float] = []
    monkeypatch.setattr(reach.time, "sleep", pauses.append)
    return pauses


def test_names_come_from_the_state() -> None:
    """Groups, pairs of buckets and file systems are read from the state, each once."""
    with cloud("s3", "us-east-1", []) as found:
        assert found.groups(STATE) == ("train-gpu-0",)
        assert found.pairs(STATE) == (PAIR,)
        assert found.file_systems(STATE) == ("fs-0123456789abcdef0",)


def _group(*instances: str) -> dict[str, Any]:
    rows = [
        {
            "InstanceId": one,
            "AvailabilityZone": "a",
            "LifecycleState": "Terminating",
            "HealthStatus": "Healthy",
            "ProtectedFromScaleIn": False,
        }
        for one in instances
    ]
    return {"AutoScalingGroups": [{"AutoScalingGroupName": "g", "MinSize": 0, "MaxSize": 2, "DesiredCapacity": 2, "DefaultCooldown": 0,
                                   "AvailabilityZones": ["a"], "HealthCheckType": "EC2", "CreatedTime": NOW, "Instances": rows}]}  # fmt: skip


def test_group_cannot_launch_before_it_is_scaled_to_zero() -> None:
    """Launches are suspended first, so that a scheduled action cannot start nodes again. A group that does not exist is left alone."""
    asked = {"AutoScalingGroupNames": ["g"]}
    with cloud("autoscaling", "us-east-1", [
        ("describe_auto_scaling_groups", _group("i-1"), asked),
        ("suspend_processes", {}, {"AutoScalingGroupName": "g", "ScalingProcesses": ["Launch"]}),
        ("update_auto_scaling_group", {}, {"AutoScalingGroupName": "g", "MinSize": 0, "MaxSize": 0, "DesiredCapacity": 0}),
        ("describe_auto_scaling_groups", _group("i-1"), asked),
        ("describe_auto_scaling_groups", _group(), asked),
        ("describe_auto_scaling_groups", {"AutoScalingGroups": []}, asked),
        ("describe_auto_scaling_groups", {"AutoScalingGroups": []}, asked),
    ]) as found:  # fmt: skip
        found.stop_group("g")
        assert [found.running("g"), found.running("g")] == [1, 0]
        found.stop_group("g")
        assert found.running("g") == 0


def _version(key: str, version: str, *, latest: bool = True) -> dict[str, Any]:
    return {"Key": key, "VersionId": version, "IsLatest": latest, "Size": 1, "LastModified": NOW}


def test_objects_whose_newest_version_has_no_replica_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object is replicated if the replica has its newest version. Older versions and deleted objects do not count, on all pages."""
    first = {"Versions": [_version("a", "1"), _version("b", "2", latest=False), _version("b", "1", latest=False)],
             "DeleteMarkers": [{"Key": "b", "VersionId": "3", "IsLatest": True, "LastModified": NOW}],
             "IsTruncated": True, "NextKeyMarker": "b", "NextVersionIdMarker": "1"}  # fmt: skip
    rest = {
        "Versions": [_version("c", "9"), _version("c", "8", latest=False), _version("d", "1")],
        "IsTruncated": False,
    }
    other = {**_version("c", "8"), "Size": 2}
    replica = {"Versions": [_version("a", "1"), other, _version("d", "1", latest=False), _version("d", "2")], "IsTruncated": False}  # fmt: skip
    answers = {
        (PAIR.source, None): first, (PAIR.source, "b"): rest, (PAIR.replica, None): replica,
    }  # fmt: skip
    regions: list[str] = []
    made = boto3.client("s3", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")  # pyright: ignore[reportCallIssue, reportArgumentType]

    def client(service: str, region: str) -> Any:
        regions.append(f"{service} {region}")
        return made

    def listed(**asked: Any) -> Any:
        answer: Any = answers[asked["Bucket"], asked.get("KeyMarker")]
        with Stubber(made) as stubber:
            stubber.add_response("list_object_versions", answer, asked)
            return original(**asked)

    original = made.list_object_versions
    monkeypatch.setattr(made, "list_object_versions", listed)
    monkeypatch.setattr(made, "get_bucket_policy", lambda **_: {"Policy": "{}"})
    assert aws.AwsFailover(client, "us-east-1", "us-west-2").not_replicated(PAIR) == ["c"]
    assert set(regions) == {"s3 us-east-1", "s3 us-west-2"}


def test_replication_is_disabled_and_stays_configured() -> None:
    """Only the status of each rule changes. Replication that is disabled or was removed is left alone."""
    asked = {"Bucket": PAIR.source}
    enabled = {"ReplicationConfiguration": {"Role": ROLE, "Rules": RULES}}
    disabled = {"Role": ROLE, "Rules": [{**RULES[0], "Status": "Disabled"}]}
    with cloud("s3", "us-east-1", [
        ("get_bucket_replication", enabled, asked),
        ("put_bucket_replication", {}, {**asked, "ReplicationConfiguration": disabled}),
        ("get_bucket_replication", {"ReplicationConfiguration": disabled}, asked),
        ("get_bucket_replication", "ReplicationConfigurationNotFoundError", asked),
    ]) as found:  # fmt: skip
        for _ in range(3):
            found.stop_replication(PAIR)


def _task(lifecycle: str, kind: str = aws.IMPORT, **more: Any) -> dict[str, Any]:
    return {"TaskId": TASK, "Lifecycle": lifecycle, "Type": kind, "CreationTime": NOW, **more}


def test_import_is_started_once() -> None:
    """A running import is found again, so that a repeated step does not start a second one. An export is not an import."""
    with cloud("fsx", "us-west-2", [
        ("describe_data_repository_tasks", {"DataRepositoryTasks": [_task("EXECUTING", "EXPORT_TO_REPOSITORY")]}, None),
        ("create_data_repository_task", {"DataRepositoryTask": _task("PENDING")}, None),
        ("describe_data_repository_tasks", {"DataRepositoryTasks": [_task("EXECUTING")]}, None),
    ]) as found:  # fmt: skip
        assert found.start_import("fs-0123456789abcdef0") == TASK
        assert found.start_import("fs-0123456789abcdef0") == TASK


@pytest.mark.parametrize(
    ("task", "ended"),
    [
        (_task("PENDING"), False),
        (_task("EXECUTING"), False),
        (_task("SUCCEEDED", Status={"TotalCount": 5, "SucceededCount": 5, "FailedCount": 0}), True),
        (_task("SUCCEEDED", Status={"TotalCount": 5, "SucceededCount": 4, "FailedCount": 1}), "1 object failed"),
        (_task("FAILED", FailureDetails={"Message": "the bucket denies access"}), "the bucket denies access"),
        (_task("CANCELED"), "CANCELED"),
    ],
)
def test_import_ends_only_with_all_objects(task: dict[str, Any], ended: bool | str) -> None:
    """A failed or cancelled import, and one without some of the objects, is an error with the command that shows it."""
    with cloud("fsx", "us-west-2", [("describe_data_repository_tasks", {"DataRepositoryTasks": [task]}, {"TaskIds": [TASK]})]) as found:  # fmt: skip
        if isinstance(ended, bool):
            assert found.import_ended(TASK) is ended
            return
        with pytest.raises(DeploymentError, match=ended) as problem:
            found.import_ended(TASK)
        assert f"aws fsx describe-data-repository-tasks --task-ids {TASK} --region us-west-2" in str(problem.value)


URL = {"endpoint_url": "https://s3"}


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (EndpointConnectionError(**URL), Unreachable),
        (ConnectTimeoutError(**URL), Unreachable),
        (ReadTimeoutError(**URL), Unreachable),
        (SSLError(error="expired", **URL), DeploymentError),
        (NoCredentialsError(), DeploymentError),
    ],
)
def test_only_a_region_that_does_not_answer_is_unreachable(problem: Exception, expected: type[Exception]) -> None:
    """A timeout is a region that does not respond. A missing login or a wrong certificate is a problem of this machine."""

    class Broken:
        def head_bucket(self, **_: Any) -> Any:
            raise problem

    with pytest.raises(expected):
        aws.AwsFailover(lambda service, region: Broken(), "us-east-1", "us-west-2").answers(PAIR)


BUSY = ["SlowDown", "InternalError", "429", "RequestLimitExceeded", "Throttling", "TooManyRequestsException"]


@pytest.mark.parametrize("code", BUSY)
def test_a_busy_service_is_asked_again(code: str, slept: list[float]) -> None:
    """Throttling and errors of the service are repeated, also the throttling that AWS returns with the status 400."""
    with cloud("s3", "us-west-2", [("head_bucket", code, None), ("head_bucket", code, None), ("head_bucket", {}, None)]) as found:  # fmt: skip
        found.answers(PAIR)
    assert slept == [1, 2]


@pytest.mark.parametrize("code", [*BUSY, "AccessDenied"])
def test_a_response_with_an_error_is_never_an_unreachable_region(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that stays busy, and a refused request, end the failover."""
    monkeypatch.setattr(reach, "BUSY_S", 0.0)
    with cloud("s3", "us-west-2", [("head_bucket", code, None)]) as found, pytest.raises(DeploymentError):
        found.answers(PAIR)


def test_services_of_the_first_region_are_asked_once(slept: list[float]) -> None:
    """The evidence has one request to each service, which is not repeated."""
    asked: list[str] = []

    class Broken:
        def __init__(self, name: str) -> None:
            self.name = name

        def __getattr__(self, method: str) -> Any:
            def refuse(**_: Any) -> Any:
                asked.append(f"{self.name} {method}")
                raise ConnectTimeoutError(**URL)

            return refuse

    found = aws.AwsFailover(lambda service, region: Broken(f"{service} {region}"), "us-east-1", "us-west-2")
    services = found.services(STATE)
    assert list(services) == ["Auto Scaling", "S3"]
    for request in services.values():
        with pytest.raises(Unreachable):
            request()
    assert asked == ["autoscaling us-east-1 describe_auto_scaling_groups", "s3 us-east-1 head_bucket"]
    assert slept == []


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_a_cloud_without_the_capability_has_no_failover(cloud: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cloud supports a failover. A cloud whose class has no `failover` does not."""
    assert cloud_of(cloud).failover("first", "second", {}) is not None
    monkeypatch.delattr(type(cloud_of(cloud)), "failover")
    assert cloud_of(cloud).failover("first", "second", {}) is None


def test_missing_profile_is_one_error() -> None:
    """A profile that does not exist is named."""
    with pytest.raises(DeploymentError, match="no-such-profile"):
        aws.connect("us-east-1", "us-west-2", {"aws:profile": "no-such-profile"})
