"""The service that takes part in fabric tests: what it reports, measures and stores for each request of the handover."""

from __future__ import annotations

import argparse
import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.node import cloud, evidence, fabric, fabric_relay, fabric_run, fabric_service, probe
from gpuinfra.node.checks import ALL, fabric_test
from gpuinfra.node.checks.fabric_test import Waits
from gpuinfra.node.console import ENVIRONMENT, NO_PARTNER, MissingPrerequisite
from gpuinfra.node.fabric_relay import FabricRuling, NodeCall, NodeReport
from gpuinfra.node.fabric_service import FabricService, Waiting
from gpuinfra.node.judge import judge
from gpuinfra.node.outcome import CheckResult
from gpuinfra.node.probes import PROBES
from tests.node.healthy import H100, PAIR, fabric_result, record
from tests.typed import present

State = fabric_test.TestState
IN_USE = Waiting(Waits.GPUS, "processes use the GPUs")
BUNDLE = "b" * 64
NODE = {
    "pool": "gpu",
    "bundle": {"bucket": "b", "key": "bootstrap/train/gpu/x.tar.gz", "sha256": BUNDLE},
    "evidence": {"bucket": "b", "prefix": "evidence/train", "owner": "AROA1"},
}
EXPECTATION = {**H100, "required": ["B8"], "skips": {}}
TEST, BOOT = "0123456789abcdef", "11111111-aaaa"
ASKED = NodeCall(BOOT, 1)
GOOD = FabricRuling(State.GOOD, "", ("i-7",), 4)


@dataclass
class Node:
    """A node with its cloud, whose request the test sets."""

    folder: Path
    call: NodeCall | None = None
    word: str = fabric.PASS
    waiting: Waiting | None = None
    held: str | None = ""
    """The result in the newest evidence."""
    reports: int = 0
    lost_reports: int = 0
    """Number of next reports that do not contain the result."""
    sent: list[NodeReport] = field(default_factory=list)
    gets: int = 0
    problem: str = ""
    on_measure: Callable[[], None] = lambda: None
    notice_poll_s: float = 1.0

    def instance_id(self) -> str:
        return "i-1"

    def get(self, bucket: str, key: str, limit: int = 65536) -> bytes | None:
        self.gets += 1
        assert (bucket, key) == ("b", f"bootstrap/train/gpu/{BUNDLE}.fabric.json")
        if self.problem:
            raise cloud.CloudError(self.problem)
        sheet = fabric_relay.FabricSheet(TEST, {"i-1": self.call} if self.call else {})
        return json.dumps(sheet.document()).encode()

    def put(self, bucket: str, key: str, body: bytes, *, once: bool) -> None:
        document = json.loads(body)
        if not key.endswith(".proof.json"):
            assert key == f"evidence/train/AROA1:i-1/{BOOT}/fabric/{len(self.sent) + 1:06d}.json"
            self.sent.append(present(fabric_relay.report_of(document)))

    def proof(self, evidence_sha256: str, now: Any) -> dict[str, Any]:
        return {"sha256": evidence_sha256}

    def notice_sources(self) -> dict[str, Any]:
        return {}

    @property
    def result(self) -> dict[str, Any]:
        """The stored result."""
        return json.loads((self.folder / "result.json").read_text())

    def service(self) -> FabricService:
        """The service of this node."""
        relay = fabric_relay.Relay(NODE, self, BOOT, self.folder / "report.json")
        return FabricService(
            NODE, EXPECTATION, relay, result=self.folder / "result.json", measure=self._measure,
            ready=lambda: self.waiting, report=self._report, reported=lambda: self.held,
        )  # fmt: skip

    def _measure(self, step: fabric.Measure, test: str) -> fabric_run.Measured:
        self.on_measure()
        output = {**PAIR, "busbw_gb_s": 441.5 if self.word == fabric.PASS else 61.0, "partner": step.partner}
        outcome = fabric.AllReduceOutcome(self.word, "" if self.word == fabric.PASS else "61.0 of 400 GB/s")
        return fabric_run.Measured(step.partner, outcome, record(["node.pyz", "pair"], json.dumps(output)))

    def _report(self) -> None:
        self.reports += 1
        if self.lost_reports:
            self.lost_reports -= 1
        else:
            self.held = (self.folder / "result.json").read_text()


def after(node: Node, *calls: NodeCall | None, service: FabricService | None = None) -> list[tuple[bool, str, str]]:
    """Run the service once for each request. Return what it reported: ready, the all-reduce and its outcome."""
    service = service or node.service()
    for call in calls:
        node.call = call
        service.once()
    return [(one.ready, one.run, one.outcome) for one in node.sent]


RUN = replace(ASKED, run="0001", partner="i-2")


def judged(result: dict[str, Any]) -> CheckResult:
    """The outcome of B8 for a stored result."""
    return judge({"fabric-result": record(["cat"], json.dumps(result))}, EXPECTATION)[0]


def test_a_node_reports_measures_and_stores_its_result(tmp_path: Path) -> None:
    """The node reports that it is ready, then the outcome of each all-reduce, each once. The result contains the raw output, and is uploaded once."""
    node = Node(tmp_path)
    calls = (None, ASKED, ASKED, RUN, RUN, ASKED, replace(ASKED, ruling=GOOD), replace(ASKED, ruling=GOOD), None)
    assert after(node, *calls) == [(True, "", ""), (True, "0001", "pass")]
    assert (node.result["state"], node.result["partner"], node.result["slow_paths"], node.result["nodes"]) == ("good", "i-2", ["i-7"], 4)  # fmt: skip
    assert judged(node.result)["outcome"] == "warn"
    assert node.reports == 1


def test_a_slow_node_fails_with_its_own_measurement_and_does_not_help(tmp_path: Path) -> None:
    """Its result contains the failed all-reduce. Afterwards, it does not read the sheet."""
    node = Node(tmp_path, word=fabric.FAIL)
    service = node.service()
    after(node, ASKED, RUN, replace(ASKED, ruling=FabricRuling(State.SLOW, "with i-2: 61.0")), service=service)
    assert judged(node.result)["outcome"] == "fail"
    read = node.gets
    after(node, replace(ASKED, ask=2), service=service)
    assert (node.gets, len(node.sent)) == (read, 2)


def test_a_good_node_helps_and_keeps_its_result(tmp_path: Path) -> None:
    """A good node that is asked measures, and neither a later ruling nor a slow partner changes its result."""
    node = Node(tmp_path)
    after(node, ASKED, RUN, replace(ASKED, ruling=GOOD))
    before = node.result
    node.word = fabric.FAIL
    again = replace(ASKED, ask=2)
    sent = after(node, again, replace(again, run="0009", partner="i-9"), replace(again, ruling=FabricRuling(State.SLOW)))  # fmt: skip
    assert sent[2:] == [(True, "", ""), (True, "0009", "fail")]
    assert (node.result, node.reports) == (before, 1)


def test_an_unknown_result_is_replaced_by_a_later_good_one(tmp_path: Path) -> None:
    """A node whose test had no good pair measures again when it is asked. A second unknown result changes nothing."""
    node = Node(tmp_path, word=fabric.FAIL)
    service = node.service()
    unknown = FabricRuling(State.UNKNOWN)
    after(node, ASKED, RUN, replace(ASKED, ruling=unknown), service=service)
    again = replace(ASKED, ask=2)
    after(node, again, replace(again, run="0002", partner="i-3"), replace(again, ruling=unknown), service=service)
    assert (node.result["state"], node.result["partner"], node.reports) == ("unknown", "i-2", 1)
    node.word = fabric.PASS
    third = replace(ASKED, ask=3)
    after(node, third, replace(third, run="0003", partner="i-4"), replace(third, ruling=GOOD), service=service)
    assert (node.result["state"], node.result["partner"], node.reports) == ("good", "i-4", 2)


@pytest.mark.parametrize(
    "waiting", [IN_USE, Waiting(Waits.CHECKS, "other checks of this node failed: G1")], ids=["gpus", "checks"]
)
def test_a_node_that_is_not_ready_does_not_take_part(tmp_path: Path, waiting: Waiting) -> None:
    """A node with a failed check or a job reports nothing, and its evidence contains the reason once."""
    node = Node(tmp_path, call=ASKED, waiting=waiting)
    service = node.service()
    assert [service.once(), service.once()] == [fabric_service.BUSY_S] * 2
    assert node.result == {
        "schema": "gpuinfra.fabric-result/1",
        "bundle": BUNDLE,
        "state": "waiting",
        "cause": waiting.cause.value,
        "reason": waiting.reason,
    }
    assert (node.sent, node.reports) == ([], 1)


def test_a_job_that_starts_after_the_report_is_not_disturbed(tmp_path: Path) -> None:
    """Before each all-reduce, the node checks its GPUs again, and reports that it is not ready. When the job has ended, it is ready again."""
    node = Node(tmp_path)
    service = node.service()
    after(node, ASKED, service=service)
    node.waiting = IN_USE
    node.on_measure = lambda: pytest.fail("the node measures")
    assert after(node, RUN, service=service) == [(True, "", ""), (False, "", "")]
    assert node.result["cause"] == "gpus"
    node.waiting = None
    assert after(node, ASKED, service=service)[2:] == [(True, "", "")]


def test_an_all_reduce_that_a_restart_interrupted_is_absent(tmp_path: Path) -> None:
    """A new process of the service does not start the same all-reduce again."""
    node = Node(tmp_path)
    after(node, ASKED)
    fabric_relay.Relay(NODE, node, BOOT, tmp_path / "report.json").send(replace(node.sent[-1], run="0001", gpus=8))
    assert after(node, RUN)[2:] == [(True, "0001", "absent")]


def test_a_result_without_a_measurement_of_this_process_is_no_result(tmp_path: Path) -> None:
    """The raw output was lost with an earlier process, so the node waits, and the handover asks again."""
    node = Node(tmp_path)
    after(node, replace(ASKED, ruling=GOOD))
    assert (node.result["state"], node.result["cause"]) == ("waiting", "partner")


@pytest.mark.parametrize(
    ("test", "boot", "schema"),
    [("", BOOT, fabric_relay.SHEET), (TEST, "22222222-bbbb", fabric_relay.SHEET), (TEST, BOOT, "other")],
    ids=["ended", "other boot", "other schema"],
)
def test_other_sheets_ask_for_nothing(tmp_path: Path, test: str, boot: str, schema: str) -> None:
    """A sheet of a command that has ended, of an earlier boot or of another format asks for nothing."""
    sheet = {**fabric_relay.FabricSheet(test, {"i-1": replace(RUN, boot=boot)}).document(), "schema": schema}
    node = Node(tmp_path)
    node.get = lambda *_: json.dumps(sheet).encode()  # type: ignore[method-assign]
    assert after(node, None) == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        b"[" * 100_000,
        b'{"schema": "gpuinfra.fabric-sheet/1", "nodes": {"i-1": {"x": 1}}}',
        b'{"schema": "gpuinfra.fabric-sheet/1", "nodes": 1}',
    ],
    ids=range(6),
)
def test_a_damaged_sheet_asks_for_nothing(data: bytes) -> None:
    """A sheet that is no sheet is like no sheet."""
    assert fabric_relay.call_of(data, "i-1") is None


def test_a_sheet_contains_what_it_asks_for() -> None:
    """A request is the same after it was written and read."""
    call = replace(RUN, place=1, gpus=8, unique_id="ab" * 128)
    for one in (ASKED, call, replace(ASKED, ruling=GOOD)):
        data = json.dumps(fabric_relay.FabricSheet(TEST, {"i-1": one}).document()).encode()
        assert fabric_relay.call_of(data, "i-1") == (TEST, one)


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "x"}, {"test": "0" * 15}, {"test": 1}, {"ask": True}, {"ask": "1"}, {"ready": 1}, {"run": "x"}, {"run": "1234567"},
        {"gpus": -1}, {"gpus": 65}, {"gpus": 1.5}, {"unique_id": "00"}, {"unique_id": "g" * 256}, {"outcome": "bye"}, {"reason": None}, {"reason": ["x"]},
    ],
    ids=lambda change: f"{next(iter(change))}={str(next(iter(change.values())))[:12]}",
)  # fmt: skip
def test_a_report_with_a_wrong_field_is_no_report(change: dict[str, object]) -> None:
    """Each field has its form."""
    report = {"schema": fabric_relay.REPORT, **NodeReport(test=TEST, ask=1, ready=True).__dict__}
    assert fabric_relay.report_of(report) is not None
    assert fabric_relay.report_of({**report, **change}) is None


def test_an_unreachable_bucket_is_a_reason_to_wait(tmp_path: Path) -> None:
    """The service continues after an error of the cloud."""
    node = Node(tmp_path, problem="s3://b/bootstrap could not be read: 500")
    assert node.service().once() == fabric_service.BUSY_S
    assert node.result["reason"] == "s3://b/bootstrap could not be read: 500"


def test_a_result_that_is_not_in_the_evidence_is_reported_again(tmp_path: Path) -> None:
    """If the checks ran while the result was stored, their evidence lacks it, and the service starts them again."""
    node = Node(tmp_path, lost_reports=1)
    service = node.service()
    after(node, ASKED, RUN, *[replace(ASKED, ruling=GOOD)] * 4, service=service)
    assert node.reports == 2


def test_before_the_first_evidence_the_node_reads_no_sheet(tmp_path: Path) -> None:
    """All nodes of a new pool wait for their first evidence, so the pause is short, and costs no request."""
    node = Node(tmp_path, call=ASKED, held=None)
    assert node.service().once() == fabric_service.FIRST_S < fabric_service.BUSY_S / 10
    assert (node.gets, node.reports) == (0, 0)


def test_the_pauses_grow_until_something_changes(tmp_path: Path) -> None:
    """A node without a request reads the sheet once a minute, and a node that takes part every ten seconds. A change starts with a short pause."""
    node = Node(tmp_path)
    service = node.service()
    assert [round(service.once()) for _ in range(10)] == [3, 4, 7, 10, 15, 23, 34, 51, 60, 60]
    node.call = ASKED
    assert [round(service.once()) for _ in range(6)] == [2, 3, 4, 7, 10, 10]
    node.call = RUN
    assert service.once() == fabric_service.START_S


def test_the_result_of_another_bundle_does_not_count(tmp_path: Path) -> None:
    """After an update of the bundle without a reboot, the node measures again with the new software."""
    (tmp_path / "result.json").write_text(json.dumps({**fabric_result(), "state": "slow", "bundle": "a" * 64}))
    node = Node(tmp_path)
    node.held = (tmp_path / "result.json").read_text()
    after(node, ASKED, RUN, replace(ASKED, ruling=GOOD))
    assert (node.result["bundle"], node.result["state"]) == (BUNDLE, "good")


def test_the_longest_pause_is_set_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`GPUINFRA_FABRIC_WAIT_S` sets the longest pause of a node that takes part, and changes the other pauses in proportion."""
    monkeypatch.setenv(fabric_service.WAIT_S, "1")
    node = Node(tmp_path, call=ASKED)
    service = node.service()
    assert [service.once() for _ in range(6)][-1] == 1
    node.waiting, node.call = IN_USE, replace(ASKED, ask=2)
    assert service.once() == fabric_service.BUSY_S / 10


@pytest.mark.parametrize("wait", ["soon", "0", "-5", "nan", "inf"])
def test_a_wait_that_is_no_time_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait: str) -> None:
    """A value of `GPUINFRA_FABRIC_WAIT_S` that is not a positive number of seconds ends the service with a message that names the variable and the value."""
    monkeypatch.setenv(fabric_service.WAIT_S, wait)
    with pytest.raises(MissingPrerequisite, match=rf"^GPUINFRA_FABRIC_WAIT_S is '{wait}'; allowed: 1 to 3600"):
        Node(tmp_path).service()


def test_a_node_that_shuts_down_takes_no_further_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After SIGTERM, which systemd sends, the service reports that it is not ready, and ends with exit code 0."""
    node = Node(tmp_path)
    after(node, ASKED)
    node.call = RUN
    node.on_measure = lambda: os.kill(os.getpid(), signal.SIGTERM)
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(fabric_service, "load", lambda path, *_: NODE if path.name == "node.json" else EXPECTATION)
    monkeypatch.setattr(cloud, "of", lambda _: node)
    monkeypatch.setattr(evidence, "boot_id", lambda: BOOT)
    monkeypatch.setattr(fabric_service, "FabricService", lambda *_: node.service())
    try:
        with pytest.raises(SystemExit) as ended:
            fabric_service.fabric_service(argparse.Namespace())
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == 0
    assert [one.ready for one in node.sent] == [True, False]


def test_a_number_that_another_node_used_is_skipped(tmp_path: Path) -> None:
    """Where nodes share a folder, another node can create the next names. The report gets a later number, and the next one follows it."""
    node = Node(tmp_path)
    taken = {f"evidence/train/i-1/{BOOT}/fabric/{number:06d}.json" for number in range(1, 9)}
    stored: list[str] = []

    def put(bucket: str, key: str, body: bytes, *, once: bool) -> None:
        assert once
        if key in taken:
            raise cloud.Exists(key)
        taken.add(key)
        stored.append(key)
        assert key.endswith(".proof.json") or json.loads(body)["seq"] == int(key.rpartition("/")[2][:6])

    node.put = put  # type: ignore[method-assign]
    shared = {**NODE, "evidence": {"bucket": "b", "prefix": "evidence/train"}}
    relay = fabric_relay.Relay(shared, node, BOOT, tmp_path / "report.json")
    for _ in range(2):
        relay.send(NodeReport(test=TEST, ask=1))
    first, second = [int(key.rpartition("/")[2][:6]) for key in stored if ".proof" not in key]
    assert second == first + 1 > 9


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


def test_a_partner_that_does_not_arrive_is_absent() -> None:
    """The exit code of `node.pyz pair` decides between a partner that is absent and an all-reduce that failed, whatever it printed."""
    argv = PROBES["pair"].argv
    assert fabric_run._outcome(record(argv, "", NO_PARTNER), EXPECTATION).word == fabric.ABSENT
    text = "vm-1 did not arrive within 300 s"
    assert fabric_run._outcome(record(argv, "", ENVIRONMENT, stderr=text), EXPECTATION).word == fabric.FAIL
