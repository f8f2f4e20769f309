"""Lists the blobs of containers for the newest checkpoint. The accounts are private, so this requires a machine that reaches their private endpoints,
and a role that can read blobs. A replica has the time of the copy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from gpuinfra.clouds.azure.region.failover import TIMEOUT_S, AzureFailover
from gpuinfra.clouds.azure.rest import Rest
from gpuinfra.clouds.region.checkpoints import CheckpointObject, CheckpointPair, listed_pairs


def connect(
    region: str, second: str, config: Mapping[str, object], resources: Iterable[Mapping[str, Any]]
) -> tuple[CheckpointPair, ...]:
    """Return the containers in a stack's state and their replicas. Uses the credentials from the environment."""
    cloud = AzureFailover(Rest(timeout_s=TIMEOUT_S), region, second)
    objects = partial(listing, cloud)
    return listed_pairs(cloud.pairs(resources), objects, objects, private=True)


def listing(cloud: AzureFailover, container: str, prefix: str) -> Iterator[CheckpointObject]:
    """Yield the blobs of a container whose names begin with a text."""
    for blob in cloud.listed(container, prefix):
        yield CheckpointObject(key=blob.name, size=blob.size, modified=blob.modified)
