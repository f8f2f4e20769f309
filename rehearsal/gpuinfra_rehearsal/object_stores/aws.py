"""Amazon S3, with boto3."""

from __future__ import annotations

import re
from typing import Any

STAND_IN_ACCOUNT = "000000000000"


def connect(region: str) -> S3:
    """Return the object storage of a region."""
    import boto3

    # boto3's default session would keep the credentials of an earlier rehearsal in this process.
    return S3(boto3.session.Session().client("s3", region_name=region))


def pattern(bucket: str) -> str:
    """The name of a bucket contains the ID of the account."""
    return re.escape(bucket).replace(STAND_IN_ACCOUNT, r"\d{12}")


class S3:
    """The objects that a client reaches. `ObjectStore` describes the methods."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def put(self, bucket: str, key: str, content: bytes) -> None:
        self._client.put_object(Bucket=bucket, Key=key, Body=content)

    def keys(self, bucket: str, prefix: str) -> set[str]:
        listed = self._client.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
        return {str(one["Key"]) for one in listed}

    def get(self, bucket: str, key: str) -> bytes:
        content: bytes = self._client.get_object(Bucket=bucket, Key=key)["Body"].read()
        return content
