"""The service that takes part in fabric tests: the nodes of a deployment, a replaced node with idle nodes, and the result of each node."""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.node import cloud, evidence, fabric, fabric_bucket, fabric_run, fabric_service, probe
from gpuinfra.node.checks import ALL
from gpuinfra.node.checks.fabric_test import Waits
from gpuinfra.node.console import ENVIRONMENT, NO_PARTNER, MissingPrerequisite
from gpuinfra.node.fabric_bucket import Sessions
from gpuinfra.node.fabric_service import FabricService, Waiting
from gpuinfra.node.judge import judge
from gpuinfra.node.outcome import CheckResult
from gpuinfra.node.probes import PROBES
from tests.node.healthy import H100, PAIR, fabric_result, record
from tests.typed import present

IN_USE = Waiting(Waits.GPUS, "processes use the GPUs")
NODE = {"pool": "gpu", "bundle": {"sha256": "b" * 64}, "evidence": {"bucket": "b", "prefix": "evidence/train", "owner": "AROA1"}}  # fmt: skip
EXPECTATION = {**H100, "required": ["B8"], "skips": {}}
WAITING = {"schema": "gpuinfra.fabric-result/1", "state": "waiting", "reason": "no partner"}


@dataclass
class Store:
    """One bucket in memory for several nodes."""

    objects: dict[str, bytes] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass
class Node:
    """A node's cloud, and what its GPUs and its partner report."""

    store: Store
    name: str
    slow: set[str]
    folder: Path
    waiting: Waiting | None = None
    reports: int = 0
    held: str | None = None
    """The result in the newest evidence."""
    lost_reports: int = 0
    """Number of next reports that do not contain the result."""
    on_measure: Callable[[], None] = lambda: None
    waited: float = 0.0
    limit_s: float = 10_000.0

    def instance_id(self) -> str:
        return self.name

    def put(self, bucket: str, key: str, body: bytes, *, once: bool) -> None:
        with self.store.lock:
            if once and key in self.store.objects:
                raise cloud.Exists(key)
            self.store.objects[key] = body

    def get(self, bucket: str, key: str, limit: int = 65536) -> bytes | None:
        return self.store.objects.get(key)

    def list(self, bucket: str, prefix: str, *, folders: bool = False) -> list[str]:
        with self.store.lock:
            found = sorted(key for key in self.store.objects if key.startswith(prefix))
        return sorted({key[len(prefix) :].split("/")[0] for key in found}) if folders else found

    def proof(self, evidence_sha256: str, now: Any) -> dict[str, Any]:
        raise NotImplementedError("the fabric service uploads no evidence, so it never signs a proof")

    @property
    def result(self) -> dict[str, Any]:
        """The stored result."""
        return json.loads((self.folder / f"{self.name}.json").read_text())

    def service(self) -> FabricService:
        """The service of this node; waiting takes no time."""
        return FabricService(
            NODE, EXPECTATION, self, Sessions(NODE, self), result=self.folder / f"{self.name}.json", measure=self._measure,
            ready=lambda: self.waiting, report=self._report, reported=lambda: self.held, wait=self._wait,
        )  # fmt: skip

    def _measure(self, step: fabric.Measure, session: str) -> fabric_run.Measured:
        self.on_measure()
        bad = {self.name, step.partner} & self.slow
        output = {**PAIR, "busbw_gb_s": 61.0 if bad else 441.5, "partner": step.partner}
        outcome = (
            fabric.AllReduceOutcome(fabric.FAIL, "61.0 of 400 GB/s") if bad else fabric.AllReduceOutcome(fabric.PASS)
        )
        return fabric_run.Measured(step.partner, outcome, record(["node.pyz", "pair"], json.dumps(output)))

    def _report(self) -> None:
        self.reports += 1
        if self.lost_reports:
            self.lost_reports -= 1
        else:
            self.held = (self.folder / f"{self.name}.json").read_text()

    def _wait(self, seconds: float) -> None:
        self.waited += seconds
        CLOCK.pause()


class Clock:
    """A clock that moves faster than the real one, because the nodes of a test run in threads."""

    def __init__(self) -> None:
        self.now = 0.0

    def pause(self) -> None:
        threading.Event().wait(0.002)
        self.now += 3.0

    def monotonic(self) -> float:
        return self.now


CLOCK = Clock()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The protocol reads the fast clock."""
    CLOCK.now = 0.0
    monkeypatch.setattr(fabric_run.time, "monotonic", CLOCK.monotonic)


def nodes(folder: Path, count: int, slow: set[str] | None = None, store: Store | None = None, first: int = 1) -> list[Node]:  # fmt: skip
    """Nodes `i-1` to `i-COUNT` with one bucket."""
    shared = store or Store()
    return [Node(shared, f"i-{at}", slow or set(), folder) for at in range(first, first + count)]


def together(*services: FabricService) -> None:
    """All services run once at the same time."""
    threads = [threading.Thread(target=one.once) for one in services]
    for one in threads:
        one.start()
    for one in threads:
        one.join(300)
        assert not one.is_alive()


def states_after(pool: list[Node], attempts: int) -> list[str]:
    """The state of each node after its service has run until it has a result, at most a number of times."""
    services = {node.name: node.service() for node in pool}
    for _ in range(attempts):
        open_ones = [
            node
            for node in pool
            if not (node.folder / f"{node.name}.json").exists() or node.result["state"] == "waiting"
        ]
        together(*(services[node.name] for node in open_ones))
    return [node.result["state"] for node in pool]


def joins(node: Node, number: int = 1) -> list[str]:
    """The processes with which a node joined a test."""
    folder = f"evidence/train/fabric/rendezvous/gpu-bbbbbbbbbbbb/{number:04d}/member/00/AROA1:{node.name}/"
    found = [key.removeprefix(folder) for key in node.store.objects if key.startswith(folder)]
    return [one for one in found if not one.endswith("-left")]


def now(mark: str = "") -> str:
    """The incarnation of a process that starts now."""
    return f"{int(time.time()):010d}-aa{mark}"


def judged(result: dict[str, Any]) -> CheckResult:
    """The outcome of B8 for a stored result."""
    return judge({"fabric-result": record(["cat"], json.dumps(result))}, EXPECTATION)[0]


def test_the_slow_node_of_a_pool_fails_with_its_own_measurement(tmp_path: Path) -> None:
    """Four nodes meet through the bucket. The slow node's result fails check B8, those of the others pass, and each node uploads evidence once."""
    pool = nodes(tmp_path, 4, slow={"i-3"})
    together(*(node.service() for node in pool))
    assert {node.name: node.result["state"] for node in pool} == {"i-1": "good", "i-2": "good", "i-3": "slow", "i-4": "good"}  # fmt: skip
    assert {node.name: judged(node.result)["outcome"] for node in pool} == {"i-1": "pass", "i-2": "pass", "i-3": "fail", "i-4": "pass"}  # fmt: skip
    assert "61.0 GB/s, but a healthy machine reaches 400 GB/s" in present(judged(pool[2].result)["reason"])
    assert [node.reports for node in pool] == [1, 1, 1, 1]
    assert all(key.startswith("evidence/train/fabric/rendezvous/gpu-bbbbbbbbbbbb/0001/") for key in pool[0].store.objects)  # fmt: skip


def test_a_replaced_node_measures_with_idle_nodes_and_not_with_busy_ones(tmp_path: Path) -> None:
    """A node that joins later starts a second test. An idle good node helps and keeps its own result; a busy node does not join."""
    pool = nodes(tmp_path, 3)
    together(*(node.service() for node in pool))
    before = [node.result for node in pool]
    (late,) = nodes(tmp_path, 1, store=pool[0].store, first=9)
    pool[1].waiting = IN_USE
    thread = threading.Thread(target=late.service().once)
    thread.start()
    helpers = [pool[0].service(), pool[1].service()]
    while thread.is_alive():
        together(*helpers)
    assert (late.result["state"], late.result["partner"], late.result["test"]) == ("good", "i-1", 2)
    assert [node.result for node in pool] == before
    assert [node.reports for node in pool] == [1, 1, 1]
    assert not any("/0002/member/" in key and ":i-2/" in key for key in pool[0].store.objects)


def test_a_node_without_partner_waits_and_tries_again(tmp_path: Path) -> None:
    """Alone, a node reports why it waits. Its next attempt joins the same test."""
    (node,) = nodes(tmp_path, 1)
    service = node.service()
    assert service.once() == fabric_service.AGAIN_S
    assert node.result["state"] == "waiting"
    assert "no other node joined within 300 s; the test needs a second node" in node.result["reason"]
    service.once()
    assert node.reports == 1
    assert len(joins(node)) == 2
    assert not any("/0002/" in key for key in node.store.objects)


@pytest.mark.parametrize(
    "waiting", [IN_USE, Waiting(Waits.CHECKS, "other checks of this node failed: G1")], ids=["gpus", "checks"]
)
def test_a_node_that_is_not_ready_does_not_join(tmp_path: Path, waiting: Waiting) -> None:
    """A node with a failed check or a job does not join, and its result contains the reason."""
    (node,) = nodes(tmp_path, 1)
    node.waiting = waiting
    assert node.service().once() == fabric_service.BUSY_S
    assert node.result == {
        "schema": "gpuinfra.fabric-result/1",
        "bundle": "b" * 64,
        "state": "waiting",
        "cause": waiting.cause.value,
        "reason": waiting.reason,
    }
    assert node.reports == 1
    assert node.store.objects == {}


def test_an_unreachable_bucket_is_a_reason_to_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service continues after an error of the cloud."""
    (node,) = nodes(tmp_path, 1)

    def fail(*_: object, **__: object) -> list[str]:
        raise cloud.CloudError("s3://b/evidence could not be listed: 403")

    monkeypatch.setattr(node, "list", fail)
    assert node.service().once() == fabric_service.BUSY_S
    assert node.result["reason"] == "s3://b/evidence could not be listed: 403"


@pytest.mark.parametrize("mark", ["-helper", "-helper-02"])
def test_enough_helpers_are_not_exceeded(tmp_path: Path, mark: str) -> None:
    """Two helpers suffice for one node: a slow node needs two partners. A helper that joined again after a round is a helper."""
    pool = nodes(tmp_path, 4)
    together(*(node.service() for node in pool))
    store = Sessions(NODE, pool[0]).store(2)
    store.put(f"member/00/i-9/{now()}", b"{}")
    for name in ("i-7", "i-8"):
        store.put(f"member/00/{name}/{now(mark)}", b"{}")
    assert pool[0].service().once() == fabric_service.HELP_S
    assert joins(pool[0], 2) == []


@pytest.mark.parametrize("member", [lambda: now("-left"), lambda: "0000000001-aa"], ids=["left", "died"])
def test_a_node_that_left_or_died_needs_no_help(tmp_path: Path, member: Callable[[], str]) -> None:
    """Good nodes join a test only while a node waits in it."""
    pool = nodes(tmp_path, 2)
    together(*(node.service() for node in pool))
    Sessions(NODE, pool[0]).store(2).put(f"member/00/i-9/{member()}", b"{}")
    assert pool[0].service().once() == fabric_service.HELP_S
    assert joins(pool[0], 2) == []


def until_ended(waiting: FabricService, *helpers: FabricService) -> None:
    """Helpers look for a node that waits until this node has taken part in a test."""
    thread = threading.Thread(target=waiting.once)
    thread.start()
    while thread.is_alive():
        together(*helpers)


def test_a_slow_node_does_not_help(tmp_path: Path) -> None:
    """A good node would fail with a slow node as its only partner, so it keeps waiting for another one."""
    pool = nodes(tmp_path, 4, slow={"i-3"})
    together(*(node.service() for node in pool))
    (late,) = nodes(tmp_path, 1, {"i-3"}, store=pool[0].store, first=9)
    until_ended(late.service(), pool[2].service())
    assert late.result["state"] == "waiting"
    assert joins(pool[2], 2) == []
    until_ended(late.service(), pool[0].service(), pool[2].service())
    assert late.result["state"] == "good"


def test_the_good_node_of_a_slow_pair_passes_with_a_replacement(tmp_path: Path) -> None:
    """The result of two nodes that are slow together is unknown. When one of them is replaced, the other one helps, and both are good."""
    pool = nodes(tmp_path, 2, slow={"i-2"})
    together(*(node.service() for node in pool))
    assert [node.result["state"] for node in pool] == ["unknown", "unknown"]
    (late,) = nodes(tmp_path, 1, {"i-2"}, store=pool[0].store, first=9)
    until_ended(late.service(), pool[0].service())
    assert [node.result["state"] for node in (pool[0], late)] == ["good", "good"]
    assert judged(pool[0].result)["outcome"] == "pass"
    assert (pool[0].result["test"], pool[0].reports) == (2, 2)


def test_a_replacement_that_is_slow_too_keeps_the_result_unknown(tmp_path: Path) -> None:
    """A test without a good pair does not change the result of an earlier test."""
    pool = nodes(tmp_path, 2, slow={"i-2", "i-9"})
    together(*(node.service() for node in pool))
    before = pool[0].result
    (late,) = nodes(tmp_path, 1, {"i-2", "i-9"}, store=pool[0].store, first=9)
    until_ended(late.service(), pool[0].service())
    assert (pool[0].result, pool[0].reports, late.result["state"]) == (before, 1, "unknown")


def test_a_node_with_an_unknown_result_joins_also_if_there_are_enough_helpers(tmp_path: Path) -> None:
    """It joins to get a result, so it is not counted as a helper."""
    pool = nodes(tmp_path, 2, slow={"i-2"})
    together(*(node.service() for node in pool))
    store = Sessions(NODE, pool[0]).store(2)
    for name, mark in (("i-7", "-helper"), ("i-8", "-helper"), ("i-9", "")):
        store.put(f"member/00/{name}/{now(mark)}", b"{}")

    def stop() -> None:
        raise cloud.CloudError("stop")

    pool[0].on_measure = stop
    pool[0].service().once()
    (joined,) = joins(pool[0], 2)
    assert "helper" not in joined


@pytest.mark.parametrize("state", ["", "good"])
def test_a_job_that_starts_during_a_test_is_not_disturbed(tmp_path: Path, state: str) -> None:
    """Before each all-reduce, the node checks its GPUs again. If a job uses them, the node leaves, and the other nodes do not wait for it."""
    pool = nodes(tmp_path, 3)
    if state:
        together(*(node.service() for node in pool))
    number = 2 if state else 1
    (late,) = nodes(tmp_path, 1, store=pool[0].store, first=9)
    ready, calls = pool[0], [0]

    def busy_after_the_start() -> Waiting | None:
        calls[0] += 1
        return IN_USE if calls[0] > 1 else None

    service = ready.service()
    service._ready = busy_after_the_start
    before = ready.result if state else None
    measured: list[str] = []
    ready.on_measure = lambda: measured.append("")
    Sessions(NODE, late).store(number).put(f"member/00/{late.name}/{now()}", b"{}")
    assert service.once() == fabric_service.BUSY_S
    assert measured == []
    assert any(f"/{number:04d}/member/00/AROA1:i-1/" in key and key.endswith("-left") for key in ready.store.objects)
    assert ready.result == before if state else ready.result["cause"] == "gpus"


def test_a_result_that_is_not_in_the_evidence_is_reported_again(tmp_path: Path) -> None:
    """If the checks ran while the result was stored, their evidence lacks it, and the service starts them again."""
    pool = nodes(tmp_path, 2)
    pool[0].lost_reports = 1
    together(*(node.service() for node in pool))
    pool[0].held = "an earlier result"
    assert [node.reports for node in pool] == [1, 1]
    for _ in range(3):
        together(*(node.service() for node in pool))
    assert [node.reports for node in pool] == [2, 1]


def test_the_first_evidence_is_not_requested(tmp_path: Path) -> None:
    """Before the first evidence, and with the reason for it, there is nothing to report."""
    (node,) = nodes(tmp_path, 1)
    node.waiting = Waiting(Waits.FIRST_EVIDENCE, "waits for the first evidence of this boot")
    for held in (None, ""):
        node.held = held
        node.service().once()
    assert node.reports == 0


def test_a_node_looks_for_its_first_evidence_every_few_seconds(tmp_path: Path) -> None:
    """All nodes of a new pool wait for their first evidence, so the pause is short; a busy node waits for longer."""
    (node,) = nodes(tmp_path, 1)
    node.waiting = Waiting(Waits.FIRST_EVIDENCE, "waits for the first evidence of this boot")
    assert node.service().once() == fabric_service.FIRST_S < fabric_service.BUSY_S / 10


def test_the_result_in_the_evidence_is_read_from_the_newest_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output of the probe is the content of the file. Evidence of an earlier boot, or without the probe, does not count."""
    file, folder = tmp_path / "fabric.json", evidence.EvidenceFolder(tmp_path / "evidence")
    file.write_text(json.dumps(fabric_result(reason='a "quoted" \\ reason\n')) + "\n")
    output = probe.run(("cat", str(file)), PROBES["fabric-result"])
    monkeypatch.setattr(evidence, "EvidenceFolder", lambda: folder)
    monkeypatch.setattr(evidence, "boot_id", lambda: "boot-2")
    assert fabric_service._in_evidence() is None
    for number, document in enumerate(({"boot_id": "boot-1", "probes": {"fabric-result": output}}, {"boot_id": "boot-2", "probes": {}})):  # fmt: skip
        folder.write(number, json.dumps(document).encode())
        assert fabric_service._in_evidence() is None
    folder.write(9, json.dumps({"boot_id": "boot-2", "probes": {"fabric-result": output}}).encode())
    assert fabric_service._in_evidence() == file.read_text()


def test_the_result_of_another_bundle_does_not_count(tmp_path: Path) -> None:
    """After an update of the bundle without a reboot, the node measures again with the new software."""
    pool = nodes(tmp_path, 2)
    for node in pool:
        (tmp_path / f"{node.name}.json").write_text(json.dumps({**fabric_result(), "bundle": "a" * 64}))
    together(*(node.service() for node in pool))
    assert [(node.result["bundle"], node.result["test"]) for node in pool] == [("b" * 64, 1)] * 2
    (busy,) = nodes(tmp_path, 1, first=5)
    (tmp_path / "i-5.json").write_text(json.dumps({**WAITING, "reason": "processes use the GPUs", "bundle": "a" * 64}))
    busy.waiting = IN_USE
    busy.service().once()
    assert (busy.result["bundle"], busy.reports) == ("b" * 64, 1)


def test_a_later_process_has_a_greater_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that follow each other within a second keep their order, also if an earlier one was a helper, joined again or left."""
    found = []
    for moment, mark in ((1.0, "-helper"), (1.000002, ""), (1.000003, "-helper"), (1.9, ""), (2.0, "")):
        monkeypatch.setattr(fabric_run.time, "time_ns", lambda moment=moment: int(moment * 1e9))
        one = fabric_run.incarnation(mark)
        assert fabric.joined_at(one) == int(moment)
        found += [one, f"{one}-07", f"{one}{fabric.LEFT}"]
    assert found == sorted(found)


def test_a_node_without_partner_makes_longer_pauses(tmp_path: Path) -> None:
    """The pause doubles with each attempt. It stays so much shorter than an attempt that two nodes that wait meet."""
    (node,) = nodes(tmp_path, 1)
    service = node.service()
    assert [service.once() for _ in range(7)] == [5, 10, 20, 40, 80, 120, 120]
    assert 1.2 * fabric_service.HELP_S + 100 < fabric_service.JOIN_S
    assert sum(key.endswith("-left") for key in node.store.objects) == 7


def test_a_node_that_is_often_alone_starts_another_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list request returns the earlier attempts of a test, so their number is limited. The other nodes follow to the newest test."""
    monkeypatch.setattr(fabric_bucket, "MOST_ATTEMPTS", 2)
    (node,) = nodes(tmp_path, 1)
    service = node.service()
    for _ in range(5):
        service.once()
    assert [len(joins(node, number)) for number in (1, 2, 3)] == [2, 2, 1]
    (other,) = nodes(tmp_path, 1, store=node.store, first=2)
    together(service, other.service())
    assert [one.result["state"] for one in (node, other)] == ["good", "good"]


def test_a_pool_with_more_nodes_than_one_test_takes_has_several_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes that have no place in a test start the next one at once. The last node without a partner gets a helper."""
    monkeypatch.setattr(fabric, "MAX_NODES", 2)
    pool = nodes(tmp_path, 5)
    services = [node.service() for node in pool]
    results = [tmp_path / f"{node.name}.json" for node in pool]
    for _ in range(40):
        together(*services)
        if all(one.exists() and json.loads(one.read_text())["state"] == "good" for one in results):
            break
    assert [node.result["state"] for node in pool] == ["good"] * 5
    assert [node.result["nodes"] for node in pool] == [2] * 5
    assert len({node.result["test"] for node in pool}) >= 3


def test_the_wait_for_more_nodes_is_set_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`GPUINFRA_FABRIC_WAIT_S` sets how long a node waits after the last one joined, and changes the other pauses of the service in proportion."""
    waited: list[float] = []
    for wait in ("", "600"):
        monkeypatch.setenv(fabric_service.WAIT_S, wait)
        folder = tmp_path / f"w{wait}"
        folder.mkdir()
        pool = nodes(folder, 2)
        began = CLOCK.now
        together(*(node.service() for node in pool))
        assert [node.result["state"] for node in pool] == ["good", "good"]
        waited.append(CLOCK.now - began)
        pool[0].waiting = IN_USE
        assert pool[0].service().once() == fabric_service.BUSY_S * (60 if wait else 1)
    assert waited[1] > waited[0] + 300


@pytest.mark.parametrize("wait", ["soon", "0", "-5", "nan", "inf"])
def test_a_wait_that_is_no_time_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait: str) -> None:
    """A value of `GPUINFRA_FABRIC_WAIT_S` that is not a positive number of seconds ends the service with a message that names the variable and the value."""
    monkeypatch.setenv(fabric_service.WAIT_S, wait)
    (node,) = nodes(tmp_path, 1)
    with pytest.raises(MissingPrerequisite, match=rf"^GPUINFRA_FABRIC_WAIT_S is '{wait}'; allowed: 1 to 3600"):
        node.service()


@pytest.mark.parametrize("name", ["²", "٣٣٣٣", "9" * 400, "5", "00000005", "0000", "-001", "x", "0005", "99999999"])
def test_a_folder_that_is_no_test_is_ignored(tmp_path: Path, name: str) -> None:
    """A node can write a folder with any name. Only the number that follows the other tests is the newest test."""
    (node,) = nodes(tmp_path, 1)
    tests = Sessions(NODE, node)
    for number in (1, 2, 3):
        tests.store(number).put("member/00/i-9/1", b"{}")
    node.store.objects[f"{FOLDER}{name}/member/00/AROA1:i-9/1"] = b"{}"
    assert tests.newest() == 3


FOLDER = "evidence/train/fabric/rendezvous/gpu-bbbbbbbbbbbb/"


@pytest.mark.parametrize(
    "planted",
    [
        ["99999999/plan/00/AROA1:i-9/verdict"],
        ["0001/plan/00/AROA1:i-9/verdict", "0001/member/00/AROA1:i-9/1"],
        ["0001/plan/05/AROA1:i-9/verdict"],
        ["0001/plan/63/AROA1:i-9/plan", "0001/result/63/AROA1:i-9/pass/i-1"],
        ["0001/member/00/AROA1:i-9/9999999999-000000"],
        [f"{number:04d}/plan/01/AROA1:i-9/verdict" for number in range(1, 40)],
    ],
    ids=[
        "highest number",
        "verdict before a round",
        "verdict of a stranger",
        "late plan",
        "members of the future",
        "closed tests",
    ],
)
@pytest.mark.parametrize("data", [b"{}", b"[" * 100_000, b"\xff\xfe", b'{"schema": "gpuinfra.fabric-plan/1", "members": 1}'], ids=range(4))  # fmt: skip
def test_objects_of_a_hostile_node_do_not_stop_the_test_of_others(
    tmp_path: Path, planted: list[str], data: bytes
) -> None:
    """Whatever a node wrote under its own name, the other nodes of the pool measure with each other and are good."""
    three = nodes(tmp_path, 3)
    for key in planted:
        three[0].store.objects[FOLDER + key] = data
    assert states_after(three, 6) == ["good"] * 3


def test_a_node_that_ends_each_test_is_ignored(tmp_path: Path) -> None:
    """A node that ends test after test with a verdict without the others is ignored after a few tests, and the others measure with each other."""
    three = nodes(tmp_path, 3)
    store = three[0].store

    def hostile() -> None:
        numbers = {key[len(FOLDER) :][:4] for key in list(store.objects) if key.startswith(FOLDER)}
        for number in numbers:
            store.objects.setdefault(f"{FOLDER}{number}/member/00/AROA1:i-0/1", b"{}")
            verdict = {"good": ["i-0"], "slow": {}, "slow_paths": [], "unknown": [], "expected": 1}
            plan = fabric.RoundPlan(9, "i-0", {"i-0": "1"}, verdict=verdict)
            store.objects.setdefault(f"{FOLDER}{number}/plan/09/AROA1:i-0/verdict", plan.dumped())

    for node in three:
        waited = node._wait
        node._wait = lambda seconds, waited=waited: (hostile(), waited(seconds))[1]  # type: ignore[method-assign]
    assert states_after(three, 15) == ["good"] * 3


def test_a_node_that_shuts_down_leaves_its_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After SIGTERM, which systemd sends, the service writes that it leaves, and ends with exit code 0."""
    (node,) = nodes(tmp_path, 1)
    Sessions(NODE, node).store(1).put(f"member/00/i-2/{now()}", b"{}")
    node.on_measure = lambda: os.kill(os.getpid(), signal.SIGTERM)
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(fabric_service, "load", lambda path, *_: NODE if path.name == "node.json" else EXPECTATION)
    monkeypatch.setattr(cloud, "of", lambda _: node)
    monkeypatch.setattr(fabric_service, "FabricService", lambda *_: node.service())
    try:
        with pytest.raises(SystemExit) as ended:
            fabric_service.fabric_service(argparse.Namespace())
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == 0
    (joined,) = joins(node)
    assert any(key.endswith(f"/AROA1:i-1/{joined}-left") for key in node.store.objects)


def test_b8_follows_the_raw_output_and_the_verdict() -> None:
    """Waiting warns, a slow path warns with the partner, and a node passes only if its own raw output and the verdict are good."""
    waiting = judged({"schema": "gpuinfra.fabric-result/1", "state": "waiting", "reason": "no partner"})
    assert (waiting["outcome"], waiting["found"], waiting["reason"]) == ("warn", "waiting", "no partner")
    not_started = judge({"fabric-result": record(["cat"], "", 1)}, EXPECTATION)[0]
    assert (not_started["outcome"], not_started["found"]) == ("warn", "waiting")
    path = judged(fabric_result(slow_paths=["i-7"]))
    assert (path["outcome"], path["found"]) == ("warn", 441.5)
    assert "the path to i-7 is slow" in present(path["reason"])
    bad = record(["pair"], json.dumps({**PAIR, "busbw_gb_s": 61.0}))
    assert judged(fabric_result(pair=bad))["outcome"] == "fail"
    assert "the fabric or the floor can be the cause" in present(
        judged(fabric_result(state="unknown", pair=bad))["reason"]
    )
    slow = judged(fabric_result(state="slow", reason="with i-2: wrong sum"))
    assert (slow["outcome"], slow["reason"]) == ("fail", "with i-2: wrong sum")
    assert "handover.fabric_test" in ALL["B8"].hint


def test_a_node_whose_pairs_all_failed_on_the_other_side_is_slow() -> None:
    """A node that passed in each pair, while its partners did not, keeps the verdict of the pool."""
    measured = [fabric_run.Measured("i-2", fabric.AllReduceOutcome(fabric.PASS), fabric_result()["pair"])]
    verdict = {"good": ["i-2"], "slow": {"i-1": "with i-2: wrong sum"}, "slow_paths": [], "unknown": []}
    found = fabric_service.result_of(
        "i-1", fabric.RoundPlan(3, "i-2", {"i-1": "1", "i-2": "1"}, verdict=verdict), measured, 1
    )
    assert found["state"] == "slow"
    assert judged({"schema": "gpuinfra.fabric-result/1", **found})["outcome"] == "fail"


def test_a_node_whose_partner_never_arrived_still_waits() -> None:
    """A verdict without a measurement of this node is no result."""
    measured = [fabric_run.Measured("i-2", fabric.AllReduceOutcome(fabric.ABSENT), {})]
    verdict = {"good": [], "slow": {}, "slow_paths": [], "unknown": ["i-1"]}
    found = fabric_service.result_of("i-1", fabric.RoundPlan(1, "i-1", {"i-1": "1"}, verdict=verdict), measured, 4)
    assert found == {"state": "waiting", "cause": "partner", "reason": "no partner arrived in the fabric test 4"}


def test_a_partner_that_does_not_arrive_is_absent() -> None:
    """The exit code of `node.pyz pair` decides between a partner that is absent and an all-reduce that failed, whatever it printed."""
    argv = PROBES["pair"].argv
    assert fabric_run._outcome(record(argv, "", NO_PARTNER), EXPECTATION).word == fabric.ABSENT
    text = "vm-1 did not arrive within 300 s"
    assert fabric_run._outcome(record(argv, "", ENVIRONMENT, stderr=text), EXPECTATION).word == fabric.FAIL
