"""Waits until FSx for Lustre has exported the changed files of a file system.

A data repository association with automatic export writes changes to its bucket in order, so no request starts an export: a task of the type
`EXPORT_TO_REPOSITORY` is possible only while automatic export is disabled. AWS documents that the metric `AgeOfOldestQueuedMessage` is zero when all
changes are written (DeleteFileSystem in the API reference of FSx; metrics and dimensions: https://docs.aws.amazon.com/fsx/latest/LustreGuide/fs-metrics.html,
retrieved 2026-11-29). A measurement of one million files of 10 kB shows why the wait is needed: the queue was empty 85 minutes after the last write,
and the metric then returned to zero (public measurement of 2026-08-08, PERSISTENT_2, us-east-2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from gpuinfra.clouds.aws.region.failover import LINK, Client, ask, client_of
from gpuinfra.clouds.region.exports import Export

NAMESPACE, METRIC, PUBLISHER = "AWS/FSx", "AgeOfOldestQueuedMessage", "AutoExport"
PERIOD = timedelta(minutes=1)
"""FSx sends metrics to CloudWatch every minute."""
SETTLED = timedelta(minutes=2)
"""Age of the export from which a value counts: an earlier value can be older than the last change."""
QUIET = timedelta(minutes=10)
"""Age of the export from which a file system without values has nothing to export. AWS does not document whether an empty queue has values."""


def connect(region: str, config: Mapping[str, object]) -> AwsExports:
    """Use the credentials from the environment, or those that the settings of the provider select."""
    return AwsExports(client_of(config), region)


class AwsExports:
    """The requests to one Region. `gpuinfra.clouds.region.exports.Exports` describes the methods."""

    def __init__(self, client: Client, region: str, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._client, self._region, self._now = client, region, now

    def exporting(self, resources: Iterable[Any]) -> tuple[str, ...]:
        links = [one.get("outputs") or {} for one in resources if one.get("type") == LINK]
        exports = [one for one in links if ((one.get("s3") or {}).get("autoExportPolicy") or {}).get("events")]
        return tuple(dict.fromkeys(str(one.get("fileSystemId")) for one in exports))

    def start(self, file_system: str) -> Export | None:
        return Export(file_system=file_system, mark=self._now().isoformat())

    def ended(self, export: Export) -> bool:
        started, now = datetime.fromisoformat(export.mark), self._now()
        if now < started + SETTLED:
            return False
        answer = ask(
            self._client("cloudwatch", self._region).get_metric_statistics,
            Namespace=NAMESPACE,
            MetricName=METRIC,
            Dimensions=[
                {"Name": "FileSystemId", "Value": export.file_system},
                {"Name": "Publisher", "Value": PUBLISHER},
            ],
            StartTime=started - PERIOD,
            EndTime=now,
            Period=int(PERIOD.total_seconds()),
            Statistics=["Maximum"],
        )
        points = sorted((_time(one["Timestamp"]), float(one["Maximum"])) for one in answer.get("Datapoints") or [])
        if not points:
            return now >= started + QUIET
        at, age = points[-1]
        return at + PERIOD >= started + SETTLED and age == 0


def _time(value: datetime) -> datetime:
    """Return the start of a period. botocore returns it with a time zone."""
    return value if value.tzinfo else value.replace(tzinfo=UTC)
