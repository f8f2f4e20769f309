"""Lists the blobs of containers for the newest checkpoint. The accounts are private, so this requires a machine that reaches their private endpoints,
and a role that can read blobs. A replica has the time of the copy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from gpuinfra.clouds.azure.region.failover import TIMEOUT_S, AzureFailover
from gpuinfra.clouds.azure.rest import Rest
from gpuinfra.clouds.region.checkpoints import CheckpointObject, CheckpointPair


def connect(
    region: str, second: str, config: Mapping[str, object], resources: Iterable[Mapping[str, Any]]
) -> tuple[CheckpointPair, ...]:
    """Return the containers in a stack's state and their replicas. Uses the credentials from the environment."""
    return pairs_of(AzureFailover(Rest(timeout_s=TIMEOUT_S), region, second), resources)


def pairs_of(cloud: AzureFailover, resources: Iterable[Mapping[str, Any]]) -> tuple[CheckpointPair, ...]:
    """Return the containers in a stack's state and their replicas."""
    return tuple(
        CheckpointPair(
            replica=pair.replica,
            source=partial(_objects, cloud, pair.source),
            copy=partial(_objects, cloud, pair.replica),
            private=True,
        )
        for pair in cloud.pairs(resources)
    )


def _objects(cloud: AzureFailover, container: str, prefix: str) -> Iterator[CheckpointObject]:
    for blob in cloud.listed(container, prefix):
        yield CheckpointObject(key=blob.name, size=blob.size, modified=blob.modified)
