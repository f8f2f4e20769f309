"""Lists the objects of Cloud Storage buckets for the newest checkpoint (objects.list). A replica has the time of the copy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from gpuinfra.clouds.gcp.api import Api
from gpuinfra.clouds.gcp.region.failover import GcpFailover
from gpuinfra.clouds.region.checkpoints import CheckpointObject, CheckpointPair, listed_pairs, utc


def connect(
    region: str, second: str, config: Mapping[str, object], resources: Iterable[Mapping[str, Any]]
) -> tuple[CheckpointPair, ...]:
    """Return the buckets in a stack's state and their replicas. Uses the credentials from the environment."""
    cloud = GcpFailover(Api())
    return listed_pairs(cloud.pairs(resources), partial(objects_in, cloud), partial(objects_in, cloud))


def objects_in(cloud: GcpFailover, bucket: str, prefix: str) -> Iterator[CheckpointObject]:
    """Yield the objects of a bucket whose names begin with a text."""
    for entry in cloud.listed(bucket, **({"prefix": prefix} if prefix else {})):
        written = datetime.fromisoformat(str(entry["timeCreated"]).replace("Z", "+00:00"))
        yield CheckpointObject(key=str(entry["name"]), size=int(entry["size"]), modified=utc(written))
