"""CloudWatch Logs of the stand-in cloud: the real policy of the nodes, the reader of `gpuinfra logs`, and the alarm about Xids."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.error import HTTPError

import pytest

from gpuinfra.clouds.aws import logs as reader
from gpuinfra.clouds.aws.components import policies
from gpuinfra.clouds.aws.components.logs import METRIC, NAMESPACE, xid_pattern
from gpuinfra.clouds.logs import LogQuestion
from gpuinfra.node.xids import XIDS, Bucket
from gpuinfra_rehearsal.cloud.aws import credentials, log_filters
from gpuinfra_rehearsal.cloud.aws.http.logs import MESSAGE
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.server import Server
from gpuinfra_rehearsal.tools import signed
from rehearsal.tests.cloud.conftest import Client
from rehearsal.tests.cloud.test_control_node import environment
from rehearsal.tests.cloud.test_http import client, server

__all__ = ["server"]

GROUP = "/gpuinfra/train-nodes-0a1b2c3d"
ARN = f"arn:aws:logs:us-east-1:000000000000:log-group:{GROUP}"
WRITES = [{**one, "Resource": f"{ARN}:*"} for one in policies.write_log_group(ARN)]
"""The statement of the nodes, with the resource as text."""
XID = "NVRM: Xid (PCI:0000:3b:00): %d, pid=1, %s"


def kernel(text: str) -> str:
    """A kernel line, as CloudWatch Agent sends it."""
    return json.dumps({"body": {"MESSAGE": text, "_TRANSPORT": "kernel"}})


def send(environ: dict[str, str], stream: str, *messages: str) -> None:
    """Send events now, as the agent does."""
    events = [{"timestamp": int(time.time() * 1000) + place, "message": one} for place, one in enumerate(messages)]
    signed.logs("PutLogEvents", {"logGroupName": GROUP, "logStreamName": stream, "logEvents": events}, environ)


def alarm(aws: Client) -> None:
    """The resources of `NodeLogs`: a log group, a filter, and an alarm with one recipient."""
    aws.create("aws:cloudwatch/logGroup:LogGroup", {"name": GROUP, "retentionInDays": 30}, "group")
    metric = {"namespace": NAMESPACE, "name": METRIC, "value": "1"}
    filtered = {"logGroupName": GROUP, "name": "xids", "pattern": xid_pattern(), "metricTransformation": metric}
    aws.create("aws:cloudwatch/logMetricFilter:LogMetricFilter", filtered, "xids")
    topic = aws.create("aws:sns/topic:Topic", {"name": "alerts"}, "alerts").id
    recipient = {"topic": topic, "protocol": "email", "endpoint": "gpu@example.com"}
    aws.create("aws:sns/topicSubscription:TopicSubscription", recipient, "recipient")
    inputs = {
        "name": "xids", "namespace": NAMESPACE, "metricName": METRIC, "statistic": "Sum", "period": 60, "evaluationPeriods": 1,
        "comparisonOperator": "GreaterThanThreshold", "threshold": 0, "alarmActions": [topic], "alarmDescription": "an Xid",
    }  # fmt: skip
    aws.create("aws:cloudwatch/metricAlarm:MetricAlarm", inputs, "alarm")


def test_lines_that_a_node_sends_are_read_and_an_urgent_xid_is_reported(
    cloud: Cloud, aws: Client, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The role of the nodes creates a stream in its log group and puts events, `gpuinfra logs` reads them, and only an urgent Xid notifies the recipient."""
    environ = environment(cloud, aws, monkeypatch, WRITES)
    alarm(aws)
    with pytest.raises(HTTPError, match="400"):
        send(environ, "i-1/journal", kernel("before the stream exists"))
    signed.logs("CreateLogStream", {"logGroupName": GROUP, "logStreamName": "i-1/journal"}, environ)
    send(environ, "i-1/journal", kernel(XID % (13, "application")), kernel("link up"))
    assert not cloud.store.all(MESSAGE)
    send(environ, "i-1/journal", kernel(XID % (79, "GPU has fallen off the bus.")))
    assert [(one["to"], one["text"]) for one in cloud.store.all(MESSAGE).values()] == [(["gpu@example.com"], "an Xid")]

    key = credentials.operator(cloud.store)
    monkeypatch.setattr(reader, "client_of", lambda _: lambda service, region: client(server, service, key))
    state = [{"type": reader.GROUP, "urn": f"{reader.COMPONENT}$x", "outputs": {"name": GROUP}}]
    asked = LogQuestion(
        region="us-east-1", settings={}, resources=state, instance_id="i-1", since=datetime.now(UTC) - timedelta(hours=1),
    )  # fmt: skip
    found = [one for one in reader.read(asked) if "Xid" in one.text]
    assert [(one.source, one.instance_id, one.text[-4:]) for one in found] == [
        ("kernel", "i-1", "tion"),
        ("kernel", "i-1", "bus."),
    ]


def test_nodes_write_only_to_their_log_group(
    cloud: Cloud, aws: Client, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another log group is refused, and so is reading."""
    environ = environment(cloud, aws, monkeypatch, WRITES)
    aws.create("aws:cloudwatch/logGroup:LogGroup", {"name": "/gpuinfra/train-trail-0a1b2c3d"}, "trail")
    with pytest.raises(HTTPError, match="400"):
        signed.logs("CreateLogStream", {"logGroupName": "/gpuinfra/train-trail-0a1b2c3d", "logStreamName": "i-1/journal"}, environ)  # fmt: skip
    with pytest.raises(HTTPError, match="403"):
        signed.logs("FilterLogEvents", {"logGroupName": GROUP}, environ)


@pytest.mark.parametrize("number", sorted(XIDS))
def test_the_filter_reports_the_xids_that_drain_a_node(number: int) -> None:
    """The filter matches each Xid after which the checks drain a node, and no other one. The texts of 144 to 150 and of 154 decide."""
    by_text = XIDS[number].bucket in (Bucket.XID_154, Bucket.WORKFLOW_NVLINK5)
    texts: dict[str, bool] = {"text": XIDS[number].severity == "drain" and not by_text}
    if by_text:
        texts = {"changed from 0x1 to 0x0 (None)": False, "NETIR Nonfatal XC0": False}
        texts["changed from 0x0 (None) to 0x2 (Node Reboot Required)" if number == 154 else "NETIR Fatal XC0"] = True
    for text, expected in texts.items():
        assert log_filters.matches(xid_pattern(), kernel(XID % (number, text))) is expected, text


@pytest.mark.parametrize(
    "pattern",
    ["{ $.a = %x y% }", "{ $.a = %(x)% }", "{ $.a = %x% && $.b = %y% && $.c = %z% }", "{ $.a = 'x' }", "NVRM", "{ $.a = %" + "x" * 1100 + "% }"],
    ids=["space", "group", "three expressions", "quote", "no JSON", "length"],
)  # fmt: skip
def test_patterns_that_cloudwatch_refuses(pattern: str) -> None:
    """The stand-in refuses what the service refuses."""
    with pytest.raises(ValueError, match=r"pattern|expression|parse"):
        log_filters.parsed(pattern)


def test_the_pattern_has_the_limits_of_the_service() -> None:
    """The pattern of the alarm is accepted, and an event that is not JSON does not match."""
    parsed: Any = log_filters.parsed(xid_pattern())
    assert [len(one) for one in parsed] == [2]
    assert not log_filters.matches(xid_pattern(), XID % (79, "plain text"))
