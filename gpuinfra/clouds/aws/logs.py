"""Reads the logs of the nodes from CloudWatch Logs (FilterLogEvents, https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_FilterLogEvents.html,
retrieved 2026-11-30), which returns the events of all streams in the order of their times. The name of a log stream starts with the instance ID."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from gpuinfra.base.errors import DeploymentError
from gpuinfra.base.json_text import bounded
from gpuinfra.clouds.aws.region.failover import ask, client_of
from gpuinfra.clouds.logs import LogLine, LogQuestion, journal_source, journal_text

JOURNAL, FILE = "journal", "file_"
"""Rest of the name of a stream. The agent appends the path of a file (`generateLogStreamName` in aws/amazon-cloudwatch-agent:
plugins/inputs/logfile/logfile.go)."""
GROUP, COMPONENT = "aws:cloudwatch/logGroup:LogGroup", "gpuinfra:aws:NodeLogs"


def read(question: LogQuestion) -> Iterator[LogLine]:
    """Return the lines, oldest first. The next page is requested when all lines of a page are taken. Raises `DeploymentError` and `Unreachable`."""
    groups = [
        str((one.get("outputs") or {}).get("name"))
        for one in question.resources
        if one.get("type") == GROUP and f"{COMPONENT}$" in str(one.get("urn"))
    ]
    if not groups:
        raise DeploymentError("the state of the stack has no log group for the nodes; run `pulumi up` first")
    client = client_of(question.settings)("logs", question.region)
    asked: dict[str, Any] = {"logGroupName": groups[0], "startTime": int(question.since.timestamp() * 1000)}
    if question.instance_id:
        asked["logStreamNamePrefix"] = f"{question.instance_id}/"
    while True:
        page = ask(client.filter_log_events, **asked)
        yield from (_line(one) for one in page.get("events") or [])
        if not (token := page.get("nextToken")):
            return
        asked["nextToken"] = token


def _line(event: Mapping[str, Any]) -> LogLine:
    instance_id, _, stream = str(event["logStreamName"]).partition("/")
    source, text = stream.removeprefix(FILE).lstrip("_"), str(event["message"])
    if stream == JOURNAL:
        # CloudWatch Agent sends the fields of an entry in the field `body` of a JSON object. A node can write any text.
        body = None
        with contextlib.suppress(ValueError):
            body = bounded(text.encode("utf-8", "replace"), clean=str)
        entry = body.get("body") if isinstance(body, dict) else None
        if isinstance(entry, dict):
            source, text = journal_source(entry), journal_text(entry)
    time = datetime.fromtimestamp(event["timestamp"] / 1000, UTC)
    return LogLine(time=time, instance_id=instance_id, source=source, text=text)
