"""CloudWatch Logs: nodes create streams and put events, the operator reads them, and metric filters turn events into metrics and alarms.

https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/, actions CreateLogStream, PutLogEvents and FilterLogEvents, retrieved 2026-11-30.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.aws import log_filters, operator
from gpuinfra_rehearsal.cloud.aws.http.describe import METRIC
from gpuinfra_rehearsal.cloud.aws.http.pending import in_region
from gpuinfra_rehearsal.cloud.aws.ids import ACCOUNT
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud

GROUP, FILTER = "aws:cloudwatch/logGroup:LogGroup", "aws:cloudwatch/logMetricFilter:LogMetricFilter"
ALARM, SUBSCRIPTION = "aws:cloudwatch/metricAlarm:MetricAlarm", "aws:sns/topicSubscription:TopicSubscription"
STREAM, EVENTS, MESSAGE = "log-stream", "log-events", "alarm-message"
"""Kinds of entries: a log stream, a batch of events in it, and a message of an alarm to its recipients."""
_PAGE = 500


def asked_by_node(target: str, asked: Mapping[str, Any], region: str) -> tuple[str, str]:
    """Return the action and the resource of a request of a node."""
    stream = f"log-group:{asked.get('logGroupName')}:log-stream:{asked.get('logStreamName')}"
    return f"logs:{target.partition('.')[2]}", f"arn:aws:logs:{region}:{ACCOUNT}:{stream}"


def create_log_stream(cloud: Cloud, asked: Mapping[str, Any], region: str) -> dict[str, Any]:
    """Create a log stream."""
    _group(cloud, asked, region)
    key = _stream(asked, region)
    if ":" in str(asked["logStreamName"]) or "*" in str(asked["logStreamName"]):
        raise ApiRejected("InvalidParameterException", "1 validation error detected: logStreamName", status=400)
    if cloud.store.get(STREAM, key):
        raise ApiRejected("ResourceAlreadyExistsException", "The specified log stream already exists", status=400)
    cloud.store.put(STREAM, key, {"created": time.time()})
    return {}


def put_log_events(cloud: Cloud, asked: Mapping[str, Any], region: str) -> dict[str, Any]:
    """Store events, and evaluate the metric filters of the group."""
    _group(cloud, asked, region)
    key, events = _stream(asked, region), asked.get("logEvents") or []
    if cloud.store.get(STREAM, key) is None:
        raise ApiRejected("ResourceNotFoundException", "The specified log stream does not exist.", status=400)
    if not events or any(not one.get("message") for one in events):
        raise ApiRejected("InvalidParameterException", "logEvents: a message has at least 1 character", status=400)
    with cloud.store.change():
        number = cloud.store.next("log-events")
        cloud.store.put(EVENTS, f"{key}|{number:010}", list(events))
        _measure(cloud, asked, region)
    return {"nextSequenceToken": str(number)}


def filter_log_events(cloud: Cloud, asked: Mapping[str, Any], region: str) -> dict[str, Any]:
    """Return the events of a group in the order of their times."""
    _group(cloud, asked, region)
    name = str(asked.get("logGroupName"))
    arn = f"arn:aws:logs:{region}:{ACCOUNT}:log-group:{name}:log-stream:"
    cloud.operator.check(operator, operator.http("logs:FilterLogEvents", arn, region))
    if unknown := set(asked) - {"logGroupName", "logStreamNamePrefix", "startTime", "nextToken"}:
        raise ApiRejected(
            "InvalidParameterException", f"{sorted(unknown)[0]} is not supported in a rehearsal", status=400
        )
    begin, prefix = int(asked.get("startTime") or 0), str(asked.get("logStreamNamePrefix") or "")
    selected = []
    for key, events in cloud.store.all(EVENTS).items():
        where, group, stream, number = key.split("|")
        if (where, group) == (region, name) and stream.startswith(prefix):
            selected += [
                {"logStreamName": stream, **one, "eventId": f"{number}{place:05}"}
                for place, one in enumerate(events)
                if one["timestamp"] >= begin
            ]
    selected.sort(key=lambda one: (one["timestamp"], one["eventId"]))
    start = int(asked.get("nextToken") or 0)
    more = {"nextToken": str(start + _PAGE)} if start + _PAGE < len(selected) else {}
    return {"events": selected[start : start + _PAGE], **more}


def _measure(cloud: Cloud, asked: Mapping[str, Any], region: str) -> None:
    """Put the metrics of the filters that match, and notify the recipients of the alarms on these metrics."""
    messages = [str(one["message"]) for one in asked["logEvents"]]
    for counted in in_region(cloud, FILTER, region):
        if counted.plain.get("logGroupName") != asked.get("logGroupName"):
            continue
        count = sum(log_filters.matches(str(counted.plain["pattern"]), message) for message in messages)
        if count:
            metric = counted.plain["metricTransformation"]
            pair = (metric["namespace"], metric["name"])
            cloud.store.put(METRIC, f"{region}/{pair[0]}/{pair[1]}/", {"at": time.time(), "value": float(count)})
            _alarm(cloud, pair, count, region)


def _alarm(cloud: Cloud, metric: tuple[str, str], value: float, region: str) -> None:
    for alarm in in_region(cloud, ALARM, region):
        inputs = alarm.plain
        if (inputs.get("namespace"), inputs.get("metricName")) != metric or value <= float(inputs["threshold"]):
            continue
        for topic in inputs.get("alarmActions") or []:
            to = [str(one.plain["endpoint"]) for one in cloud.store.where(SUBSCRIPTION, topic=topic)]
            text = {"alarm": alarm.id, "to": to, "text": inputs.get("alarmDescription"), "at": time.time()}
            cloud.store.put(MESSAGE, f"{alarm.id}|{topic}", text)


def _group(cloud: Cloud, asked: Mapping[str, Any], region: str) -> None:
    if cloud.store.find(GROUP, str(asked.get("logGroupName")), region) is None:
        raise ApiRejected("ResourceNotFoundException", "The specified log group does not exist.", status=400)


def _stream(asked: Mapping[str, Any], region: str) -> str:
    return f"{region}|{asked.get('logGroupName')}|{asked.get('logStreamName')}"


Action = Callable[["Cloud", Mapping[str, Any], str], dict[str, Any]]
OF_NODES: dict[str, Action] = {
    "Logs_20140328.CreateLogStream": create_log_stream,
    "Logs_20140328.PutLogEvents": put_log_events,
}
JSON_ACTIONS: dict[str, Action] = {"Logs_20140328.FilterLogEvents": filter_log_events}
