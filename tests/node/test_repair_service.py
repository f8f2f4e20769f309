"""The service of the control node, with small servers in place of Prometheus and Alertmanager. `tests/monitoring/test_repair.py` has the real ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.node.cloud import CloudError, FaultyNode
from gpuinfra.node.orders import orders_in
from gpuinfra.node.repair import state_in
from gpuinfra.node.repair_service import LEASE_S, RepairFiles, RepairService
from tests.node.test_repair import FAILED, START, series
from tests.servers import Answering, serve

ORDERS, PLANNED = "repair/orders.json", "maintenance.json"


class Programs:
    """Prometheus and Alertmanager."""

    def __init__(self) -> None:
        self.status = 200
        self.answer: Any = []
        self.silences: list[dict[str, Any]] = []
        self.posted: list[dict[str, Any]] = []

    def handler(self) -> type[Answering]:
        programs = self

        class Handler(Answering):
            def do_GET(self) -> None:
                if self.path.startswith("/api/v2/silences"):
                    self.answer(200, json.dumps(programs.silences).encode())
                    return
                result = [{"metric": labels, "value": [0, str(value)]} for labels, value in programs.answer]
                self.answer(programs.status, json.dumps({"status": "success", "data": {"result": result}}).encode())

            def do_POST(self) -> None:
                programs.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.answer(200, b"{}")

        return Handler


class ControlCloud:
    """The bucket, and a cloud that replaces nodes."""

    notice_poll_s = 1.0

    def __init__(self) -> None:
        self.name = "i-control"
        self.objects: dict[str, bytes] = {}
        self.replaced: list[str] = []
        self.broken = ""
        self.breaks = ""
        """Start of the keys that cannot be written while `broken` is set."""

    def instance_id(self) -> str:
        return self.name

    def get(self, bucket: str, key: str, limit: int = 0) -> bytes | None:
        return self.objects.get(key)

    def put(self, bucket: str, key: str, body: bytes, *, once: bool) -> None:
        if self.broken and key.startswith(self.breaks):
            raise CloudError(self.broken)
        self.objects[key] = body

    def proof(self, evidence_sha256: str, now: object) -> dict[str, Any]:
        return {}

    def replace_node(self, node: FaultyNode) -> bool:
        self.replaced.append(node.instance_id)
        return True


class RegisterCloud(ControlCloud):
    """A cloud on which Prometheus finds the names of machines."""

    def __init__(self) -> None:
        super().__init__()
        self.ids = {"i-1": "i-1"}
        self.asked = 0
        self.silent = False

    def has_id(self, name: str, instance_id: str) -> bool:
        self.asked += 1
        if self.silent:
            raise CloudError("429 TooManyRequests")
        return self.ids.get(name) == instance_id


class World:
    """A control node."""

    def __init__(self, folder: Path, there: str, programs: Programs) -> None:
        self.folder, self.there, self.programs = folder, there, programs
        self.cloud: Any = ControlCloud()
        self.now = START
        self.reports = 0

    def service(self, **changed: Any) -> RepairService:
        """The service after a start."""
        declared = {
            "cluster": "train", "mode": "replace", "at_most": 1, "deadline_s": 3600, "pools": ["gpu"], "zones": {}, "alerts": {}, "orders": ORDERS,
            "maintenance": PLANNED, "prometheus": self.there, "alertmanager": self.there, **changed,
        }  # fmt: skip
        node = {
            "cloud": "aws",
            "bundle": {"bucket": "b"},
            "evidence": {"bucket": "b", "prefix": "evidence/train", "owner": "A"},
        }
        files = RepairFiles(metrics=self.folder / "repair.prom", status=self.folder / "status.json")
        return RepairService(node, declared, self.cloud, files=files, clock=lambda: self.now, report=self._report)

    def _report(self) -> None:
        self.reports += 1

    def rounds(self, service: RepairService, count: int) -> None:
        """Rounds of 30 s, in which the node's facts are fresh."""
        for _ in range(count):
            self.programs.answer = series(FAILED, age=10 - (self.now - START))
            service.once()
            self.now += 30

    def events(self) -> list[str]:
        return [str(one["event"]) for one in state_in(self.cloud.objects[ORDERS]).events]

    def start_over(self, name: str) -> None:
        """Replace the control node: it has another instance ID, and none of its files."""
        self.cloud.name, self.folder = name, self.folder / name
        self.folder.mkdir()

    def uploaded(self) -> list[str]:
        return sorted(key.rpartition("/")[2] for key in self.cloud.objects if "/repair/0" in key and "proof" not in key)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A control node with its programs."""
    programs = Programs()
    with serve(programs.handler()) as there:
        yield World(tmp_path, there, programs)


def test_a_restarted_service_continues_and_uploads_each_event_once(world: World) -> None:
    """Each round is done by a new process. The node is drained and replaced once, and each event is one signed document."""
    for _ in range(30):
        world.rounds(world.service(), 1)
    assert world.cloud.replaced == ["i-1"]
    assert world.events() == ["draining", "replacing"]
    assert world.uploaded() == ["000001.json", "000002.json"]
    assert world.reports >= 2
    assert "gpuinfra_repair_taken 1.0" in (world.folder / "repair.prom").read_text()


def test_a_new_control_node_uploads_only_events_that_its_predecessor_did_not(world: World) -> None:
    """The position is in the state, and the new control node uploads nothing while its predecessor may still run."""
    world.rounds(world.service(), 8)
    assert (world.events(), world.uploaded()) == (["draining"], ["000001.json"])
    world.start_over("i-new")
    world.rounds(service := world.service(), int(LEASE_S // 30) - 6)
    assert world.uploaded() == ["000001.json"]
    world.rounds(service, 30)
    assert world.events() == ["draining", "replacing"]
    assert world.uploaded() == ["000001.json", "000002.json"]


def test_a_control_node_without_the_lease_writes_no_state_for_its_events(world: World) -> None:
    """A control node that could not read the state does not replace that of its successor."""
    world.rounds(service := world.service(), 6)
    world.cloud.broken, world.cloud.breaks = "403 AccessDenied", "evidence/"
    world.rounds(service, 20)
    state = state_in(world.cloud.objects[ORDERS])
    state.writer, state.written = "i-other boot", world.now
    world.cloud.objects[ORDERS] = before = state.dumped()
    world.cloud.broken = ""
    world.rounds(service, 2)
    assert (world.cloud.objects[ORDERS], world.uploaded()) == (before, ["000001.json"])


@pytest.mark.parametrize("problem", ["status", "empty", "old", "garbage", "bucket"])
def test_a_bad_reading_or_a_bucket_that_refuses_changes_nothing(world: World, problem: str) -> None:
    """No node is drained while Prometheus fails, has no nodes, or has only old facts, or while the state cannot be written."""
    service = world.service()
    if problem == "status":
        world.programs.status = 503
    if problem == "bucket":
        world.cloud.broken = "503 SlowDown"
    for _ in range(30):
        old = series(FAILED, age=700 - (world.now - START))
        answers = {"empty": [], "old": old, "garbage": [({"__name__": "up"}, 1)]}
        world.programs.answer = answers.get(problem, series(FAILED, age=10 - (world.now - START)))
        service.once()
        world.now += 30
    assert world.cloud.replaced == []
    stored = world.cloud.objects.get(ORDERS)
    assert stored is None or orders_in(stored) == ()


def metrics_of(world: World) -> str:
    """The metrics of the repair."""
    return (world.folder / "repair.prom").read_text()


def test_a_failed_upload_of_events_hides_no_metric(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """The repair continues and its metrics and its status stay complete. The events that wait have their own metric, and follow later."""
    world.cloud.broken, world.cloud.breaks = "403 AccessDenied", "evidence/"
    world.rounds(service := world.service(), 30)
    assert world.cloud.replaced == ["i-1"]
    assert 'gpuinfra_repair_current{node="i-1",step="wait",action="replace"} 1' in metrics_of(world)
    assert "gpuinfra_repair_events_not_uploaded 2" in metrics_of(world)
    assert json.loads((world.folder / "status.json").read_text())["step"] == "wait"
    assert capsys.readouterr().err.count("repair: events: ") == 1
    world.cloud.broken = ""
    world.rounds(service, 1)
    assert "gpuinfra_repair_events_not_uploaded 0" in metrics_of(world)
    assert world.uploaded() == ["000001.json", "000002.json"]


@pytest.mark.parametrize("part", ["state", "metrics"])
def test_metrics_show_the_stored_state_while_a_round_fails(world: World, part: str) -> None:
    """The metric of a node that is held stays, and the time of the last decision becomes old, so that `RepairStale` fires."""
    world.rounds(service := world.service(mode="hold", at_most=2), 10)
    assert 'gpuinfra_repair_held{node="i-1"} 1' in metrics_of(world)
    at = world.now
    if part == "state":
        world.cloud.broken = "503 SlowDown"
    else:
        world.programs.status = 503
    world.rounds(service, 20)
    if part == "metrics":  # also after a restart
        service = world.service(mode="hold", at_most=2)
    world.rounds(service, 20)
    assert 'gpuinfra_repair_held{node="i-1"} 1' in metrics_of(world)
    (read_at,) = [line for line in metrics_of(world).splitlines() if line.startswith("gpuinfra_repair_read_timestamp")]
    assert float(read_at.rpartition(" ")[2]) < at + 600


def test_another_control_node_continues_after_the_lease(world: World) -> None:
    """While the predecessor may still run, the new control node decides nothing."""
    world.rounds(world.service(), 1)
    state = state_in(world.cloud.objects[ORDERS])
    state.writer, state.written = "i-other boot", world.now
    world.cloud.objects[ORDERS] = state.dumped()
    before = world.cloud.objects[ORDERS]
    service = world.service()
    world.rounds(service, int(LEASE_S // 30) - 1)
    assert world.cloud.objects[ORDERS] == before
    world.rounds(service, 30)
    assert world.cloud.replaced == ["i-1"]


def test_planned_work_becomes_a_silence_in_each_mode(world: World) -> None:
    """Also without repair. The silence has the name of the node in the metrics, is created once, and nothing is written to the bucket."""
    until = int(START) + 3600
    objects = world.cloud.objects
    world.cloud = RegisterCloud()
    world.cloud.objects = objects
    entry = {"node": "id of i-1", "until": until, "why": "cables"}
    world.cloud.objects[PLANNED] = json.dumps(
        {"schema": "gpuinfra.maintenance/1", "entries": [entry], "released": []}
    ).encode()
    world.programs.answer = [
        ({"__name__": "gpuinfra_node_info", "instance_id": "id of i-1", "instance": "i-1", "pool": "gpu"}, 1.0)
    ]
    world.cloud.ids = {"i-1": "id of i-1"}
    # A node that states the ID of the node with planned work gets no silence.
    world.programs.answer.insert(0, ({**world.programs.answer[0][0], "instance": "i-2"}, 1.0))
    service = world.service(mode="off")
    service.once()
    (silence,) = world.programs.posted
    assert (silence["matchers"][0]["value"], silence["endsAt"], silence["comment"]) == (
        "i-1",
        "2027-01-15T09:00:00Z",
        "cables",
    )
    world.programs.silences = [{**silence, "endsAt": "2027-01-15T09:00:00.000Z", "status": {"state": "active"}}]
    service.once()
    assert len(world.programs.posted) == 1
    assert set(world.cloud.objects) == {PLANNED}


def test_the_cloud_confirms_the_id_before_the_drain(world: World) -> None:
    """A node that states the ID of another machine gets no order, nor does the other machine. The cloud is asked once for each ID."""
    world.cloud = RegisterCloud()
    world.cloud.ids = {"i-1": "another", "i-2": "i-1"}
    world.rounds(service := world.service(), 40)
    assert (world.cloud.replaced, world.cloud.asked) == ([], 1)
    assert world.events() == ["unconfirmed"]
    assert orders_in(world.cloud.objects[ORDERS]) == ()
    assert 'gpuinfra_repair_untouched{node="i-1"} 1' in (world.folder / "repair.prom").read_text()
    world.cloud.ids = {"i-1": "i-1"}
    world.rounds(service, 1)
    world.rounds(world.service(), 30)
    assert world.cloud.replaced == ["i-1"]


def test_without_an_answer_of_the_cloud_no_node_is_drained(world: World) -> None:
    """An instance ID that could not be confirmed is unknown, and the request is repeated."""
    world.cloud = RegisterCloud()
    world.cloud.silent = True
    world.rounds(service := world.service(), 10)
    assert (world.events(), world.cloud.asked) == ([], 10)
    world.cloud.silent = False
    world.rounds(service, 6)
    assert world.events() == ["draining"]


def test_an_unreadable_record_of_planned_work_stops_the_repair(world: World) -> None:
    """A node with planned work must not be replaced because the record is damaged."""
    world.cloud.objects[PLANNED] = b"{}"
    world.rounds(world.service(), 30)
    assert ORDERS not in world.cloud.objects
