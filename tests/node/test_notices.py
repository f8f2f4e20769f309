"""The notices that a node reads from its cloud's metadata service, and what it does with them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpuinfra.node import cloud
from gpuinfra.node.notice_service import NoticeService, hooks_in
from gpuinfra.node.notices import (
    LEAD_S,
    OUTDATED_S,
    Notice,
    NoticeKind,
    NoticeStage,
    dumped,
    moment,
    notices_in,
    planned,
    stage_of,
)
from gpuinfra.node.outcome import Unreadable
from tests.servers import Answering, serve

AT = datetime(2026, 11, 28, 10, 0, tzinfo=UTC).timestamp()
SPOT = '{"action": "terminate", "time": "2026-11-28T10:00:00Z"}'
"""https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html, retrieved 2026-11-28."""
EVENT = {
    "NotBefore": "28 Nov 2026 10:00:00 GMT", "Code": "system-reboot", "Description": "scheduled reboot", "EventId": "instance-event-1",
    "NotAfter": "28 Nov 2026 12:00:00 GMT", "State": "active",
}  # fmt: skip
SCHEDULED = json.dumps([EVENT, {**EVENT, "EventId": "instance-event-0", "State": "completed"}])
"""https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/viewing_scheduled_events.html, retrieved 2026-11-28."""


def events(kind: str, not_before: str = "Sat, 28 Nov 2026 10:00:00 GMT", resource: str = "TRAIN-gpu_1") -> str:
    """A document of https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events, retrieved 2026-11-28."""
    event = {
        "EventId": "C7061BAC-AFDC-4513-B24B-AA5F13A16123", "EventStatus": "Scheduled", "EventType": kind, "ResourceType": "VirtualMachine",
        "Resources": [resource], "NotBefore": not_before, "Description": "", "EventSource": "Platform", "DurationInSeconds": -1,
    }  # fmt: skip
    return json.dumps({"DocumentIncarnation": 2, "Events": [event]})


UPCOMING = {
    "can_reschedule": "true", "latest_window_start_time": "2026-11-28T19:00:01Z", "maintenance_reasons": ["PLANNED_UPDATE"],
    "maintenance_status": "PENDING", "type": "SCHEDULED", "window_end_time": "2026-11-28T12:00:00Z", "window_start_time": "2026-11-28T10:00:00Z",
}  # fmt: skip
TITLED = json.dumps({"Upcoming maintenance": UPCOMING})
"""https://cloud.google.com/compute/docs/instances/monitor-plan-host-maintenance-event, retrieved 2026-11-28."""


@dataclass
class Metadata:
    """A metadata service: path -> body. A number is a status without a body."""

    answers: dict[str, str | int] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    url: str = ""

    def notices(self, name: str) -> list[Notice]:
        """Return what all sources of a cloud report."""
        return [one for read in self.node(name).notice_sources().values() for one in read()]

    def node(self, name: str) -> cloud.NodeCloud:
        """Return a node's access to this service."""
        environ = {
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": self.url, "AZURE_POD_IDENTITY_AUTHORITY_HOST": self.url,
            "GCE_METADATA_HOST": self.url.removeprefix("http://"),
        }  # fmt: skip
        return cloud.of({"cloud": name, "region": "us-east-1"}, environ)


@contextmanager
def running() -> Iterator[Metadata]:
    """A metadata service of all clouds without notices."""
    service = Metadata(
        {
            "metadata/instance/compute": json.dumps({"name": "train-gpu_1"}),
            "metadata/scheduledevents": '{"DocumentIncarnation": 1, "Events": []}',
            "computeMetadata/v1/instance/preempted": "FALSE",
            "computeMetadata/v1/instance/maintenance-event": "NONE",
            "latest/meta-data/events/maintenance/scheduled": "[]",
        }
    )

    class Handler(Answering):
        def do_PUT(self) -> None:
            self.answer(200, b"token")

        def do_GET(self) -> None:
            path = self.path.lstrip("/").partition("?")[0]
            service.requests.append(f"{self.command} {path}")
            found = service.answers.get(path, 404)
            body, status = ("", found) if isinstance(found, int) else (found, 200)
            self.answer(status, body.encode(), Metadata_Flavor="Google")

        def do_POST(self) -> None:
            service.requests.append(f"POST {self.path}")
            self.answer(200, b"")

    with serve(Handler) as url:
        service.url = url
        yield service


@pytest.fixture
def metadata() -> Iterator[Metadata]:
    """The service for one test."""
    with running() as service:
        yield service


@pytest.mark.parametrize("name", ["aws", "azure", "gcp"])
def test_a_machine_without_notices_has_none(metadata: Metadata, name: str) -> None:
    """The documented answers of a machine that nothing is planned for contain no notice."""
    assert metadata.notices(name) == []


@pytest.mark.parametrize(
    ("name", "path", "body", "kind", "what"),
    [
        ("aws", "latest/meta-data/spot/instance-action", SPOT, NoticeKind.RECLAIM, "spot interruption: terminate"),
        ("aws", "latest/meta-data/events/maintenance/scheduled", SCHEDULED, NoticeKind.MAINTENANCE, "system-reboot: scheduled reboot"),
        ("azure", "metadata/scheduledevents", events("Preempt"), NoticeKind.RECLAIM, "Preempt: Platform"),
        ("azure", "metadata/scheduledevents", events("Terminate"), NoticeKind.RECLAIM, "Terminate: Platform"),
        ("azure", "metadata/scheduledevents", events("Redeploy"), NoticeKind.MAINTENANCE, "Redeploy: Platform"),
        ("gcp", "computeMetadata/v1/instance/upcoming-maintenance", json.dumps(UPCOMING), NoticeKind.MAINTENANCE, "SCHEDULED maintenance: PENDING"),
        ("gcp", "computeMetadata/v1/instance/upcoming-maintenance", TITLED, NoticeKind.MAINTENANCE, "SCHEDULED maintenance: PENDING"),
    ],
    ids=["aws-spot", "aws-scheduled", "azure-preempt", "azure-terminate", "azure-redeploy", "gcp-upcoming", "gcp-titled"],
)  # fmt: skip
def test_a_documented_body_is_a_notice_with_its_deadline(
    metadata: Metadata, name: str, path: str, body: str, kind: NoticeKind, what: str
) -> None:
    """Each notice has the time at which its event starts."""
    metadata.answers[path] = body
    (found,) = metadata.notices(name)
    assert (found.kind, found.what, found.deadline, found.estimated) == (kind, what, AT, False)


@pytest.mark.parametrize(
    ("key", "body", "kind", "seconds"),
    [
        ("preempted", "TRUE", NoticeKind.RECLAIM, 30),
        ("maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE", NoticeKind.MAINTENANCE, 60),
    ],
)
def test_google_states_no_time(metadata: Metadata, key: str, body: str, kind: NoticeKind, seconds: int) -> None:
    """The deadline follows from the documented notice period, and is marked as an estimate."""
    metadata.answers[f"computeMetadata/v1/instance/{key}"] = body
    (found,) = metadata.notices("gcp")
    assert (found.kind, found.estimated) == (kind, True)
    assert found.deadline is not None
    assert seconds - 5 < found.deadline - time.time() <= seconds


@pytest.mark.parametrize(
    "body", ["NONE", "{ }", '{ "error": "no notifications have been received yet, try again later" }']
)
def test_google_has_several_answers_without_maintenance(metadata: Metadata, body: str) -> None:
    """None of the answers that the metadata server gives without maintenance is a notice."""
    metadata.answers["computeMetadata/v1/instance/upcoming-maintenance"] = body
    assert metadata.notices("gcp") == []


def test_an_event_of_another_machine_is_no_notice(metadata: Metadata) -> None:
    """Azure lists the events of all machines of a scale set."""
    metadata.answers["metadata/scheduledevents"] = events("Preempt", resource="train-gpu_2")
    assert metadata.notices("azure") == []


def test_an_azure_event_is_never_acknowledged(metadata: Metadata) -> None:
    """An acknowledgement starts the event at once, so the node sends none."""
    metadata.answers["metadata/scheduledevents"] = events("Redeploy")
    assert metadata.notices("azure")
    assert [one for one in metadata.requests if not one.startswith("GET ")] == []


def test_a_rebalance_recommendation_is_not_imminent(metadata: Metadata) -> None:
    """A recommendation has no deadline, and no job is signaled."""
    metadata.answers["latest/meta-data/events/recommendations/rebalance"] = '{"noticeTime": "2026-11-28T10:00:00Z"}'
    (found,) = metadata.notices("aws")
    assert (found.kind, found.deadline) == (NoticeKind.REBALANCE, None)
    assert stage_of(found, AT) is NoticeStage.ANNOUNCED


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("aws", "latest/meta-data/spot/instance-action"),
        ("azure", "metadata/scheduledevents"),
        ("gcp", "computeMetadata/v1/instance/preempted"),
        ("gcp", "computeMetadata/v1/instance/upcoming-maintenance"),
    ],
)
@pytest.mark.parametrize("answer", [503, "{"], ids=["status-503", "invalid-json"])
def test_a_source_that_cannot_be_read_is_a_problem(metadata: Metadata, name: str, path: str, answer: str | int) -> None:
    """An error of the metadata service never means that there is no notice."""
    metadata.answers[path] = answer
    if path.endswith("preempted") and answer == "{":
        assert metadata.notices(name) == []  # the value is a word
    else:
        with pytest.raises(cloud.CloudError):
            metadata.notices(name)


@pytest.mark.parametrize(("name", "seconds"), [("aws", 5.0), ("azure", 1.0), ("gcp", 1.0)])
def test_poll_intervals(metadata: Metadata, name: str, seconds: float) -> None:
    """A node reads its notices every five seconds on AWS, where it has two minutes, and every second elsewhere."""
    assert metadata.node(name).notice_poll_s == seconds


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-11-28T10:00:00Z", AT), ("2026-11-28T11:00:00+01:00", AT), ("28 Nov 2026 10:00:00 GMT", AT), ("Sat, 28 Nov 2026 10:00:00 GMT", AT),
        ("", None), ("soon", None), ("2026-11-28T10:00:00", None), (None, None),
    ],
)  # fmt: skip
def test_times(text: str | None, at: float | None) -> None:
    """The forms of all clouds are read. A time without a zone is unknown."""
    assert moment(text) == at


def reclaim(deadline: float | None = AT, **values: object) -> Notice:
    """A notice that the machine ends."""
    return Notice("spot 1", NoticeKind.RECLAIM, "spot interruption: terminate", deadline, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("deadline", "now", "stage"),
    [
        (AT, AT - LEAD_S - 1, NoticeStage.ANNOUNCED),
        (AT, AT - LEAD_S, NoticeStage.IMMINENT),
        (AT, AT + 60, NoticeStage.IMMINENT),
        (None, AT, NoticeStage.IMMINENT),
    ],
)
def test_stages(deadline: float | None, now: float, stage: NoticeStage) -> None:
    """A notice is imminent from 15 minutes before its deadline, or if it has none."""
    assert stage_of(reclaim(deadline), now) is stage


def test_file_is_read_back() -> None:
    """The content of the file contains all fields of a notice."""
    written = (reclaim(stage=NoticeStage.IMMINENT), Notice("r", NoticeKind.REBALANCE, "rebalance recommendation", None))
    assert notices_in(dumped(written)) == written


@pytest.mark.parametrize(
    "text", ["", "[]", '{"schema": "other"}', dumped([reclaim()]).replace("reclaim", "party"), dumped([reclaim()]).replace("2026-", "year-")]
)  # fmt: skip
def test_unreadable_file(text: str) -> None:
    """Another form, an unknown kind and a deadline that is not a time are refused."""
    with pytest.raises(Unreadable):
        notices_in(text)


def test_the_operator_announces_a_stop(tmp_path: Path) -> None:
    """A planned notice applies until 15 minutes after its deadline. Without a file, there is none, and another form is refused."""
    path = tmp_path / "planned.json"
    assert planned(path, AT) == []
    stop = Notice("stop 1", NoticeKind.STOP, "the cluster moves", AT)
    path.write_text(dumped([stop]))
    assert planned(path, AT + OUTDATED_S - 1) == [stop]
    assert planned(path, AT + OUTDATED_S) == []
    assert stage_of(stop, AT - LEAD_S) is NoticeStage.IMMINENT
    path.write_text("x")
    with pytest.raises(Unreadable):
        planned(path, AT)


@dataclass
class Node:
    """The service of one node, with the notices that a test sets."""

    folder: Path
    current: list[Notice] = field(default_factory=list)
    fails: bool = False
    now: float = AT - 100
    reports: int = 0
    in_evidence: str | None = None

    def __post_init__(self) -> None:
        self.hooks = self.folder / "notice.d"
        self.hooks.mkdir()
        self.file = self.folder / "run/notices.json"
        self.restart()

    def restart(self) -> None:
        """Start the service again."""
        self.service = NoticeService(
            {"spot": self._read, "other": lambda: []}, file=self.file, hooks=self.hooks, report=self._report,
            reported=lambda: self.in_evidence, clock=lambda: self.now,
        )  # fmt: skip

    def _read(self) -> list[Notice]:
        if self.fails:
            raise cloud.CloudError("no answer")
        return self.current

    def _report(self) -> None:
        self.reports += 1

    def hook(self, name: str, mode: int = 0o755) -> Path:
        """Add a hook that writes its variables, and return its output."""
        out = self.folder / f"{name}.out"
        path = self.hooks / name
        words = " ".join(f"$GPUINFRA_NOTICE_{word}" for word in ("KIND", "STAGE", "DEADLINE", "SECONDS"))
        path.write_text(f"#!/bin/sh\necho {words} >>{out}\n")
        path.chmod(mode)
        return out

    def written(self) -> tuple[Notice, ...]:
        """Return the notices in the file."""
        return notices_in(self.file.read_text())


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node without notices, before its first reading."""
    return Node(tmp_path)


def content(path: Path) -> str:
    """Wait for the output of a hook and return it."""
    for _ in range(500):
        if path.exists() and path.read_text():
            return path.read_text()
        time.sleep(0.01)
    return ""


def test_a_notice_is_written_reported_and_passed_to_hooks(node: Node) -> None:
    """The first reading with a notice writes it for ordinary users, uploads evidence, and runs the hooks with its deadline."""
    out = node.hook("10-mine")
    node.service.once()
    assert (node.written(), node.reports) == ((), 0)
    node.current = [reclaim()]
    node.service.once()
    assert node.written() == (reclaim(stage=NoticeStage.IMMINENT),)
    assert node.file.stat().st_mode & 0o777 == 0o644
    assert node.reports == 1
    assert content(out) == "reclaim imminent 2026-11-28T10:00:00Z 100\n"


def test_the_same_notice_acts_once(node: Node) -> None:
    """Further readings, also after the service was restarted, do not repeat a notice."""
    out = node.hook("10-mine")
    node.current = [reclaim()]
    node.service.once()
    assert content(out)
    node.restart()
    node.service.once()
    node.service.once()
    time.sleep(0.1)
    assert (out.read_text().count("\n"), node.reports) == (1, 1)


def test_maintenance_acts_when_it_is_announced_and_when_it_is_imminent(node: Node) -> None:
    """A notice days ahead runs the hooks at once, and again 15 minutes before its deadline."""
    out = node.hook("10-mine")
    node.now = AT - 86_400
    node.current = [reclaim()]
    node.service.once()
    assert content(out).split()[1] == "announced"
    node.now = AT - LEAD_S
    node.service.once()
    for _ in range(500):
        if out.read_text().count("\n") == 2:
            break
        time.sleep(0.01)
    assert out.read_text().split("\n")[1].split()[1] == "imminent"
    assert node.reports == 2


def test_an_estimated_deadline_stays(node: Node) -> None:
    """Each reading estimates the deadline again. The first estimate counts."""
    for seconds in (0, 1, 2):
        node.now = AT - 30 + seconds
        node.current = [reclaim(AT + seconds, estimated=True)]
        node.service.once()
    assert node.written()[0].deadline == AT


def test_a_started_event_keeps_its_deadline(node: Node) -> None:
    """Azure removes the time from an event that has started."""
    node.current = [reclaim()]
    node.service.once()
    node.current = [reclaim(None)]
    node.service.once()
    assert node.written()[0].deadline == AT


def test_an_error_keeps_the_notices_and_does_not_hide_others(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    """While a source fails, its last notices stay, and the problem is printed once."""
    node.current = [reclaim()]
    node.service.once()
    node.fails = True
    node.service.once()
    node.service.once()
    assert len(node.written()) == 1
    assert capsys.readouterr().err.count("notices of spot: no answer") == 1


def test_a_canceled_event_is_removed_and_reported(node: Node) -> None:
    """If the cloud withdraws a notice, the evidence no longer contains it."""
    node.current = [reclaim()]
    node.service.once()
    node.current = []
    node.service.once()
    assert (node.written(), node.reports) == ((), 2)


def test_notices_that_a_running_check_missed_are_reported_again(node: Node) -> None:
    """The service uploads evidence until the newest evidence contains the notices, with growing pauses, and then stops."""
    node.current = [reclaim()]
    node.service.once()
    node.in_evidence = dumped([])
    for seconds in range(0, 3600, 5):
        node.now = AT + seconds
        node.service.once()
    assert 6 < node.reports < 15
    node.in_evidence = node.file.read_text()
    node.now = AT + 7200
    node.service.once()
    before = node.reports
    node.in_evidence = dumped([])
    node.now = AT + 9000
    node.service.once()
    assert node.reports == before


@pytest.mark.parametrize(
    ("mode", "runs"), [(0o755, True), (0o700, True), (0o644, False), (0o775, False), (0o757, False)]
)
def test_hooks_belong_to_root(node: Node, mode: int, runs: bool) -> None:
    """Only executable files that no other user can change run."""
    node.hook("10-mine", mode)
    assert bool(hooks_in(node.hooks)) is runs
    assert os.geteuid() == (node.hooks / "10-mine").stat().st_uid
