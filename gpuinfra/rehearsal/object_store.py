"""Returns the objects of a cloud's buckets, which the workload of a drill reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpuinfra.handover.azure_rest import Rest
from gpuinfra.rehearsal.azure_blobs import AzureBlobs
from gpuinfra.rehearsal.s3_objects import S3Objects, client
from gpuinfra.rehearsal.workload import ObjectStore

STORES: Mapping[str, Callable[[str], ObjectStore]] = {
    "aws": lambda region: S3Objects(client(region)),
    "azure": lambda _: AzureBlobs(Rest()),
}
"""Maps a cloud to its buckets in a region."""


def object_store(cloud: str, region: str) -> ObjectStore:
    """Return the buckets of a cloud. Reads the credentials from the environment."""
    return STORES[cloud](region)
