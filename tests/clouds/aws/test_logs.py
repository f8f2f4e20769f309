"""The logs of the nodes in CloudWatch Logs: what is read, in which order, and what a refused request says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.aws import logs
from gpuinfra.clouds.logs import LogLine, LogQuestion, journal_source, journal_text

GROUP = "/gpuinfra/watched-nodes-0a1b2c3d"
STATE = [
    {"type": logs.GROUP, "urn": "urn:pulumi:s::p::gpuinfra:aws:Network$aws:cloudwatch/logGroup:LogGroup::x", "outputs": {"name": "/flow"}},
    {"type": logs.GROUP, "urn": f"urn:pulumi:s::p::{logs.COMPONENT}$aws:cloudwatch/logGroup:LogGroup::y", "outputs": {"name": GROUP}},
]  # fmt: skip
SINCE = datetime(2026, 11, 30, 6, tzinfo=UTC)
BEGIN = int(SINCE.timestamp() * 1000)


def event(stream: str, after_ms: int, message: str) -> dict[str, Any]:
    """An event, as FilterLogEvents returns it."""
    return {"logStreamName": stream, "timestamp": BEGIN + after_ms, "message": message}


def journal(after_ms: int, **entry: Any) -> dict[str, Any]:
    """An event with a journal entry of the node i-1."""
    return event("i-1/journal", after_ms, json.dumps({"body": entry}))


def ask(**changes: Any) -> LogQuestion:
    """A question about all lines of all nodes."""
    values: dict[str, Any] = {
        "region": "us-east-1",
        "settings": {},
        "resources": STATE,
        "instance_id": "",
        "since": SINCE,
    }
    return LogQuestion(**{**values, **changes})


def service(
    monkeypatch: pytest.MonkeyPatch, *pages: tuple[Mapping[str, Any], list[dict[str, Any]], str | None]
) -> Stubber:
    """CloudWatch Logs with these pages: the parameters of the request in addition to the group and the time, the events, and the next token."""
    client = boto3.client("logs", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    stubber = Stubber(client)
    for more, events, token in pages:
        answer = {"events": events, **({"nextToken": token} if token else {})}
        stubber.add_response("filter_log_events", answer, {"logGroupName": GROUP, "startTime": BEGIN, **more})
    stubber.activate()
    monkeypatch.setattr(logs, "client_of", lambda settings: lambda name, region: client)
    return stubber


def shown(line: LogLine) -> tuple[int, str, str, str]:
    """The milliseconds since the begin, the node, the source and the text of a line."""
    return int(line.time.timestamp() * 1000) - BEGIN, line.instance_id, line.source, line.text


def test_lines_of_the_journal_and_of_files_are_read_from_all_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel line, a line of a unit and a line of a file of two nodes have their sources, and are in the order of their times."""
    stubber = service(
        monkeypatch,
        ({}, [event("i-2/file__var_log_gpuinfra_bootstrap.log", 3, "done"), journal(5, MESSAGE="NVRM: Xid", _TRANSPORT="kernel")], "t"),
        ({"nextToken": "t"}, [journal(9, MESSAGE="gone", _PID="1", UNIT="gpuinfra-notices.service")], None),
    )  # fmt: skip
    assert [shown(line) for line in logs.read(ask())] == [
        (3, "i-2", "var_log_gpuinfra_bootstrap.log", "done"),
        (5, "i-1", "kernel", "NVRM: Xid"),
        (9, "i-1", "gpuinfra-notices.service", "gone"),
    ]
    stubber.assert_no_pending_responses()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NVRM: Xid", "NVRM: Xid"),
        ('{"body": {"MESSAGE": "cut o', '{"body": {"MESSAGE": "cut o'),
        ('{"body": {"MESSAGE": [1e999, NaN]}}', '{"body": {"MESSAGE": [1e999, NaN]}}'),
        ('{"body": {"MESSAGE": [-1, 99999999]}}', "[-1, 99999999]"),
        ("[" * 100_000, "[" * 100_000),
        ('{"body": {"MESSAGE": "a\\ud800"}}', "a\ud800"),
    ],
    ids=["no JSON", "cut off", "infinity", "no bytes", "deep", "surrogate"],
)
def test_a_node_cannot_break_the_command_with_an_event(
    monkeypatch: pytest.MonkeyPatch, text: str, expected: str
) -> None:
    """An event of the journal that is not what the agent sends is shown as it is, and the lines around it are read."""
    service(monkeypatch, ({}, [event("i-1/journal", 1, text), journal(2, MESSAGE="next")], None))
    assert [line.text for line in logs.read(ask())] == [expected, "next"]


def test_lines_of_a_page_are_returned_before_the_next_page_is_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service is asked for a page when the lines of the earlier ones were taken, also after an empty page."""
    prefix = {"logStreamNamePrefix": "i-1/"}
    pages = [[journal(at, MESSAGE=f"line {at}", _TRANSPORT="kernel")] if at % 10 else [] for at in range(100)]
    asked = [{**prefix, **({"nextToken": f"t{at}"} if at else {})} for at in range(100)]
    tokens = [*(f"t{at}" for at in range(1, 100)), None]
    stubber = service(monkeypatch, *zip(asked, pages, tokens, strict=True))
    lines = logs.read(ask(instance_id="i-1"))
    assert next(lines).text == "line 1"
    with pytest.raises(AssertionError, match="98 responses remaining"):
        stubber.assert_no_pending_responses()
    assert len(list(lines)) == 89
    stubber.assert_no_pending_responses()


def test_a_refused_request_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing permission, and a state without the log group, are errors that say so."""
    stubber = service(monkeypatch)
    text = "User: x is not authorized to perform: logs:FilterLogEvents"
    stubber.add_client_error("filter_log_events", "AccessDeniedException", text, http_status_code=400)
    with pytest.raises(DeploymentError, match="not authorized to perform: logs:FilterLogEvents"):
        next(logs.read(ask()))
    with pytest.raises(DeploymentError, match="no log group for the nodes; run `pulumi up` first"):
        next(logs.read(ask(resources=STATE[:1])))


def test_the_message_of_a_journal_entry() -> None:
    """A message that is not UTF-8 is a list of bytes, an entry without a message has an empty text, and a unit names itself."""
    assert journal_text({"MESSAGE": [104, 105, 255]}) == "hi\ufffd"
    assert journal_text({}) == ""
    assert journal_source({"_SYSTEMD_UNIT": "ssh.service"}) == "ssh.service"
