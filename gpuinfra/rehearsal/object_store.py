"""Returns the objects of a cloud's buckets, which the workload of a drill reads and writes."""

from __future__ import annotations

from gpuinfra.handover.azure_rest import Rest
from gpuinfra.rehearsal.azure_blobs import AzureBlobs
from gpuinfra.rehearsal.s3_objects import S3Objects, client
from gpuinfra.rehearsal.workload import ObjectStore


def object_store(cloud: str, region: str) -> ObjectStore:
    """Return the buckets of a cloud. Reads the credentials from the environment."""
    return AzureBlobs(Rest()) if cloud == "azure" else S3Objects(client(region))
