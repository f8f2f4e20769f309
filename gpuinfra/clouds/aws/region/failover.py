"""Failover requests: stop Auto Scaling groups and the replication of buckets, and import a replica into a file system.

Requests and responses: the API references of EC2 Auto Scaling (UpdateAutoScalingGroup, SuspendProcesses, DescribeAutoScalingGroups),
S3 (ListObjectVersions, GetBucketReplication, PutBucketReplication, HeadBucket) and FSx (CreateDataRepositoryTask, DescribeDataRepositoryTasks),
and the service models of botocore. A replica has the version ID of its source ("Why use replication" in doc_source/replication.md of
awsdocs/amazon-s3-userguide, retrieved 2026-11-23). `replica_policies.py` has the policies that make a replica refuse the replication.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby
from typing import Any

from gpuinfra.base.errors import DeploymentError
from gpuinfra.base.safe_text import one_line
from gpuinfra.base.words import counted
from gpuinfra.clouds.aws import credentials
from gpuinfra.clouds.aws.region import replica_policies
from gpuinfra.clouds.aws.region.homes import HomeRequests
from gpuinfra.clouds.aws.region.recovery import REPLICATION as REPLICATION_FACTS
from gpuinfra.clouds.aws.regions import partition
from gpuinfra.clouds.region.failover import BucketPair, Resource, Unreachable, not_copied
from gpuinfra.clouds.region.reach import Busy, persistent

GROUP = "aws:autoscaling/group:Group"
REPLICATION = "aws:s3/bucketReplicationConfig:BucketReplicationConfig"
LINK = "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation"
IMPORT = "IMPORT_METADATA_FROM_REPOSITORY"
MARK = "gpuinfra-copy-of"
"""Metadata key of an object that a failback copied, with the version ID in the replica."""
THREADS = 8
NO_KEY, NO_POLICY = frozenset({"404", "NoSuchKey", "NoSuchVersion"}), frozenset({"NoSuchBucketPolicy"})
NO_REPLICATION = frozenset({"ReplicationConfigurationNotFoundError", "NoSuchBucket"})
CONNECT_S, READ_S = 10, 30
BUSY = (408, 429)
THROTTLED = frozenset({
    "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottledException", "TooManyRequestsException",
    "ProvisionedThroughputExceededException", "RequestLimitExceeded", "BandwidthLimitExceeded", "RequestThrottled", "SlowDown",
    "PriorRequestNotComplete", "EC2ThrottledException",
})  # fmt: skip
"""Error codes of throttled requests, whose status is not always 503
(`ThrottledRetryableChecker` in `retries/standard.py` of botocore 1.44.5)."""

Client = Callable[[str, str], Any]
"""Returns the client of a service in a Region."""


def connect(region: str, second: str, config: Mapping[str, object]) -> AwsFailover:
    """Use the credentials from the environment, or those that the settings of the provider select."""
    return AwsFailover(client_of(config), region, second)


def client_of(config: Mapping[str, object], read_s: int = READ_S) -> Client:
    """Return the clients with these credentials. A request fails if its response takes longer than `read_s`."""
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    limits = Config(
        connect_timeout=CONNECT_S, read_timeout=read_s, retries={"total_max_attempts": 1}
    )  # `ask` repeats requests.
    try:
        session = credentials.session(config)
    except BotoCoreError as problem:
        raise DeploymentError(f"{one_line(problem)}; run `aws configure list-profiles`") from None

    def client(service: str, where: str) -> Any:
        return session.client(service, region_name=where, config=limits)  # pyright: ignore[reportCallIssue, reportArgumentType]

    return client


class AwsFailover(HomeRequests):
    """The requests for one failover. `gpuinfra.clouds.region.failover.Failover` describes the methods."""

    global_replication = False

    def __init__(self, client: Client, region: str, second: str) -> None:
        super().__init__(client, ask, region, second)
        self._client, self._first, self._second = client, region, second

    def groups(self, resources: Iterable[Resource]) -> tuple[str, ...]:
        return tuple(str(one.get("id")) for one in resources if one.get("type") == GROUP)

    def pairs(self, resources: Iterable[Resource]) -> tuple[BucketPair, ...]:
        return tuple(_pairs(resources))

    def file_systems(self, resources: Iterable[Resource]) -> tuple[str, ...]:
        links = [one.get("outputs") or {} for one in resources if one.get("type") == LINK]
        return tuple(dict.fromkeys(str(one.get("fileSystemId")) for one in links))

    def answers(self, pair: BucketPair) -> None:
        ask(self._client("s3", self._second).head_bucket, Bucket=pair.replica)

    def services(self, resources: Iterable[Resource]) -> dict[str, Callable[[], object]]:
        services_of: dict[str, Callable[[], object]] = {}
        for group in self.groups(resources):
            client = self._client("autoscaling", self._first)
            services_of["Auto Scaling"] = partial(
                _sent, client.describe_auto_scaling_groups, AutoScalingGroupNames=[group]
            )
        for pair in self.pairs(resources):
            services_of["S3"] = partial(_sent, self._client("s3", self._first).head_bucket, Bucket=pair.source)
        return services_of

    def stop_group(self, group: str) -> None:
        client = self._client("autoscaling", self._first)
        if self._described(group) is None:
            return
        # Scheduled actions and instance refreshes set a size again, but they cannot launch instances.
        ask(client.suspend_processes, AutoScalingGroupName=group, ScalingProcesses=["Launch"])
        ask(client.update_auto_scaling_group, AutoScalingGroupName=group, MinSize=0, MaxSize=0, DesiredCapacity=0)

    def running(self, group: str) -> int:
        return len((self._described(group) or {}).get("Instances") or [])

    def _described(self, group: str) -> Mapping[str, Any] | None:
        client = self._client("autoscaling", self._first)
        groups = ask(client.describe_auto_scaling_groups, AutoScalingGroupNames=[group])["AutoScalingGroups"]
        return groups[0] if groups else None

    def not_replicated(self, pair: BucketPair) -> list[str]:
        held: dict[str, dict[str, int]] = {}
        """Key -> version -> size of the objects in the replica."""
        for key, entry in self._versions(self._second, pair.replica):
            held.setdefault(key, {})[entry["VersionId"]] = int(entry.get("Size", -1))
        missing: list[str] = []
        like: list[tuple[str, str]] = []
        """Keys and versions that can be copies of a version in the replica."""
        for key, versions in groupby(self._versions(self._first, pair.source), key=lambda one: one[0]):
            newest = next((one for _, one in versions if one.get("IsLatest")), None)
            # S3 does not document whether a replicated delete marker keeps its version ID. If the marker is missing, the replica keeps a file that was deleted.
            if newest is None or "Size" not in newest or newest["VersionId"] in held.get(key, ()):
                continue
            if int(newest["Size"]) in held.get(key, {}).values():
                like.append((key, newest["VersionId"]))
            else:
                missing.append(key)
        copies = self._copies(pair, like)
        missing = sorted(
            [*missing, *(key for key, version in like if copies[key, version] not in held[key])], key=str.encode
        )
        if missing and replica_policies.denies(self._bucket_policy(pair)):
            # A resumed failover, after the first region did not respond.
            raise not_copied(pair.source, missing, "the policy of the replica denies the replication")
        return missing

    def _versions(self, region: str, bucket: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the key and version of each object and each delete marker in a bucket, in key order."""
        client, more = self._client("s3", region), {}
        while True:
            page = ask(client.list_object_versions, Bucket=bucket, **more)
            versions = [(str(one["Key"]), one) for one in (*page.get("Versions", ()), *page.get("DeleteMarkers", ()))]
            yield from sorted(versions, key=lambda one: one[0].encode())
            if not page.get("IsTruncated"):
                return
            # S3 rejects an empty marker.
            markers = {"KeyMarker": page.get("NextKeyMarker"), "VersionIdMarker": page.get("NextVersionIdMarker")}
            more = {name: value for name, value in markers.items() if value}

    def stop_replication(self, pair: BucketPair) -> None:
        self._set_replication(pair, "Disabled")

    def _set_replication(self, pair: BucketPair, status: str) -> None:
        client = self._client("s3", self._first)
        answer = ask(client.get_bucket_replication, NO_REPLICATION, Bucket=pair.source)
        if not answer:
            return
        configuration = answer["ReplicationConfiguration"]
        rules = [{**rule, "Status": status} for rule in configuration["Rules"]]
        if rules != configuration["Rules"]:
            ask(client.put_bucket_replication, Bucket=pair.source, ReplicationConfiguration={**configuration, "Rules": rules})  # fmt: skip

    def _copies(self, pair: BucketPair, versions: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """Return the version in the replica that each version of the first Region is a copy of. Empty if a failback did not copy it."""
        client = self._client("s3", self._first)

        def marked(key: str, version: str) -> str:
            head = ask(client.head_object, NO_KEY, Bucket=pair.source, Key=key, VersionId=version)
            return str(head.get("Metadata", {}).get(MARK, ""))

        rows = list(versions)
        with ThreadPoolExecutor(THREADS) as pool:
            return dict(zip(rows, pool.map(lambda one: marked(*one), rows), strict=True))

    def detach_replica(self, pair: BucketPair) -> None:
        # The key first: S3 can refuse the second change while us-east-1 does not respond.
        if pair.key:
            self._set_key_policy(pair, replica_policies.of_key(pair.writer))
        policy = self._bucket_policy(pair)
        denying = replica_policies.denying(policy, replica_policies.of_replica(pair.replica, partition(self._second)))
        if not replica_policies.same(policy, denying):
            ask(self._client("s3", self._second).put_bucket_policy, Bucket=pair.replica, Policy=denying)

    def _bucket_policy(self, pair: BucketPair) -> str | None:
        answer = ask(self._client("s3", self._second).get_bucket_policy, NO_POLICY, Bucket=pair.replica)
        return str(answer["Policy"]) if answer else None

    def _set_key_policy(self, pair: BucketPair, statement: replica_policies.Statement | None) -> None:
        """Add the statement of a failover to the policy of a replica's key, or remove it."""
        client = self._client("kms", self._second)
        policy = str(ask(client.get_key_policy, KeyId=pair.key, PolicyName="default")["Policy"])
        wanted = replica_policies.denying(policy, statement) if statement else replica_policies.restored(policy)
        if wanted is not None and not replica_policies.same(policy, wanted):
            ask(client.put_key_policy, KeyId=pair.key, PolicyName="default", Policy=wanted)

    def beyond_reach(self, resources: Iterable[Resource]) -> tuple[str, ...]:
        held = [*resources]
        parts = []
        if groups := self.groups(held):
            parts.append(
                f"the nodes of {', '.join(groups)}: until Auto Scaling responds, they run, are billed, and write in {self._first}"
            )
        if self._first in REPLICATION_FACTS.control_regions and self.pairs(held):
            parts.append(
                f"the replication of deletions, if S3 refuses to change the policies of the replicas, for which it requires {self._first}; the policy of "
                f"their key in {self._second} stops the replication of objects"
            )
        return tuple(parts)

    def start_import(self, file_system: str) -> str:
        client = self._client("fsx", self._second)
        filters = [{"Name": "file-system-id", "Values": [file_system]}, {"Name": "task-lifecycle", "Values": ["PENDING", "EXECUTING"]}]  # fmt: skip
        for task in ask(client.describe_data_repository_tasks, Filters=filters)["DataRepositoryTasks"]:
            if task["Type"] == IMPORT:
                return str(task["TaskId"])
        made = ask(client.create_data_repository_task, Type=IMPORT, FileSystemId=file_system, Report={"Enabled": False})  # fmt: skip
        return str(made["DataRepositoryTask"]["TaskId"])

    def import_ended(self, task: str) -> bool:
        client = self._client("fsx", self._second)
        (task_record,) = ask(client.describe_data_repository_tasks, TaskIds=[task])["DataRepositoryTasks"]
        failed = int((task_record.get("Status") or {}).get("FailedCount") or 0)
        if task_record["Lifecycle"] in ("FAILED", "CANCELED") or (task_record["Lifecycle"] == "SUCCEEDED" and failed):
            reason = (task_record.get("FailureDetails") or {}).get("Message") or f"{counted(failed, 'object')} failed"
            show = f"aws fsx describe-data-repository-tasks --task-ids {task} --region {self._second}"
            raise DeploymentError(f"the import {task} is {task_record['Lifecycle']}: {one_line(reason)}; see `{show}`")
        return bool(task_record["Lifecycle"] == "SUCCEEDED")


def _pairs(resources: Iterable[Resource]) -> Iterator[BucketPair]:
    for resource in resources:
        if resource.get("type") == REPLICATION:
            outputs = resource.get("outputs") or {}
            target = (outputs.get("rules") or [{}])[0].get("destination") or {}
            replica, source = str(target.get("bucket") or "").rpartition(":")[2], str(outputs.get("bucket"))
            key = str((target.get("encryptionConfiguration") or {}).get("replicaKmsKeyId") or "")
            yield BucketPair(source=source, replica=replica, writer=str(outputs.get("role") or ""), key=key)


def ask(request: Callable[..., Any], missing: frozenset[str] = frozenset(), **arguments: Any) -> dict[str, Any]:
    """Send a request, and repeat it while the service is busy. Returns an empty response for an error code in `missing`."""
    return persistent(partial(_sent, request, missing, **arguments))


def _sent(request: Callable[..., Any], missing: frozenset[str] = frozenset(), **arguments: Any) -> dict[str, Any]:
    """Send a request once. Raises `Busy`, `Unreachable` and `DeploymentError`."""
    from botocore.exceptions import (  # fmt: skip
        BotoCoreError,
        ClientError,
        ConnectionError,
        HTTPClientError,
        ProxyConnectionError,
        SSLError,
    )

    try:
        answer: dict[str, Any] = request(**arguments)
    except ClientError as problem:
        code = str(problem.response.get("Error", {}).get("Code"))
        if code in missing:
            return {}
        status = int(problem.response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0)
        if status >= 500 or status in BUSY or code in THROTTLED:
            raise Busy(one_line(problem)) from None
        raise DeploymentError(one_line(problem)) from None
    except (SSLError, ProxyConnectionError) as problem:
        raise DeploymentError(f"{one_line(problem)}; fix this machine's network connection") from None
    except (ConnectionError, HTTPClientError) as problem:
        raise Unreachable(one_line(problem)) from None
    except BotoCoreError as problem:
        raise DeploymentError(f"{one_line(problem)}; log in to AWS, and run the command again") from None
    return answer
