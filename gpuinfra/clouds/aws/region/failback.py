"""Failback requests: launch the instances of the first Region, and copy newer objects from a replica to its bucket.

S3 copies the objects; the data does not pass through this machine. A copy has a new version ID, so its metadata contains the version ID in the
replica. A repeated comparison therefore recognizes the copy, on every machine.

S3 checks the condition If-Match or If-None-Match when it writes an object, so a version that was written after the comparison is never replaced
as the current version (CopyObject and CompleteMultipartUpload in the service model of botocore 1.44.5;
https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html, retrieved 2026-11-26).
In a versioned bucket, earlier versions remain as noncurrent versions.

CopyObject accepts up to 5 GB, and UploadPartCopy accepts larger objects (https://docs.aws.amazon.com/AmazonS3/latest/API/API_CopyObject.html, retrieved
2026-11-26). This module copies objects larger than 128 MiB in parts, so that each request is short.
The bucket deletes the parts of an interrupted copy after 7 days.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from shlex import join
from typing import Any, TypeVar
from urllib.parse import urlencode

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.aws.region import replica_policies
from gpuinfra.clouds.aws.region.failover import MARK, THREADS, AwsFailover, ask, client_of
from gpuinfra.clouds.region.active import OWN_KEYS
from gpuinfra.clouds.region.failover import BucketPair, Comparison, Copy, ObjectConflict, changed_in_both

PART = 128 * 2**20
MOST_PARTS = 10_000
"""Maximum number of parts of an object (https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html, retrieved 2026-11-26)."""
READ_S = 300
KEPT = ("CacheControl", "ContentDisposition", "ContentEncoding", "ContentLanguage", "ContentType", "WebsiteRedirectLocation")  # fmt: skip
CHANGED = frozenset({"PreconditionFailed", "ConditionalRequestConflict"})

Version = Mapping[str, Any]
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def connect(region: str, second: str, config: Mapping[str, object]) -> AwsFailback:
    """Use the credentials from the environment, or those that the settings of the provider select."""
    return AwsFailback(client_of(config, READ_S), region, second)


class AwsFailback(AwsFailover):
    """The requests for one failback. `gpuinfra.clouds.region.failover.Failback` describes the methods."""

    def start_group(self, group: str, count: int) -> None:
        """The next deployment restores the maximum size, which can be larger than the number of nodes."""
        if (described := self._described(group)) is not None:
            client, largest = self._client("autoscaling", self._first), max(count, int(described["MaxSize"]))
            ask(client.update_auto_scaling_group, AutoScalingGroupName=group, MaxSize=largest, DesiredCapacity=count)
            ask(client.resume_processes, AutoScalingGroupName=group, ScalingProcesses=["Launch"])

    def start_command(self, group: str) -> str:
        return join(
            [
                "aws",
                "autoscaling",
                "resume-processes",
                "--auto-scaling-group-name",
                group,
                "--scaling-processes",
                "Launch",
                "--region",
                self._second,
            ]
        )

    def attach_replica(self, pair: BucketPair) -> None:
        policy = self._bucket_policy(pair)
        if replica_policies.denies(policy):
            client, wanted = self._client("s3", self._second), replica_policies.restored(policy)
            if wanted is None:
                ask(client.delete_bucket_policy, Bucket=pair.replica)
            else:
                ask(client.put_bucket_policy, Bucket=pair.replica, Policy=wanted)
        if pair.key:
            self._set_key_policy(pair, None)

    def start_replication(self, pair: BucketPair) -> None:
        self._set_replication(pair, "Enabled")

    def compare(self, pair: BucketPair) -> Comparison:
        first = {key: versions for key, versions in self._by_key(self._first, pair.source)}
        copies: list[Copy] = []
        conflicts: list[ObjectConflict] = []
        deleted = 0
        for key, there in self._by_key(self._second, pair.replica):
            here, newest = first.get(key, []), _newest(there)
            if newest is None or key in OWN_KEYS:
                continue
            if not _is_object(newest):
                current = _newest(here)
                deleted += current is not None and _is_object(current)
                continue
            difference = self._difference(pair, key, here, there, newest)
            if isinstance(difference, Copy):
                copies.append(difference)
            elif difference is not None:
                conflicts.append(difference)
        return Comparison(copies=tuple(copies), conflicts=tuple(conflicts), deleted=deleted)

    def _by_key(self, region: str, bucket: str) -> Iterable[tuple[str, list[Version]]]:
        for key, versions in groupby(self._versions(region, bucket), key=lambda one: one[0]):
            yield key, [one for _, one in versions]

    def _difference(
        self, pair: BucketPair, key: str, here: list[Version], there: list[Version], newest: Version
    ) -> Copy | ObjectConflict | None:
        """Compare the newest versions of an object. `newest` is the one in the replica."""
        current, ids = _newest(here), {one["VersionId"] for one in here}
        etag = str(current["ETag"]) if current is not None and _is_object(current) else None
        copy = _copy_of(key, newest, etag)
        if current is None:
            return copy
        if etag is None and newest["VersionId"] in ids:
            return None  # The object was deleted in the first Region after S3 replicated it.
        copied, version, when = {one["VersionId"] for one in there}, current["VersionId"], current["LastModified"]
        if version == newest["VersionId"]:
            # S3 can replicate a version after the second Region wrote its own version.
            late = [one for one in there if _is_object(one) and one["VersionId"] not in ids and one["LastModified"] > when]  # fmt: skip
            return changed_in_both(key, _copy_of(key, late[0], etag)) if late else None
        if version in copied and when > newest["LastModified"]:
            return changed_in_both(key, None)
        if version not in copied and etag is not None:
            version = self._copied_version(pair, key, version)
        if version == newest["VersionId"]:
            return None
        if newest["VersionId"] in ids:
            newer = ObjectConflict(key=key, reason="is newer in the first region", copy=None)
            return None if version in copied else newer
        if version in copied:
            return copy
        return changed_in_both(key, copy if newest["LastModified"] > when else None)

    def _copied_version(self, pair: BucketPair, key: str, version: str) -> str:
        """Return the version in the replica that an earlier failback copied, or the version itself."""
        client = self._client("s3", self._first)
        head = ask(client.head_object, Bucket=pair.source, Key=key, VersionId=version)
        return str(head.get("Metadata", {}).get(MARK, version))

    def copy(self, pair: BucketPair, copies: Iterable[Copy]) -> None:
        # Creating a client is not thread-safe.
        client, there = self._client("s3", self._first), self._client("s3", self._second)

        def copy(one: Copy) -> None:
            if not _copy(client, there, pair, one):
                raise DeploymentError(
                    f"{one.key} in {pair.source} changed after the comparison and was not replaced; stop the programs that write to the bucket"
                )

        _each(copy, copies)

    def replicate_again(self, pair: BucketPair) -> int:
        """Copy each object to itself. S3 accepts this only with other metadata (CopyObject in the API reference of S3), which is the mark."""
        missing, client = set(self.not_replicated(pair)), self._client("s3", self._first)
        newest = (
            (key, _newest(versions)) for key, versions in self._by_key(self._first, pair.source) if key in missing
        )
        copies = [_copy_of(key, one, str(one["ETag"])) for key, one in newest if one is not None and _is_object(one)]
        _each(lambda one: _copy(client, client, BucketPair(source=pair.source, replica=pair.source), one), copies)
        return len(copies)


def _each(copy: Callable[[Copy], object], copies: Iterable[Copy]) -> None:
    """Copy small objects in parallel. The parts of a large one are copied in parallel."""
    rows = list(copies)
    together(copy, [one for one in rows if one.size <= PART])
    for row in rows:
        if row.size > PART:
            copy(row)


def _copy(client: Any, there: Any, pair: BucketPair, copy: Copy) -> bool:
    """Copy an object. Returns whether the object in the first Region was still the compared one."""
    source: dict[str, Any] = {"Bucket": pair.replica, "Key": copy.key, "VersionId": copy.version}
    target: dict[str, Any] = {"Bucket": pair.source, "Key": copy.key}
    # FSx stores owners and modes in the metadata.
    head = ask(there.head_object, **source)
    values = {name: head[name] for name in KEPT if name in head}
    values["Metadata"] = {**head.get("Metadata", {}), MARK: copy.version}
    if head.get("TagCount"):
        tags = ask(there.get_object_tagging, **source)["TagSet"]
        values["Tagging"] = urlencode([(tag["Key"], tag["Value"]) for tag in tags])
    guard = {"IfNoneMatch": "*"} if copy.replaces is None else {"IfMatch": copy.replaces}
    if copy.size <= PART:
        directives = {"MetadataDirective": "REPLACE", "TaggingDirective": "REPLACE"}
        made = ask(client.copy_object, CHANGED, **target, CopySource=source, **directives, **values, **guard)
    else:
        upload = {**target, "UploadId": ask(client.create_multipart_upload, **target, **values)["UploadId"]}
        size = max(PART, -(-copy.size // MOST_PARTS))

        def part(number: int) -> dict[str, Any]:
            last = min(number * size, copy.size) - 1
            span = f"bytes={(number - 1) * size}-{last}"
            done = ask(client.upload_part_copy, **upload, CopySource=source, PartNumber=number, CopySourceRange=span)  # fmt: skip
            return {"PartNumber": number, "ETag": done["CopyPartResult"]["ETag"]}

        parts = together(part, range(1, -(-copy.size // size) + 1))
        made = ask(client.complete_multipart_upload, CHANGED, **upload, MultipartUpload={"Parts": parts}, **guard)
    return bool(made)


def _copy_of(key: str, version: Version, replaces: str | None) -> Copy:
    return Copy(key=key, version=version["VersionId"], size=int(version["Size"]), replaces=replaces)


def _newest(versions: Iterable[Version]) -> Version | None:
    return next((one for one in versions if one.get("IsLatest")), None)


def _is_object(version: Version) -> bool:
    """Return whether a version is an object. Delete markers have no size."""
    return "Size" in version


def together(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """Return the results of requests that are sent in parallel."""
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(work, items))
