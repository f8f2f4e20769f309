"""The record of the active region in an S3 bucket of the second Region.

S3 evaluates If-None-Match and If-Match of PutObject when it writes the object (https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html,
retrieved 2026-11-26). A concurrent write can also be refused with 409 ConditionalRequestConflict.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from gpuinfra.clouds.aws.region.failback import CHANGED
from gpuinfra.clouds.aws.region.failover import Client, ask, client_of
from gpuinfra.clouds.aws.region.recovery import DIMENSION, METRIC, NAMESPACE
from gpuinfra.clouds.region.active import KEY, LONGEST, RecordChanged, StoredRecord

MISSING = frozenset({"NoSuchKey"})


def connect(place: str, second: str, config: Mapping[str, object], key: str = KEY) -> S3Record:
    """Use the credentials from the environment, or those that the settings of the provider select. `place` is the name of the bucket."""
    return S3Record(client_of(config), place, second, key)


def report_ready(place: str, second: str, config: Mapping[str, object]) -> None:
    """Add a value to the metric that the alarm of the second Region evaluates (API reference of CloudWatch, PutMetricData, retrieved 2026-11-29)."""
    value = {"MetricName": METRIC, "Dimensions": [{"Name": DIMENSION, "Value": place}], "Value": 1.0}
    ask(client_of(config)("cloudwatch", second).put_metric_data, Namespace=NAMESPACE, MetricData=[value])


class S3Record:
    """The requests. `gpuinfra.clouds.region.active.RecordStore` describes the methods."""

    def __init__(self, client: Client, bucket: str, region: str, key: str = KEY) -> None:
        self._client, self._bucket, self._region, self._key = client, bucket, region, key

    def read(self) -> StoredRecord | None:
        client = self._client("s3", self._region)
        answer = ask(client.get_object, MISSING, Bucket=self._bucket, Key=self._key)
        if not answer:
            return None
        with answer["Body"] as body:
            return StoredRecord(text=bytes(body.read(LONGEST + 1)), tag=str(answer["ETag"]))

    def write(self, text: bytes, tag: str | None) -> str:
        put = partial(self._client("s3", self._region).put_object, Bucket=self._bucket, Key=self._key, Body=text)
        guard = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
        made = ask(put, CHANGED | MISSING, ContentType="application/json", **guard)
        if not made:
            raise RecordChanged
        return str(made["ETag"])
