"""The wait for the automatic export of FSx for Lustre. botocore's Stubber validates requests and responses by the service models."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.aws.region import exports as aws
from gpuinfra.clouds.aws.region.failover import LINK
from gpuinfra.clouds.cloud import cloud_of

START = datetime(2026, 11, 29, 10, 0, tzinfo=UTC)
FILE_SYSTEM = "fs-0123456789abcdef0"


def minutes(number: float) -> datetime:
    """A time after the start of the export."""
    return START + timedelta(minutes=number)


def ended(at: float, points: Sequence[tuple[float, float]] | str | None) -> bool:
    """Whether the export has ended at a minute, given the minutes and the ages that CloudWatch has. None: CloudWatch is not asked."""
    client: Any = boto3.client("cloudwatch", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    now = [START]
    with Stubber(client) as stubber:
        dimensions = [{"Name": "FileSystemId", "Value": FILE_SYSTEM}, {"Name": "Publisher", "Value": "AutoExport"}]
        expected = {
            "Namespace": "AWS/FSx", "MetricName": "AgeOfOldestQueuedMessage", "Dimensions": dimensions, "StartTime": minutes(-1),
            "EndTime": minutes(at), "Period": 60, "Statistics": ["Maximum"],
        }  # fmt: skip
        if isinstance(points, str):
            stubber.add_client_error("get_metric_statistics", points, "refused", http_status_code=400)
        elif points is not None:
            found = [{"Timestamp": minutes(when), "Maximum": age, "Unit": "Seconds"} for when, age in points]
            stubber.add_response("get_metric_statistics", {"Label": "x", "Datapoints": found}, expected)
        exports = aws.AwsExports(lambda service, region: client, "us-east-1", lambda: now[0])
        export = exports.start(FILE_SYSTEM)
        assert export is not None
        now[0] = minutes(at)
        result = exports.ended(export)
        stubber.assert_no_pending_responses()
        return result


@pytest.mark.parametrize(
    ("at", "points", "done"),
    [
        (1, None, False),
        (3, [(0, 0.0)], False),
        (3, [(0, 90.0), (2, 0.0)], True),
        (3, [(2, 0.0), (1, 90.0)], True),
        (90, [(88, 0.0), (89, 5087.0)], False),
        (9, [], False),
        (10, [], True),
    ],
    ids=["too early", "older than the last change", "empty", "in any order", "waiting", "no values yet", "no values"],
)
def test_an_export_ends_when_the_queue_is_empty(
    at: float, points: list[tuple[float, float]] | None, done: bool
) -> None:
    """The newest age is 0, and it is younger than the last change by two minutes. A file system without values for ten minutes has no queue."""
    assert ended(at, points) is done


def test_a_refused_request_is_no_empty_queue() -> None:
    """Without the permission, the wait fails."""
    with pytest.raises(DeploymentError, match="AccessDenied"):
        ended(20, "AccessDenied")


def test_only_file_systems_with_automatic_export_are_waited_for() -> None:
    """An association that only imports has no queue of changes. Each file system is listed once."""
    both = {"autoExportPolicy": {"events": ["NEW"]}, "autoImportPolicy": {"events": ["NEW"]}}
    state = [
        {"type": LINK, "outputs": {"fileSystemId": FILE_SYSTEM, "s3": both}},
        {"type": LINK, "outputs": {"fileSystemId": FILE_SYSTEM, "s3": both}},
        {"type": LINK, "outputs": {"fileSystemId": "fs-import", "s3": {"autoImportPolicy": {"events": ["NEW"]}}}},
        {"type": LINK, "outputs": {"fileSystemId": "fs-none", "s3": {"autoExportPolicy": {"events": []}}}},
    ]
    exports = cloud_of("aws").exports("us-east-1", {})
    assert exports is not None
    assert exports.exporting(state) == (FILE_SYSTEM,)
