"""Copies of machine images in the stand-in cloud."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from gpuinfra_rehearsal.cloud.aws.http import offers
from gpuinfra_rehearsal.cloud.aws.images import COPY
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected

from .conftest import Client

IMAGE, FIRST, SECOND = "ami-0123456789abcdef0", "us-east-1", "us-west-2"
INPUTS = {"sourceAmiId": IMAGE, "sourceAmiRegion": FIRST, "encrypted": True, "region": SECOND}


def key(region: str) -> str:
    """The ARN of a key in a Region."""
    return f"arn:aws:kms:{region}:000000000000:key/1"


def described(cloud: Cloud, image: str, region: str) -> dict[str, Any]:
    """The only image of a response of `DescribeImages`."""
    (found,) = offers.describe_images(cloud, [image], {}, region)["imagesSet"]
    return dict(found)


def test_a_copy_exists_in_its_region_only(cloud: Cloud, aws: Client) -> None:
    """A copy has its own ID and the name of its source, which determines its content. It exists in its Region until it is deregistered."""
    made = aws.create(COPY, {**INPUTS, "kmsKeyId": key(SECOND)}, "copy")
    id, outputs = made.id, made.outputs
    assert id.startswith("ami-")
    assert id != IMAGE
    assert outputs["region"] == SECOND
    assert described(cloud, id, SECOND)["name"] == IMAGE
    with pytest.raises(ApiRejected, match="does not exist"):
        described(cloud, id, FIRST)
    found = cloud.store.find(COPY, id, SECOND)
    assert found is not None
    cloud.store.remove(found)
    with pytest.raises(ApiRejected, match="does not exist"):
        described(cloud, id, SECOND)


def test_a_copy_of_an_image_that_does_not_exist_is_refused(aws: Client) -> None:
    """EC2 looks for the source in its Region."""
    with pytest.raises(grpc.RpcError, match=r"InvalidAMIID\.NotFound"):
        aws.create(COPY, {**INPUTS, "sourceAmiId": "ami-00000000000000bad"}, "copy")


def test_a_copy_with_a_key_of_another_region_fails(aws: Client) -> None:
    """EC2 accepts the request, and the copy fails while the provider waits for it. A key that is no ARN is refused by the provider."""
    with pytest.raises(grpc.RpcError, match="unexpected state 'failed'"):
        aws.create(COPY, {**INPUTS, "kmsKeyId": key(FIRST)}, "copy")
    with pytest.raises(AssertionError, match="invalid ARN"):
        aws.create(COPY, {**INPUTS, "kmsKeyId": "alias/data"}, "other")
