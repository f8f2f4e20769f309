"""The objects of buckets on AWS (`workload.ObjectStore`)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from gpuinfra.rehearsal.workload import Ask

STAND_IN_ACCOUNT = "000000000000"


def client(region: str) -> Any:
    """Return an S3 client with the credentials in the environment."""
    import boto3

    # boto3's default session would keep the credentials of an earlier rehearsal in this process.
    return boto3.session.Session().client("s3", region_name=region)


class S3Objects:
    """Buckets on AWS. `ObjectStore` describes the methods."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def admit(self, ask: Ask, buckets: Iterable[str]) -> None:
        """Do nothing, because the operator can read and write the buckets of the account."""

    def put(self, bucket: str, key: str, content: bytes) -> None:
        self._client.put_object(Bucket=bucket, Key=key, Body=content)

    def keys(self, bucket: str, prefix: str) -> set[str]:
        return {str(one["Key"]) for one in self._client.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])}  # fmt: skip

    def get(self, bucket: str, key: str) -> bytes:
        content: bytes = self._client.get_object(Bucket=bucket, Key=key)["Body"].read()
        return content

    def is_replica(self, bucket: str, replica: str) -> bool:
        pattern = re.escape(replica).replace(STAND_IN_ACCOUNT, r"\d{12}")
        return re.fullmatch(pattern, bucket) is not None
