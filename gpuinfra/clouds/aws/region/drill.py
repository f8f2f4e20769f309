"""Copies a checkpoint from a replica to the bucket of a live drill, in one Region. S3 copies the objects and calculates the SHA-256 of what it writes.

CopyObject accepts up to 5 GB and returns the checksum of the copy for the given `ChecksumAlgorithm`; UploadPartCopy returns that of each part
(`CopyObjectResult` and `CopyPartResult` in the service model of botocore 1.44.5;
https://docs.aws.amazon.com/AmazonS3/latest/API/API_CopyObject.html and
https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity-upload.html, retrieved 2026-11-30).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.aws import resources as rows
from gpuinfra.clouds.aws.region.failback import MOST_PARTS, PART, READ_S, together
from gpuinfra.clouds.aws.region.failover import Client, ask, client_of
from gpuinfra.clouds.region.checkpoints import CheckpointObject
from gpuinfra.clouds.region.drill import CopiedObject

SHA256 = "SHA256"


def connect(second: str, config: Mapping[str, object]) -> AwsDrillCopies:
    """Use the credentials from the environment, or those that the settings of the provider select."""
    return AwsDrillCopies(client_of(config, READ_S), second)


class AwsDrillCopies:
    """The requests for one drill. `gpuinfra.clouds.region.drill.DrillCopies` describes the methods."""

    holders = frozenset({rows.BUCKET.type})

    def __init__(self, client: Client, region: str) -> None:
        self._client, self._region = client, region

    def bucket(self, resources: Iterable[Mapping[str, Any]], component: str) -> str:
        name = rows.BUCKET.logical(component)
        for resource in resources:
            if resource.get("type") == rows.BUCKET.type and str(resource.get("urn")).endswith(f"::{name}"):
                return str(resource["id"])
        raise DeploymentError(f"the state contains no bucket {name}")

    def copy(self, replica: str, bucket: str, objects: Sequence[CheckpointObject]) -> tuple[CopiedObject, ...]:
        client = self._client("s3", self._region)  # Creating a client is not thread-safe.
        small = [one for one in objects if one.size <= PART]
        copies = together(lambda one: _copied(client, replica, bucket, one), small)
        # The parts of a large object are copied in parallel.
        return (*copies, *(_in_parts(client, replica, bucket, one) for one in objects if one.size > PART))


def _copied(client: Any, replica: str, bucket: str, item: CheckpointObject) -> CopiedObject:
    answer = ask(
        client.copy_object, Bucket=bucket, Key=item.key, CopySource={"Bucket": replica, "Key": item.key},
        ChecksumAlgorithm=SHA256, TaggingDirective="REPLACE",
    )  # fmt: skip
    return _object(item, PART, [answer["CopyObjectResult"]])


def _in_parts(client: Any, replica: str, bucket: str, item: CheckpointObject) -> CopiedObject:
    started = ask(client.create_multipart_upload, Bucket=bucket, Key=item.key, ChecksumAlgorithm=SHA256)
    upload: dict[str, Any] = {"Bucket": bucket, "Key": item.key, "UploadId": started["UploadId"]}
    size = max(PART, -(-item.size // MOST_PARTS))

    def part(number: int) -> dict[str, Any]:
        span = f"bytes={(number - 1) * size}-{min(number * size, item.size) - 1}"
        source = {"Bucket": replica, "Key": item.key}
        done = ask(client.upload_part_copy, **upload, CopySource=source, PartNumber=number, CopySourceRange=span)
        made: dict[str, Any] = done["CopyPartResult"]
        return {"PartNumber": number, "ETag": made["ETag"], "ChecksumSHA256": made["ChecksumSHA256"]}

    parts = together(part, range(1, -(-item.size // size) + 1))
    ask(client.complete_multipart_upload, **upload, MultipartUpload={"Parts": parts})
    return _object(item, size, parts)


def _object(item: CheckpointObject, part_bytes: int, parts: Sequence[Mapping[str, Any]]) -> CopiedObject:
    checksums = tuple(base64.b64decode(str(one["ChecksumSHA256"])).hex() for one in parts)
    return CopiedObject(key=item.key, size=item.size, algorithm="sha256", part_bytes=part_bytes, checksums=checksums)
