"""The service that takes part in fabric tests: the nodes of a deployment, a replaced node with idle nodes, and the result of each node."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.node import cloud, fabric, fabric_run, fabric_service
from gpuinfra.node.checks import ALL
from gpuinfra.node.fabric_bucket import Sessions
from gpuinfra.node.fabric_service import Service
from gpuinfra.node.judge import judge
from tests.node.healthy import H100, PAIR, fabric_result, record

NODE = {"pool": "gpu", "bundle": {"sha256": "b" * 64}, "evidence": {"bucket": "b", "prefix": "evidence/train", "owner": "AROA1"}}  # fmt: skip
EXPECTATION = {**H100, "required": ["B8"], "skips": {}}


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
    reason: str = ""
    reports: int = 0
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
        raise NotImplementedError

    @property
    def result(self) -> dict[str, Any]:
        """The stored result."""
        return json.loads((self.folder / f"{self.name}.json").read_text())

    def service(self) -> Service:
        """The service of this node; waiting takes no time."""
        return Service(
            NODE, EXPECTATION, self, Sessions(NODE, self), result=self.folder / f"{self.name}.json", measure=self._measure,
            ready=lambda: self.reason, report=self._report, wait=self._wait,
        )  # fmt: skip

    def _measure(self, step: fabric.Measure, session: str) -> fabric_run.Measured:
        bad = {self.name, step.partner} & self.slow
        output = {**PAIR, "busbw_gb_s": 61.0 if bad else 441.5, "partner": step.partner}
        outcome = fabric.Outcome(fabric.FAIL, "61.0 of 400 GB/s") if bad else fabric.Outcome(fabric.PASS)
        return fabric_run.Measured(step.partner, outcome, record(["node.pyz", "pair"], json.dumps(output)))

    def _report(self) -> None:
        self.reports += 1

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


def together(*services: Service) -> None:
    """All services run once at the same time."""
    threads = [threading.Thread(target=one.once) for one in services]
    for one in threads:
        one.start()
    for one in threads:
        one.join(300)
        assert not one.is_alive()


def judged(result: dict[str, Any]) -> dict[str, Any]:
    """The outcome of B8 for a stored result."""
    return judge({"fabric-result": record(["cat"], json.dumps(result))}, EXPECTATION)[0]


def test_the_slow_node_of_a_pool_fails_with_its_own_measurement(tmp_path: Path) -> None:
    """Four nodes meet through the bucket. The slow node's result fails check B8, those of the others pass, and each node uploads evidence once."""
    pool = nodes(tmp_path, 4, slow={"i-3"})
    together(*(node.service() for node in pool))
    assert {node.name: node.result["state"] for node in pool} == {"i-1": "good", "i-2": "good", "i-3": "slow", "i-4": "good"}  # fmt: skip
    assert {node.name: judged(node.result)["outcome"] for node in pool} == {"i-1": "pass", "i-2": "pass", "i-3": "fail", "i-4": "pass"}  # fmt: skip
    assert "61.0 GB/s, but a healthy machine reaches 400 GB/s" in judged(pool[2].result)["reason"]
    assert [node.reports for node in pool] == [1, 1, 1, 1]
    assert all(key.startswith("evidence/train/fabric/rendezvous/gpu-bbbbbbbbbbbb/0001/") for key in pool[0].store.objects)  # fmt: skip


def test_a_replaced_node_measures_with_idle_nodes_and_not_with_busy_ones(tmp_path: Path) -> None:
    """A node that joins later starts a second test. An idle good node helps and keeps its own result; a busy node does not join."""
    pool = nodes(tmp_path, 3)
    together(*(node.service() for node in pool))
    before = [node.result for node in pool]
    (late,) = nodes(tmp_path, 1, store=pool[0].store, first=9)
    pool[1].reason = "processes use the GPUs"
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
    assert sum("/0001/member/" in key for key in node.store.objects) == 2
    assert not any("/0002/" in key for key in node.store.objects)


@pytest.mark.parametrize("reason", ["processes use the GPUs", "other checks of this node failed: G1"])
def test_a_node_that_is_not_ready_does_not_join(tmp_path: Path, reason: str) -> None:
    """A node with a failed check or a job does not join, and its result contains the reason."""
    (node,) = nodes(tmp_path, 1)
    node.reason = reason
    assert node.service().once() == fabric_service.BUSY_S
    assert node.result == {"schema": "gpuinfra.fabric-result/1", "state": "waiting", "reason": reason}
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


def test_enough_helpers_are_not_exceeded(tmp_path: Path) -> None:
    """Two helpers suffice for one node: a slow node needs two partners."""
    pool = nodes(tmp_path, 4)
    together(*(node.service() for node in pool))
    store = Sessions(NODE, pool[0]).store(2)
    store.put("member/00/i-9/0000000001-aa", b"{}")
    for name in ("i-7", "i-8"):
        store.put(f"member/00/{name}/0000000001-aa-helper", b"{}")
    assert pool[0].service().once() == fabric_service.HELP_S
    assert not any("/0002/member/00/AROA1:i-1/" in key for key in pool[0].store.objects)


def test_b8_follows_the_raw_output_and_the_verdict() -> None:
    """Waiting warns, a slow path warns with the partner, and a node passes only if its own raw output and the verdict are good."""
    waiting = judged({"schema": "gpuinfra.fabric-result/1", "state": "waiting", "reason": "no partner"})
    assert (waiting["outcome"], waiting["found"], waiting["reason"]) == ("warn", "waiting", "no partner")
    not_started = judge({"fabric-result": record(["cat"], "", 1)}, EXPECTATION)[0]
    assert (not_started["outcome"], not_started["found"]) == ("warn", "waiting")
    path = judged(fabric_result(slow_paths=["i-7"]))
    assert (path["outcome"], path["found"]) == ("warn", 441.5)
    assert "the path to i-7 is slow" in path["reason"]
    bad = record(["pair"], json.dumps({**PAIR, "busbw_gb_s": 61.0}))
    assert judged(fabric_result(pair=bad))["outcome"] == "fail"
    assert "the fabric or the floor can be the cause" in judged(fabric_result(state="unknown", pair=bad))["reason"]
    slow = judged(fabric_result(state="slow", reason="with i-2: wrong sum"))
    assert (slow["outcome"], slow["reason"]) == ("fail", "with i-2: wrong sum")
    assert "handover.fabric_test" in ALL["B8"].hint


def test_a_node_whose_pairs_all_failed_on_the_other_side_is_slow() -> None:
    """A node that passed in each pair, while its partners did not, keeps the verdict of the pool."""
    measured = [fabric_run.Measured("i-2", fabric.Outcome(fabric.PASS), fabric_result()["pair"])]
    verdict = {"good": ["i-2"], "slow": {"i-1": "with i-2: wrong sum"}, "slow_paths": [], "unknown": []}
    found = fabric_service.result_of(
        "i-1", fabric.Plan(3, "i-2", {"i-1": "1", "i-2": "1"}, verdict=verdict), measured, 1
    )
    assert found["state"] == "slow"
    assert judged({"schema": "gpuinfra.fabric-result/1", **found})["outcome"] == "fail"


def test_a_node_whose_partner_never_arrived_still_waits() -> None:
    """A verdict without a measurement of this node is no result."""
    measured = [fabric_run.Measured("i-2", fabric.Outcome(fabric.ABSENT), {})]
    verdict = {"good": [], "slow": {}, "slow_paths": [], "unknown": ["i-1"]}
    found = fabric_service.result_of("i-1", fabric.Plan(1, "i-1", {"i-1": "1"}, verdict=verdict), measured, 4)
    assert found == {"state": "waiting", "reason": "no partner arrived in the fabric test 4"}
