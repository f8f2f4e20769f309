"""Reads the second Region of a stack: replication rules, replicas, keys, the role and bundles.

Requests and responses: the API references of S3 (GetBucketReplication, HeadBucket, HeadObject), KMS (DescribeKey, KeyState), CloudWatch
(GetMetricStatistics) and IAM (GetRole), retrieved 2026-11-22, and the service models of botocore.

S3 replicates objects that are encrypted with a KMS key only if the rule selects them, and encrypts the replica with the key in the rule
(https://docs.aws.amazon.com/AmazonS3/latest/userguide/replication-config-for-kms-objects.html, retrieved 2026-11-26). For a key in
another Region than the bucket, S3 returns `KMS.NotFoundException` (localstack/localstack pull request 7448, retrieved 2026-11-26).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from shlex import quote
from typing import Any
from urllib.parse import parse_qs, urlsplit

from gpuinfra.base.safe_text import one_line
from gpuinfra.clouds.aws import credentials
from gpuinfra.clouds.aws.region.homes import home_pairs, replication_of
from gpuinfra.clouds.aws.region.recovery import existing_objects
from gpuinfra.clouds.region.failover import HomePair
from gpuinfra.clouds.region.readiness import (
    ReadinessLine,
    ReadinessQuestion,
    Resource,
    Unread,
    asked,
    bundle,
    deployed,
    fails,
    key,
    lag,
    located,
    of_pair,
    passes,
    role,
    state,
    unread,
    warns,
)

REPLICATION = "aws:s3/bucketReplicationConfig:BucketReplicationConfig"
KEY = "aws:kms/key:Key"
OBJECT = "aws:s3/bucketObjectv2:BucketObjectv2"
MISSING = frozenset(
    {"404", "NoSuchBucket", "NoSuchKey", "NotFound", "NotFoundException", "NoSuchEntity", "ReplicationConfigurationNotFoundError",
     "FileSystemNotFound", "ReplicationNotFound"}
)  # fmt: skip
"""Error codes of resources that do not exist."""
RECENT = timedelta(hours=1)
FAILURES = timedelta(hours=24)
HOME_LAG = timedelta(minutes=15)
"""Lag of most file systems (https://docs.aws.amazon.com/efs/latest/ug/efs-replication.html, "Performance", retrieved 2026-11-30)."""

Client = Callable[[str, str], Any]
"""Returns the client of a service in a Region."""


def look(question: ReadinessQuestion) -> Iterator[ReadinessLine]:
    """Read the second Region with the credentials from the environment, or those that the settings of the provider select."""
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    # A Region that fails may not answer at all, and a failover asks these questions.
    limits = Config(connect_timeout=10, read_timeout=30, retries={"total_max_attempts": 2, "mode": "standard"})
    try:
        session = credentials.session(question.config)
    except BotoCoreError as problem:
        yield unread("login", "AWS", one_line(problem), "run `aws configure list-profiles`")
        return

    def client(service: str, region: str) -> Any:
        return session.client(service, region_name=region, config=limits)  # pyright: ignore[reportCallIssue, reportArgumentType]

    yield from lines(question, client, datetime.now(UTC))
    yield from backend(question, client)


def lines(question: ReadinessQuestion, client: Client, now: datetime) -> Iterator[ReadinessLine]:
    """Return the lines for the resources in the state. Creating a client sends no request."""
    second = question.recovery.region
    configurations = question.of_type(REPLICATION)
    keys = [str(one.get("id")) for one in question.of_type(KEY) if _region(one) == second]
    yield from deployed(question, len(configurations), len(keys))
    replicas: dict[str, str] = {}
    roles: dict[str, None] = {}
    for configuration in configurations:
        outputs = configuration.get("outputs") or {}
        rule = (outputs.get("rules") or [{}])[0]
        arn = str((rule.get("destination") or {}).get("bucket") or "")
        source, replica = str(outputs.get("bucket")), arn.rpartition(":")[2]
        replicas[source] = replica
        roles[str(outputs.get("role"))] = None
        pair = _Pair(question, client, source=source, arn=arn, rule=str(rule.get("id")), keys=keys, now=now)
        yield from of_pair(source, replica, pair)
        yield from asked("failures", source, pair.failures)
    for name in keys:
        yield from asked("key", name, lambda name=name: _key(client, name, second))
    for name in (one.rpartition("/")[2] for one in roles):
        yield from asked("role", name, lambda name=name: _role(client, name, question.region))
    homes = tuple(home_pairs(question.resources, question.region, second))
    if len(homes) < len(question.recovery.homes):
        reason = f"the state contains replicas of {len(homes)} of {len(question.recovery.homes)} file systems with home directories"
        yield fails("homes", "stack", reason)
    for home in homes:
        yield from asked("homes", home.source, lambda home=home: [_replicated_home(question, client, home, now)])
    for bucket, name in _objects(question):
        if replica := replicas.get(bucket):
            yield from asked("bundle", name, lambda b=bucket, r=replica, n=name: _bundle(question, client, b, r, n))


def backend(question: ReadinessQuestion, client: Client) -> Iterator[ReadinessLine]:
    """Read the Region of the bucket that contains the Pulumi state (`s3://BUCKET`). A backend with its own endpoint is not in AWS."""
    name, url = question.backend
    parts = urlsplit(url)
    if parts.scheme == "s3" and "endpoint" not in parse_qs(parts.query):
        yield from asked("state", name, lambda: [state(question, _home(question, client, parts.netloc))])


def _home(question: ReadinessQuestion, client: Client, bucket: str) -> str | None:
    # The endpoint of the second Region also returns the Region of a bucket in another Region.
    answer = _answer(client("s3", question.recovery.region).head_bucket, Bucket=bucket)
    return None if answer is None else str(answer.get("BucketRegion") or "")


class _Pair:
    """A bucket and its replica."""

    def __init__(
        self,
        question: ReadinessQuestion,
        client: Client,
        *,
        source: str,
        arn: str,
        rule: str,
        keys: Sequence[str],
        now: datetime,
    ) -> None:
        self._question, self._client, self._now, self._keys = question, client, now, keys
        self._source, self._arn, self._replica, self._rule = source, arn, arn.rpartition(":")[2], rule
        self._show = f"aws s3api get-bucket-replication --bucket {quote(source)} --region {question.region}"

    def replication(self) -> Iterator[ReadinessLine]:
        s3 = self._client("s3", self._question.region)
        answer = _answer(s3.get_bucket_replication, Bucket=self._source)
        rules = answer["ReplicationConfiguration"].get("Rules", []) if answer else []
        ours = [rule for rule in rules if rule.get("Destination", {}).get("Bucket") == self._arn]
        if not ours:
            yield fails("replication", self._source, f"no replication rule copies this bucket to {self._replica}")
        elif ours[0].get("Status") != "Enabled":
            reason = f"the replication rule to {self._replica} is {ours[0].get('Status')}"
            yield fails("replication", self._source, reason)
        elif _selects_encrypted(ours[0]):
            yield passes("replication", self._source, f"copies to {self._replica}")
        else:
            reason = f"the replication rule to {self._replica} does not copy objects that are encrypted with a KMS key"
            yield fails("replication", self._source, reason)
        if ours:
            yield self._encryption(ours[0])

    def _encryption(self, rule: Mapping[str, Any]) -> ReadinessLine:
        """The rule encrypts the replica with a key of the stack in the second Region. If the first Region fails, its keys cannot be used."""
        arn = str((rule["Destination"].get("EncryptionConfiguration") or {}).get("ReplicaKmsKeyID") or "")
        second = self._question.recovery.region
        if arn.rpartition("/")[2] in self._keys and f":{second}:" in arn:
            return passes("key", self._replica, f"is encrypted with a key in {second}")
        used = arn or "no key"
        reason = f"the replication rule encrypts the replica with {used}, not with a key of this stack in {second}"
        return fails("key", self._replica, reason)

    def exists(self) -> Iterator[ReadinessLine]:
        second = self._question.recovery.region
        answer = _answer(self._client("s3", second).head_bucket, Bucket=self._replica)
        region = None if answer is None else str(answer.get("BucketRegion") or second)
        yield located(self._replica, region, second)

    def lag(self) -> Iterator[ReadinessLine]:
        """S3 publishes the lag in seconds in the Region of the replica."""
        points = self._metric("ReplicationLatency", "Maximum", self._question.recovery.region, RECENT, 300)
        newest = max(points, key=lambda one: one["Timestamp"], default=None)
        yield lag(self._question, self._source, float(newest["Maximum"]) if newest else None, self._show)

    def failures(self) -> Iterator[ReadinessLine]:
        """S3 publishes failures in the Region of the source."""
        points = self._metric("OperationsFailedReplication", "Sum", self._question.region, FAILURES, 3600)
        failed = int(sum(float(one["Sum"]) for one in points))
        if failed:
            fix = _job(self._question, self._source)
            reason = f"{failed} objects were not replicated in the last {FAILURES.total_seconds() / 3600:.0f} hours"
            yield fails("failures", self._source, reason, fix)
        else:
            yield passes("failures", self._source, "no replication failures in the last 24 hours")

    def _metric(
        self, name: str, statistic: str, region: str, period: timedelta, seconds: int
    ) -> list[Mapping[str, Any]]:
        dimensions = {"SourceBucket": self._source, "DestinationBucket": self._replica, "RuleId": self._rule}
        answer = _answer(
            self._client("cloudwatch", region).get_metric_statistics,
            Namespace="AWS/S3",
            MetricName=name,
            Dimensions=[{"Name": key, "Value": value} for key, value in dimensions.items()],
            StartTime=self._now - period,
            EndTime=self._now,
            Period=seconds,
            Statistics=[statistic],
        )
        return list((answer or {}).get("Datapoints", []))


def _selects_encrypted(rule: Mapping[str, Any]) -> bool:
    criteria = (rule.get("SourceSelectionCriteria") or {}).get("SseKmsEncryptedObjects") or {}
    return bool(criteria.get("Status") == "Enabled")


def _replicated_home(question: ReadinessQuestion, client: Client, pair: HomePair, now: datetime) -> ReadinessLine:
    """EFS states the time of the last synchronization: later changes can be missing in the replica."""
    second = question.recovery.region
    answer = _answer(client("efs", second).describe_replication_configurations, FileSystemId=pair.replica)
    replication = replication_of(answer or {}, pair.source)
    if replication is None:
        return fails("homes", pair.source, f"is not replicated to {pair.replica}")
    target = replication["Destinations"][0]
    if target["Status"] not in ("ENABLED", "ENABLING"):
        return fails("homes", pair.source, f"the replication to {pair.replica} is {target['Status']}")
    if "LastReplicatedTimestamp" not in target:
        return warns("homes", pair.source, f"the first replication to {pair.replica} has not finished")
    age = (now - target["LastReplicatedTimestamp"]).total_seconds()
    show = f"aws efs describe-replication-configurations --file-system-id {pair.replica} --region {second}"
    reason = f"the replica {pair.replica} is {age / 60:.0f} minutes behind"
    if age > question.rpo_minutes * 60:
        return fails("homes", pair.source, f"{reason}, but recovery.rpo_minutes is {question.rpo_minutes}", show)
    if age > HOME_LAG.total_seconds():
        minutes = HOME_LAG.total_seconds() / 60
        return warns(
            "homes", pair.source, f"{reason}, more than the {minutes:.0f} minutes that EFS is designed for", show
        )
    return passes("homes", pair.source, reason)


def _key(client: Client, name: str, region: str) -> Iterator[ReadinessLine]:
    answer = _answer(client("kms", region).describe_key, KeyId=name)
    state = str(answer["KeyMetadata"].get("KeyState")) if answer else None
    cancel = f"aws kms cancel-key-deletion --key-id {quote(name)} --region {region} && "
    enable = f"aws kms enable-key --key-id {quote(name)} --region {region}"
    yield key(name, state, cancel + enable if state == "PendingDeletion" else enable)


def _role(client: Client, name: str, region: str) -> Iterator[ReadinessLine]:
    answer = _answer(client("iam", region).get_role, RoleName=name)
    yield role(name, "the replication role does not exist", exists=answer is not None)


def _bundle(
    question: ReadinessQuestion, client: Client, bucket: str, replica: str, name: str
) -> Iterator[ReadinessLine]:
    s3 = client("s3", question.recovery.region)
    exists = _answer(s3.head_object, Bucket=replica, Key=name) is not None
    yield bundle(name, bucket, replica, _job(question, bucket), exists=exists)


def _job(question: ReadinessQuestion, bucket: str) -> str:
    """Return the command that replicates existing objects of a bucket."""
    return existing_objects(question.region).command.replace("BUCKET", bucket)


def _objects(question: ReadinessQuestion) -> Iterator[tuple[str, str]]:
    """Return the bucket and key of each bundle that the stack uploaded."""
    for resource in question.of_type(OBJECT):
        outputs = resource.get("outputs") or {}
        yield str(outputs.get("bucket")), str(outputs.get("key"))


def _region(resource: Resource) -> str:
    return str((resource.get("outputs") or {}).get("region") or "")


def _answer(request: Callable[..., Any], **arguments: Any) -> dict[str, Any] | None:
    """Return the response, or None if the resource does not exist. Raises `Unread` for any other error."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        answer: dict[str, Any] = request(**arguments)
    except ClientError as problem:
        if str(problem.response.get("Error", {}).get("Code")) in MISSING:
            return None
        raise Unread(one_line(problem)) from None
    except BotoCoreError as problem:
        raise Unread(one_line(problem)) from None
    return answer
