"""Lists the objects of S3 buckets for the newest checkpoint (ListObjectsV2). A replica has the time at which its source was written
("Why use replication" in doc_source/replication.md of awsdocs/amazon-s3-userguide, retrieved 2026-11-23)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from gpuinfra.clouds.aws.region.failover import AwsFailover, Client, ask, client_of
from gpuinfra.clouds.region.checkpoints import CheckpointObject, CheckpointPair, listed_pairs, utc


def connect(
    region: str, second: str, config: Mapping[str, object], resources: Iterable[Mapping[str, Any]]
) -> tuple[CheckpointPair, ...]:
    """Return the buckets in a stack's state and their replicas. Uses the credentials of the environment or of the provider."""
    return pairs_of(client_of(config), region, second, resources)


def pairs_of(
    client: Client, region: str, second: str, resources: Iterable[Mapping[str, Any]]
) -> tuple[CheckpointPair, ...]:
    """Return the buckets in a stack's state and their replicas."""
    pairs = AwsFailover(client, region, second).pairs(resources)
    return listed_pairs(pairs, partial(_objects, client, region), partial(_objects, client, second))


def _objects(client: Client, region: str, bucket: str, prefix: str) -> Iterator[CheckpointObject]:
    more: dict[str, str] = {}
    while True:
        page = ask(partial(client("s3", region).list_objects_v2, Bucket=bucket, Prefix=prefix, **more))
        for entry in page.get("Contents") or []:
            yield CheckpointObject(key=str(entry["Key"]), size=int(entry["Size"]), modified=utc(entry["LastModified"]))
        if not page.get("IsTruncated"):
            return
        more = {"ContinuationToken": page["NextContinuationToken"]}
