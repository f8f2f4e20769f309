"""The copies of a live drill on AWS. botocore's Stubber validates requests and responses by the service models."""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime
from typing import Any

import pytest

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.aws.region import drill as aws
from gpuinfra.clouds.aws.region.failback import PART
from gpuinfra.clouds.region.checkpoints import CheckpointObject

from .test_failback import Clients

SUM = hashlib.sha256(b"a").digest()
CHECKSUM = base64.b64encode(SUM).decode()
SOURCE = {"Bucket": "replica", "Key": "k"}
TARGET = {"Bucket": "own", "Key": "k"}


def item(size: int) -> CheckpointObject:
    """The object `k`."""
    return CheckpointObject(key="k", size=size, modified=datetime(2026, 11, 30, tzinfo=UTC))


@pytest.fixture
def clients() -> Clients:
    """The clients of the second Region."""
    return Clients()


def test_a_small_object_is_copied_with_the_checksum_of_s3(clients: Clients) -> None:
    """One request copies the object without its tags, and the checksum of the response is that of the copy."""
    asked: dict[str, Any] = {
        **TARGET,
        "CopySource": SOURCE,
        "ChecksumAlgorithm": "SHA256",
        "TaggingDirective": "REPLACE",
    }
    clients.answer("us-west-2", "copy_object", {"CopyObjectResult": {"ChecksumSHA256": CHECKSUM}}, asked)
    (copied,) = aws.AwsDrillCopies(clients, "us-west-2").copy("replica", "own", [item(1)])
    assert (copied.size, copied.checksums) == (1, (SUM.hex(),))
    clients.check()


def test_a_large_object_is_copied_in_parts_with_a_checksum_each(clients: Clients) -> None:
    """The second part is shorter, and the checksums are in the order of the parts."""
    upload = {**TARGET, "UploadId": "u"}
    clients.answer("us-west-2", "create_multipart_upload", {"UploadId": "u"}, {**TARGET, "ChecksumAlgorithm": "SHA256"})
    for _ in range(2):
        clients.answer("us-west-2", "upload_part_copy", {"CopyPartResult": {"ETag": "e", "ChecksumSHA256": CHECKSUM}})
    parts = [{"PartNumber": number, "ETag": "e", "ChecksumSHA256": CHECKSUM} for number in (1, 2)]
    clients.answer(
        "us-west-2", "complete_multipart_upload", {"ETag": "e"}, {**upload, "MultipartUpload": {"Parts": parts}}
    )
    (copied,) = aws.AwsDrillCopies(clients, "us-west-2").copy("replica", "own", [item(PART + 1)])
    assert (copied.part_bytes, copied.checksums) == (PART, (SUM.hex(), SUM.hex()))
    clients.check()


def test_the_bucket_of_a_mount_is_found_in_the_state(clients: Clients) -> None:
    """Its logical name identifies it. A state without it is an error."""
    made = aws.AwsDrillCopies(clients, "us-west-2")
    state = [{"type": "aws:s3/bucket:Bucket", "urn": "urn::t-drill-0-bucket", "id": "own"}]
    assert made.bucket(state, "t-drill-0") == "own"
    with pytest.raises(DeploymentError, match="no bucket t-drill-0-bucket"):
        made.bucket([], "t-drill-0")
