"""What `gpuinfra ready` reads from AWS and Google Cloud.

The responses have the shapes of the API references (GetBucketReplication, HeadBucket, HeadObject, DescribeKey, GetMetricStatistics, GetRole;
transferJobs.get, buckets.get, objects.get, cryptoKeys.get, timeSeries.list, projects.roles.get; retrieved 2026-11-22). botocore's
Stubber validates requests and responses of AWS by the service models, and Google's discovery documents those of Google Cloud.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber

from gpuinfra.clouds.aws.region import readiness as aws
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.gcp.region import readiness as gcp
from gpuinfra.clouds.preflight import RowState, Unanswered, no_credentials, not_asked, ok, problem, skipped, warning
from gpuinfra.clouds.region.readiness import (
    FAIL,
    OK,
    SKIPPED,
    UNREAD,
    WARN,
    ReadinessLine,
    ReadinessQuestion,
    Unread,
    of_preflight,
)
from gpuinfra.plan.make import build_plan
from gpuinfra.region.readiness import of_cloud
from tests.clouds.gcp.discovery import document
from tests.clouds.stacks import TODAY, spec_of

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
SOURCE, REPLICA, ROLE = (
    "train-evidence-000000000000-us-east-2-0a1b2c3d",
    "train-evidence-000000000000-us-west-2-0a1b2c3d",
    "replication",
)
KEY_ARN = "arn:aws:kms:{}:000000000000:key/{}"
KEY_ID, BUNDLE = "11111111-2222-3333-4444-555555555555", "bundles/train/gpu/abc.tar.gz"
SCRATCH = tuple(name.replace("evidence", "scratch-0") for name in (SOURCE, REPLICA))


def question(stack: str, resources: Iterable[Mapping[str, Any]]) -> ReadinessQuestion:
    """The second region of a shipped stack with these resources in its state."""
    spec = spec_of(stack)
    plan = build_plan(spec, TODAY)
    assert plan.recovery is not None
    assert spec.recovery is not None
    return ReadinessQuestion(
        region=plan.region, recovery=plan.recovery, rpo_minutes=spec.recovery.rpo_minutes, resources=list(resources),
        config={},
    )  # fmt: skip


def problems(lines: Iterable[ReadinessLine]) -> set[tuple[str, str, str]]:
    """State, topic and name of each line that is not ok."""
    return {(one.state, one.topic, one.name) for one in lines if one.state != OK}


# AWS


def _replicated(source: str, replica: str) -> dict[str, Any]:
    rule = {"id": "all", "status": "Enabled", "destination": {"bucket": f"arn:aws:s3:::{replica}"}}
    outputs = {"bucket": source, "role": f"arn:aws:iam::000000000000:role/{ROLE}", "rules": [rule]}
    return {"type": aws.REPLICATION, "custom": True, "outputs": outputs}


AWS_STATE: list[dict[str, Any]] = [
    _replicated(SOURCE, REPLICA),
    _replicated(*SCRATCH),
    {"type": aws.KEY, "id": KEY_ID, "outputs": {"region": "us-west-2"}},
    {"type": aws.KEY, "id": "of-the-first-region", "outputs": {"region": "us-east-2"}},
    {"type": aws.OBJECT, "outputs": {"bucket": SOURCE, "key": BUNDLE}},
    {"type": aws.OBJECT, "outputs": {"bucket": "not-replicated", "key": "other"}},
]


class Aws:
    """The answers of AWS, of which a test changes some. A string is an error code."""

    def __init__(self) -> None:
        self.rules: dict[str, Any] = {
            source: {
                "ReplicationConfiguration": {
                    "Role": f"arn:aws:iam::000000000000:role/{ROLE}",
                    "Rules": [{
                        "ID": "all", "Priority": 0, "Status": "Enabled",
                        "SourceSelectionCriteria": {"SseKmsEncryptedObjects": {"Status": "Enabled"}},
                        "Destination": {"Bucket": f"arn:aws:s3:::{replica}", "EncryptionConfiguration": {"ReplicaKmsKeyID": KEY_ARN.format("us-west-2",
                            KEY_ID)}},
                    }],
                }
            }
            for source, replica in ((SOURCE, REPLICA), SCRATCH)
        }  # fmt: skip
        self.head: Any = {"BucketRegion": "us-west-2"}
        self.lag: Any = {"Label": "ReplicationLatency", "Datapoints": [
            {"Timestamp": NOW - timedelta(minutes=50), "Maximum": 9000.0, "Unit": "Seconds"},
            {"Timestamp": NOW - timedelta(minutes=5), "Maximum": 42.0, "Unit": "Seconds"}]}  # fmt: skip
        self.failed: Any = {"Label": "OperationsFailedReplication", "Datapoints": []}
        self.key: Any = {"KeyMetadata": {"KeyId": KEY_ID, "KeyState": "Enabled", "Enabled": True}}
        self.role: Any = {
            "Role": {
                "Path": "/",
                "RoleName": ROLE,
                "RoleId": "AROA0000000000000000A",
                "Arn": f"arn:aws:iam::000000000000:role/{ROLE}",
                "CreateDate": NOW,
            }
        }
        self.bundle: Any = {"ContentLength": 1}

    def lines(self, state: list[dict[str, Any]] = AWS_STATE) -> list[ReadinessLine]:
        """Ask with these answers. Each request and each answer is validated by botocore."""
        with ExitStack() as stubs:
            clients: dict[tuple[str, str], Any] = {}

            def client(service: str, region: str) -> Any:
                if (service, region) not in clients:
                    made = boto3.client(service, region_name=region, aws_access_key_id="a", aws_secret_access_key="b")  # pyright: ignore[reportCallIssue, reportArgumentType]
                    stubber = stubs.enter_context(Stubber(made))
                    for method, answer, expected in self._answers(service, region, state):
                        if isinstance(answer, str):
                            stubber.add_client_error(
                                method, answer, "refused", http_status_code=400, expected_params=expected
                            )
                        else:
                            stubber.add_response(method, answer, expected)
                    clients[service, region] = made
                return clients[service, region]

            return list(aws.lines(question("aws-recovery", state), client, NOW))

    def _answers(self, service: str, region: str, state: list[dict[str, Any]]) -> Iterable[tuple[str, Any, Any]]:
        pairs = [(SOURCE, REPLICA), SCRATCH][: sum(one["type"] == aws.REPLICATION for one in state)]
        first, second = (service, "us-east-2"), (service, "us-west-2")
        for source, replica in pairs:
            metric = {"Namespace": "AWS/S3", "Dimensions": [
                {"Name": "SourceBucket", "Value": source}, {"Name": "DestinationBucket", "Value": replica}, {"Name": "RuleId", "Value": "all"}],
                "StartTime": ANY, "EndTime": NOW, "Period": ANY}  # fmt: skip
            if (service, region) == first == ("s3", "us-east-2"):
                yield "get_bucket_replication", self.rules[source], {"Bucket": source}
            if (service, region) == second == ("s3", "us-west-2"):
                yield "head_bucket", self.head, {"Bucket": replica}
            if (service, region) == ("cloudwatch", "us-west-2"):
                yield (
                    "get_metric_statistics",
                    self.lag,
                    {**metric, "MetricName": "ReplicationLatency", "Statistics": ["Maximum"]},
                )
            if (service, region) == ("cloudwatch", "us-east-2"):
                yield (
                    "get_metric_statistics",
                    self.failed,
                    {**metric, "MetricName": "OperationsFailedReplication", "Statistics": ["Sum"]},
                )
        if (service, region) == ("s3", "us-west-2"):
            yield "head_object", self.bundle, {"Bucket": REPLICA, "Key": BUNDLE}
        if (service, region) == ("kms", "us-west-2"):
            yield "describe_key", self.key, {"KeyId": KEY_ID}
        if service == "iam":
            yield "get_role", self.role, {"RoleName": ROLE}


def _rule(**more: Any) -> Callable[[Aws], None]:
    return lambda cloud: cloud.rules[SOURCE]["ReplicationConfiguration"]["Rules"][0].update(more)


def _encrypted_with(arn: str | None) -> Callable[[Aws], None]:
    encryption = {"EncryptionConfiguration": {"ReplicaKmsKeyID": arn}} if arn else {}
    return _rule(Destination={"Bucket": f"arn:aws:s3:::{REPLICA}", **encryption})


def _set(name: str, value: Any) -> Callable[[Any], None]:
    return lambda cloud: setattr(cloud, name, value)


def _points(statistic: str, value: float) -> dict[str, Any]:
    return {"Label": "x", "Datapoints": [{"Timestamp": NOW - timedelta(minutes=5), statistic: value}]}


def test_ready_region_on_aws_has_only_good_lines() -> None:
    """Replication, replicas, lag, failures, key, role and bundle are read, and only keys of the second Region."""
    found = Aws().lines()
    assert problems(found) == set()
    assert {one.topic for one in found} == {
        "replication",
        "replica",
        "lag",
        "failures",
        "key",
        "role",
        "bundle",
    }
    assert [one.name for one in found if one.topic == "key"] == [REPLICA, SCRATCH[1], KEY_ID]
    assert "42 s" in next(one.reason for one in found if one.topic == "lag")


BOTH = (SOURCE, SCRATCH[0])


@pytest.mark.parametrize(
    ("change", "expected", "fix"),
    [
        (_rule(Status="Disabled"), {(FAIL, "replication", SOURCE)}, ""),
        (_rule(Destination={"Bucket": "arn:aws:s3:::other"}), {(FAIL, "replication", SOURCE)}, ""),
        (lambda cloud: cloud.rules.update({SOURCE: "ReplicationConfigurationNotFoundError"}), {(FAIL, "replication", SOURCE)}, ""),
        (lambda cloud: cloud.rules.update({SOURCE: "NoSuchBucket"}), {(FAIL, "replication", SOURCE)}, ""),
        (_rule(SourceSelectionCriteria={"SseKmsEncryptedObjects": {"Status": "Disabled"}}), {(FAIL, "replication", SOURCE)}, ""),
        (lambda cloud: cloud.rules[SOURCE]["ReplicationConfiguration"]["Rules"][0].pop("SourceSelectionCriteria"), {(FAIL, "replication", SOURCE)}, ""),
        (_encrypted_with(KEY_ARN.format("us-east-2", KEY_ID)), {(FAIL, "key", REPLICA)}, ""),
        (_encrypted_with(KEY_ARN.format("us-west-2", "other")), {(FAIL, "key", REPLICA)}, ""),
        (_encrypted_with(None), {(FAIL, "key", REPLICA)}, ""),
        (_set("head", "404"), {(FAIL, "replica", REPLICA), (FAIL, "replica", SCRATCH[1])}, ""),
        (_set("head", {"BucketRegion": "eu-west-1"}), {(FAIL, "replica", REPLICA), (FAIL, "replica", SCRATCH[1])}, ""),
        (_set("lag", _points("Maximum", 90 * 60 + 1)), {(FAIL, "lag", one) for one in BOTH}, "aws s3api get-bucket-replication"),
        (_set("lag", _points("Maximum", 901)), {(WARN, "lag", one) for one in BOTH}, "aws s3api get-bucket-replication"),
        (_set("lag", {"Label": "x", "Datapoints": []}), set(), ""),
        (_set("failed", _points("Sum", 3)), {(FAIL, "failures", one) for one in BOTH}, "aws s3control create-job"),
        (_set("key", {"KeyMetadata": {"KeyId": KEY_ID, "KeyState": "Disabled"}}), {(FAIL, "key", KEY_ID)}, "aws kms enable-key"),
        (_set("key", {"KeyMetadata": {"KeyId": KEY_ID, "KeyState": "PendingDeletion"}}), {(FAIL, "key", KEY_ID)}, "aws kms cancel-key-deletion"),
        (_set("key", "NotFoundException"), {(FAIL, "key", KEY_ID)}, ""),
        (_set("role", "NoSuchEntity"), {(FAIL, "role", ROLE)}, ""),
        (_set("bundle", "404"), {(FAIL, "bundle", BUNDLE)}, "aws s3control create-job --region us-east-2"),
        (_set("key", "AccessDeniedException"), {(UNREAD, "key", KEY_ID)}, "log in"),
        (_set("lag", "Throttling"), {(UNREAD, "lag", one) for one in BOTH}, "log in"),
        (_set("role", "ExpiredToken"), {(UNREAD, "role", ROLE)}, "log in"),
    ],
)  # fmt: skip
def test_each_broken_protection_on_aws_is_named(
    change: Callable[[Aws], None], expected: set[tuple[str, str, str]], fix: str
) -> None:
    """One broken part is one line with the bucket, key, role or bundle, and the command. An unanswered request is no failure."""
    cloud = Aws()
    change(cloud)
    found = cloud.lines()
    assert problems(found) == expected
    bad = [one for one in found if one.state != OK]
    assert all(one.reason for one in bad)
    assert all(one.fix.startswith(fix) for one in bad)
    assert all(bool(one.fix) == bool(fix) for one in bad)


def test_state_without_replication_or_key_is_named_on_aws() -> None:
    """A stack whose recovery is declared but not deployed is not ready."""
    missing = {(FAIL, "replication", "stack"), (FAIL, "key", "stack")}
    assert problems(Aws().lines(state=AWS_STATE[:1])) == {*missing, (FAIL, "key", REPLICA)}
    assert problems(Aws().lines(state=[])) == {(FAIL, "replication", "stack"), (FAIL, "key", "stack")}


# Google Cloud

G_SOURCE, G_REPLICA, G_JOB = (
    "train-evidence-0a1b2c3d",
    "train-evidence-us-east4-0a1b2c3d",
    "transferJobs/1000000000000000001",
)
G_KEY = "projects/p/locations/us-east4/keyRings/r/cryptoKeys/k"
G_ROLE = "projects/p/roles/gpuinfra_train_replication_source_0a1b2c3d"
G_STATE: list[dict[str, Any]] = [
    *(
        {"type": gcp.JOB, "outputs": {"name": job, "project": "p", "replicationSpec": {
            "gcsDataSource": {"bucketName": source}, "gcsDataSink": {"bucketName": replica}}}}
        for job, source, replica in ((G_JOB, G_SOURCE, G_REPLICA), ("transferJobs/2", "scratch", "scratch-replica"))
    ),
    {"type": gcp.JOB, "outputs": {"name": "transferJobs/3", "project": "p", "transferSpec": {}}},
    {"type": gcp.KEY, "id": G_KEY},
    {"type": gcp.KEY, "id": G_KEY.replace("us-east4", "us-central1")},
    {"type": gcp.ROLE, "id": G_ROLE},
    {"type": gcp.ROLE, "id": "projects/p/roles/gpuinfra_train_node_0a1b2c3d"},
    {"type": gcp.OBJECT, "outputs": {"bucket": G_SOURCE, "name": BUNDLE}},
]  # fmt: skip
METHODS = {
    "v1/transferJobs/": ("storagetransfer.v1", "transferJobs", "get"),
    "storage/v1/b/[^/]+$": ("storage.v1", "buckets", "get"),
    "storage/v1/b/[^/]+/o/": ("storage.v1", "objects", "get"),
    "v1/projects/p/locations/": ("cloudkms.v1", "projects/locations/keyRings/cryptoKeys", "get"),
    "v3/projects/p/timeSeries": ("monitoring.v3", "projects/timeSeries", "list"),
    "v1/projects/p/roles/": ("iam.v1", "projects/roles", "get"),
}
"""Path -> the discovery document and its method."""


def job(source: str, replica: str, status: str = "ENABLED", key: str = "KMS_KEY_DESTINATION_BUCKET_DEFAULT") -> dict[str, Any]:  # fmt: skip
    """A replication job."""
    options = {"metadataOptions": {"kmsKey": key}}
    spec = {"gcsDataSource": {"bucketName": source}, "gcsDataSink": {"bucketName": replica}, "transferOptions": options}
    return {"name": G_JOB, "projectId": "p", "status": status, "replicationSpec": spec}


def series(**value: Any) -> dict[str, Any]:
    """One point of one time series."""
    interval = {"startTime": "2026-11-22T11:00:00Z", "endTime": "2026-11-22T12:00:00Z"}
    return {"timeSeries": [{"metric": {"type": gcp.LATENCY}, "points": [{"interval": interval, "value": value}]}]}


def _bucket(location: str, key: str | None = G_KEY) -> dict[str, Any]:
    return {"location": location, **({"encryption": {"defaultKmsKeyName": key}} if key else {})}


GOOD: dict[str, Any] = {
    f"v1/{G_JOB}": job(G_SOURCE, G_REPLICA),
    "v1/transferJobs/2": job("scratch", "scratch-replica"),
    f"storage/v1/b/{G_REPLICA}": _bucket("US-EAST4"),
    "storage/v1/b/scratch-replica": _bucket("US-EAST4"),
    "latency": series(doubleValue=42000.0),
    "failed": {},
    f"v1/{G_KEY}": {"name": G_KEY, "primary": {"name": f"{G_KEY}/cryptoKeyVersions/1", "state": "ENABLED"}},
    f"v1/{G_ROLE}": {"name": G_ROLE, "stage": "GA"},
    f"storage/v1/b/{G_REPLICA}/o/bundles%2Ftrain%2Fgpu%2Fabc.tar.gz": {"name": BUNDLE},
}


def google(answers: Mapping[str, Any], state: list[dict[str, Any]] = G_STATE) -> list[ReadinessLine]:
    """Ask with these answers. Paths, parameters, keys and enumerations are validated by the discovery documents."""

    def get(service: str, path: str, parameters: Mapping[str, str]) -> dict[str, Any] | None:
        (place,) = [place for pattern, place in METHODS.items() if re.match(pattern, path)]
        described, method = document(place[0]), place[2]
        assert place[0].partition(".")[0] == service
        node = described
        for part in place[1].split("/"):
            node = node["resources"][part]
        documented = node["methods"][method]
        assert set(parameters) <= set(documented["parameters"])
        for name, value in parameters.items():
            allowed = documented["parameters"][name].get("enum")
            assert allowed is None or value in allowed
        key = path
        if "timeSeries" in path:
            assert f'"{gcp.LATENCY}"' in parameters["filter"] or f'"{gcp.COUNT}"' in parameters["filter"]
            key = "failed" if gcp.COUNT in parameters["filter"] else "latency"
        answer = answers[key]
        if isinstance(answer, Exception):
            raise answer
        if answer is not None:
            _shaped(described["schemas"], documented["response"]["$ref"], answer)
        return answer

    return list(gcp.lines(question("gcp-recovery", state), get, NOW))


def _shaped(schemas: Mapping[str, Any], name: str, value: Mapping[str, Any]) -> None:
    """Each key of an answer is in the schema, and each value of an enumeration is one of it."""
    properties = schemas[name]["properties"]
    for key, item in value.items():
        assert key in properties, (name, key)
        assert "enum" not in properties[key] or item in properties[key]["enum"], (name, key, item)
        inner = properties[key].get("$ref") or (properties[key].get("items") or {}).get("$ref")
        for one in item if isinstance(item, list) else [item]:
            if inner and isinstance(one, dict):
                _shaped(schemas, inner, one)


def test_ready_region_on_google_cloud_has_only_good_lines() -> None:
    """Jobs, replicas, latency, failures, key, role and bundle are read, and only what belongs to the replication."""
    found = google(GOOD)
    assert problems(found) == set()
    assert {one.topic for one in found} == {"replication", "replica", "lag", "failures", "key", "role", "bundle"}
    assert [one.name for one in found if one.topic in ("key", "role")] == [G_REPLICA, "scratch-replica", G_KEY, G_ROLE]
    assert "42 s" in next(one.reason for one in found if one.topic == "lag")


G_BOTH = (G_SOURCE, "scratch")


def _key(state: str) -> dict[str, Any]:
    return {"name": G_KEY, "primary": {"name": f"{G_KEY}/cryptoKeyVersions/1", "state": state}}


@pytest.mark.parametrize(
    ("changes", "expected", "fix"),
    [
        ({f"v1/{G_JOB}": job(G_SOURCE, G_REPLICA, "DISABLED")}, {(FAIL, "replication", G_SOURCE)}, f"gcloud transfer jobs update {G_JOB}"),
        ({f"v1/{G_JOB}": job(G_SOURCE, G_REPLICA, "DELETED")}, {(FAIL, "replication", G_SOURCE)}, ""),
        ({f"v1/{G_JOB}": None}, {(FAIL, "replication", G_SOURCE)}, ""),
        ({f"v1/{G_JOB}": job(G_SOURCE, "other")}, {(FAIL, "replication", G_SOURCE)}, ""),
        ({f"storage/v1/b/{G_REPLICA}": None}, {(FAIL, "replica", G_REPLICA)}, ""),
        ({f"storage/v1/b/{G_REPLICA}": _bucket("US-CENTRAL1")}, {(FAIL, "replica", G_REPLICA)}, ""),
        ({f"storage/v1/b/{G_REPLICA}": _bucket("US-EAST4", None)}, {(FAIL, "key", G_REPLICA)}, ""),
        ({f"storage/v1/b/{G_REPLICA}": _bucket("US-EAST4", G_KEY.replace("us-east4", "us"))}, {(FAIL, "key", G_REPLICA)}, ""),
        ({f"v1/{G_JOB}": job(G_SOURCE, G_REPLICA, key="KMS_KEY_PRESERVE")}, {(FAIL, "key", G_JOB)}, ""),
        ({"latency": series(doubleValue=120 * 60_000 + 1.0)}, {(FAIL, "lag", one) for one in G_BOTH}, "gcloud transfer operations list"),
        ({"latency": series(doubleValue=1_801_000.0)}, {(WARN, "lag", one) for one in G_BOTH}, "gcloud transfer operations list"),
        ({"latency": {}}, set(), ""),
        ({"failed": series(int64Value="7")}, {(FAIL, "failures", one) for one in G_BOTH}, "gcloud transfer jobs create"),
        ({f"v1/{G_KEY}": _key("DISABLED")}, {(FAIL, "key", G_KEY)}, f"gcloud kms keys versions enable {G_KEY}/cryptoKeyVersions/1"),
        ({f"v1/{G_KEY}": _key("DESTROY_SCHEDULED")}, {(FAIL, "key", G_KEY)}, "gcloud kms keys versions restore"),
        ({f"v1/{G_KEY}": {"name": G_KEY}}, {(FAIL, "key", G_KEY)}, "gcloud kms keys versions enable"),
        ({f"v1/{G_KEY}": None}, {(FAIL, "key", G_KEY)}, ""),
        ({f"v1/{G_ROLE}": {"name": G_ROLE, "deleted": True}}, {(FAIL, "role", G_ROLE)}, "gcloud iam roles undelete gpuinfra_train_replication_source_0a1b2c3d"),
        ({f"v1/{G_ROLE}": None}, {(FAIL, "role", G_ROLE)}, ""),
        ({next(one for one in GOOD if "/o/" in one): None}, {(FAIL, "bundle", BUNDLE)}, f"gcloud transfer jobs create gs://{G_SOURCE} gs://{G_REPLICA}"),
        ({"latency": Unread("403")}, {(UNREAD, "lag", one) for one in G_BOTH}, "log in"),
    ],
)  # fmt: skip
def test_each_broken_protection_on_google_cloud_is_named(
    changes: dict[str, Any], expected: set[tuple[str, str, str]], fix: str
) -> None:
    """One broken part is one line with its name and the command. An unanswered request is no failure."""
    found = google({**copy.deepcopy(GOOD), **changes} if "latency" not in changes else {**GOOD, **changes})
    assert problems(found) == expected
    bad = [one for one in found if one.state != OK]
    assert all(one.reason for one in bad)
    assert all(one.fix.startswith(fix) for one in bad)
    assert all(bool(one.fix) == bool(fix) for one in bad)


def test_state_without_replication_or_key_is_named_on_google_cloud() -> None:
    """A stack whose recovery is declared but not deployed is not ready."""
    missing = {(FAIL, "replication", "stack"), (FAIL, "key", "stack")}
    assert problems(google(GOOD, G_STATE[:1])) == {*missing, (FAIL, "key", G_REPLICA)}


def test_cloud_whose_replication_cannot_be_read_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cloud whose class does not read the replication has one line that is not read."""
    monkeypatch.delattr(type(cloud_of("aws")), "readiness")
    (line,) = of_cloud("aws", question("aws-recovery", ()))
    assert (line.state, line.topic) == (UNREAD, "replication")


def test_rows_of_preflight_are_lines() -> None:
    """A problem is a failure, a question without an answer is not read, and topics that are not about the second region are omitted."""
    late = Unanswered("no answer within 15 s", "an answer", "run the command again")
    rows = [
        ok("identity", "AWS", "account 1"),
        problem("permissions", "role r", "denied", "the policies", "attach them"),
        problem("quota", "L-417A185B", "0 vCPUs", "192 vCPUs", "aws service-quotas request"),
        warning("quota", "L-1", "192 vCPUs, 96 in use", "96 more", "aws"),
        late.row("machine", "p4d.24xlarge"),
        skipped("quota", "gpu", "no quota code is known", "aws service-quotas list-service-quotas"),
        ok("image", "ami-1", "ami-1"),
    ]
    found = list(of_preflight(rows))
    assert [(one.topic, one.state) for one in found] == [
        ("quota", FAIL), ("quota", WARN), ("machine", UNREAD), ("quota", SKIPPED), ("image", OK),
    ]  # fmt: skip
    assert found[0].reason == "0 vCPUs; needed: 192 vCPUs"
    assert found[0].fix == "aws service-quotas request"


@pytest.mark.parametrize("answered", [True, False])
def test_no_identity_is_not_read(answered: bool) -> None:
    """Without credentials or a project, one line has the reason and the login, and nothing fails."""
    refused = no_credentials("none found", "run `aws configure`").row("identity", "AWS")
    row = problem("identity", "AWS", "no project", "a project", "set it") if answered else refused
    (line,) = of_preflight([row, not_asked(("quota",), "not checked without an identity")])
    assert (line.topic, line.state, line.fix) == ("login", UNREAD, row.fix)


@pytest.mark.parametrize(("state", "expected"), [(RowState.SKIPPED, SKIPPED), (RowState.WARN, UNREAD)])
def test_names_that_depend_on_an_organization_are_not_checked(state: RowState, expected: str) -> None:
    """In Pulumi Cloud, the names of the resources are unknown, which is no failed request. The topic differs from that of the DNS names."""
    row = Unanswered("not checked", "", "run `gpuinfra adopt`", state=state).row("names", "buckets")
    (line,) = of_preflight([row])
    assert (line.topic, line.state) == ("resource names", expected)
