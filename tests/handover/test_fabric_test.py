"""The handover of pools whose nodes must pass the fabric test (check B8)."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gpuinfra.handover.causes import CapacityCause
from gpuinfra.handover.evidence import NotEvidence, evidence_of
from gpuinfra.handover.examine import judge_node
from gpuinfra.handover.explain import hint, reasons
from gpuinfra.handover.gather import Gatherer
from gpuinfra.handover.judge import FleetVerdict
from gpuinfra.handover.ports import EvidenceRef, GroupExpected, GroupProblem, PoolExpected, PortUnavailable
from gpuinfra.handover.relay import FabricRelay
from gpuinfra.handover.watch import RELAY_POLL_S, Wait, WaitOutcome, watch
from gpuinfra.node.fabric_relay import REPORT, NodeReport
from tests.node.healthy import H100, PAIR, fabric_result, record

from .fleet import BUNDLE, INSIDE, LAUNCHED, ROLE, Fleet, instance, pool

EXPECTATION = {**H100, "required": ["B8"], "skips": {}}
WAITING = {"schema": "gpuinfra.fabric-result/1", "state": "waiting", "reason": "no other node joined within 300 s"}
SLOW = fabric_result(
    state="slow",
    reason="with i-1: 61.0 GB/s; with i-4: 61.0 GB/s",
    pair=record(["node.pyz", "pair"], json.dumps({**PAIR, "busbw_gb_s": 61.0})),
)


def expected(count: int = 2, **more: Any) -> PoolExpected:
    """A pool whose only required check is the fabric test, judged with the code of the node program."""
    return pool(count, expectation=EXPECTATION, **more)


def report(fleet: Fleet, number: int, result: Mapping[str, Any] | None = None, seq: int = 1) -> None:
    """Evidence with a result of the fabric test, or without the file."""
    output = record(["cat"], json.dumps(result)) if result else record(["cat"], "", 1)
    fleet.report(number, seq=seq, document={"probes": {"fabric-result": output}})


def fleet_of(*results: Mapping[str, Any] | None) -> Fleet:
    """One node for each result."""
    fleet = Fleet()
    for number, result in enumerate(results, 1):
        fleet.launch(number)
        report(fleet, number, result)
    return fleet


def poll(fleet: Fleet, wanted: PoolExpected) -> FleetVerdict:
    """One poll."""
    return Gatherer(fleet.ports, [wanted], judge_node=judge_node, workers=INSIDE).poll()


class Always(threading.Event):
    """A wait that takes no time."""

    def wait(self, timeout: float | None = None) -> bool:
        return False


def waited(fleet: Fleet, wanted: PoolExpected, mode: str = "all") -> tuple[WaitOutcome, list[str]]:
    """One complete wait, and its progress lines. Each poll takes 20 seconds."""
    seconds, lines = iter(range(0, 100_000, 20)), list[str]()
    gatherer = Gatherer(fleet.ports, [wanted], judge_node=judge_node, workers=INSIDE)
    outcome = watch(
        gatherer,
        Wait(mode=mode, deadline_s=600),
        log=lines.append,
        cancelled=Always(),
        clock=lambda: float(next(seconds)),
        relay=FabricRelay(fleet, "train", [wanted]),
    )
    return outcome, lines


def test_nodes_that_passed_with_each_other_are_verified() -> None:
    """A result with the raw output of a good all-reduce verifies a node."""
    assert poll(fleet_of(fabric_result(), fabric_result()), expected()).complete


@pytest.mark.parametrize("result", [None, WAITING], ids=["not started", "no partner"])
def test_a_node_without_result_is_waited_for(result: Mapping[str, Any] | None) -> None:
    """The handover waits until the deadline. Its message states the reason and how to switch the test off."""
    fleet = fleet_of(fabric_result(), result)
    node = poll(fleet, expected()).nodes[1]
    assert (node.outcome, node.settled, node.untested, node.gpus_verified) == ("waiting", False, True, 0)
    why = "no other node joined within 300 s" if result else "no command has asked this node for the fabric test"
    assert node.reason == f"the node has no result of the fabric test yet: {why}"
    assert "set handover.fabric_test to off" in hint(node)
    outcome, lines = waited(fleet, expected())
    assert (outcome.ready, outcome.ended) == (False, "deadline")
    assert "1 of 2 nodes verified; gpu-2 waiting for the fabric test" in lines
    assert "stop the jobs on one node" in reasons(outcome, "aws")[1]


def test_a_later_result_verifies_the_node() -> None:
    """Newer evidence with a result ends the wait."""
    fleet = fleet_of(fabric_result(), WAITING)
    gatherer = Gatherer(fleet.ports, [expected()], judge_node=judge_node, workers=INSIDE)
    assert not gatherer.poll().complete
    report(fleet, 2, fabric_result(), seq=2)
    assert gatherer.poll().complete


def test_the_slow_node_fails_and_its_partners_pass() -> None:
    """The error names the slow node with its own figure. The node's claim to be good does not help, because its raw output is judged."""
    for result in (SLOW, {**SLOW, "state": "good"}):
        outcome, _ = waited(fleet_of(fabric_result(), fabric_result(), result), expected(3))
        assert (outcome.ended, outcome.verdict.verified) == ("settled", 2)
        (text,) = reasons(outcome, "aws")[1:]
        assert text.startswith("gpu-3 (")
        assert "B8 fabric_test: found 61.0, expected 400.0 GB/s" in text


def test_a_slow_path_between_good_nodes_does_not_block() -> None:
    """A slow path is a warning of both nodes."""
    verdict = poll(fleet_of(fabric_result(slow_paths=["i-2"]), fabric_result(slow_paths=["i-1"])), expected())
    assert verdict.complete
    assert [node.checks[0]["outcome"] for node in verdict.nodes] == ["warn", "warn"]


def test_a_pool_of_one_node_needs_no_partner() -> None:
    """One node has no partner, so it is verified without a result."""
    assert poll(fleet_of(WAITING), expected(1)).complete


def test_a_pool_that_does_not_require_the_test_ignores_its_result() -> None:
    """Without B8 in the expectation, nothing changes."""
    fleet = Fleet()
    fleet.launch(1)
    fleet.launch(2)
    for number in (1, 2):
        fleet.report(number, document={"probes": {"fabric-result": record(["cat"], json.dumps(SLOW)), "gpus": 8}})
    wanted = pool(2, expectation={**EXPECTATION, "required": ["P2"], "skips": {}})
    assert "B8" not in {check["id"] for node in poll(fleet, wanted).nodes for check in node.checks}


def test_a_canary_without_partner_lets_the_group_continue() -> None:
    """The first node with a new bundle finds no partner with this bundle.
    Its group continues if its other checks pass, and all nodes are verified afterwards."""
    fleet = fleet_of(WAITING)
    fleet.launch(2, template_version="2")
    report(fleet, 2, fabric_result())

    def replaces(groups: Any) -> list[str]:
        fleet.members_.pop()
        fleet.launch(3)
        report(fleet, 3, fabric_result())
        report(fleet, 1, fabric_result(), seq=2)
        return [group.name for group in groups]

    fleet.on_proceed = lambda groups: replaces(groups) if groups else []
    outcome, lines = waited(fleet, expected())
    assert "gpu-reserved-0: the canary is verified; replacing the other nodes" in lines
    assert (outcome.ready, outcome.verdict.verified) == (True, 2)


UNKNOWN = {**SLOW, "state": "unknown", "reason": "61.0 GB/s"}
FAILED = {**fabric_result(), "schema": "other"}
"""A result that no node writes: check B8 fails, and the node cannot be a partner."""


@pytest.mark.parametrize("other", [SLOW, FAILED], ids=["slow", "broken"])
def test_a_node_without_a_possible_partner_ends_the_wait(other: Mapping[str, Any]) -> None:
    """If all other nodes of the pool have failed, no partner can come, and `up` does not wait until the deadline."""
    outcome, _ = waited(fleet_of(other, WAITING), expected())
    assert (outcome.ended, outcome.verdict.verified) == ("settled", 0)
    assert "gpu-2 (" in reasons(outcome, "aws")[2]
    assert "has no result of the fabric test yet" in reasons(outcome, "aws")[2]


def advice(verdict: FleetVerdict, label: str) -> str:
    """The advice for one node."""
    return next(hint(node) for node in verdict.nodes if node.label == label)


NEEDS = "the test needs a second node of the pool with the same bundle; {} must pass its checks first, so repair or replace it if it failed or does not report"


def test_the_advice_for_a_healthy_node_names_the_broken_nodes_that_it_waits_for() -> None:
    """If all other nodes are broken or never report, the advice is to repair or replace them, and not to disable the test."""
    assert advice(poll(fleet_of(FAILED, WAITING), expected()), "gpu-2") == NEEDS.format("gpu-1")
    silent = fleet_of(SLOW, WAITING)
    silent.launch(3)
    assert advice(poll(silent, expected(3)), "gpu-2") == NEEDS.format("one of gpu-1, gpu-3")
    many = fleet_of(WAITING, *[SLOW] * 8)
    assert advice(poll(many, expected(9)), "gpu-1") == NEEDS.format("one of gpu-2, gpu-3, gpu-4, gpu-5, gpu-6, 3 more")
    missing = poll(fleet_of(WAITING), expected())
    assert advice(missing, "gpu-1") == NEEDS.format("a missing node of gpu-reserved-0")


@pytest.mark.parametrize("other", [WAITING, fabric_result(), UNKNOWN], ids=["waiting", "good", "unknown"])
def test_a_broken_node_does_not_block_the_test_of_two_other_nodes(other: Mapping[str, Any]) -> None:
    """While another node can be the partner, the advice is about the jobs on this node."""
    assert "stop the jobs on one node" in advice(poll(fleet_of(FAILED, WAITING, other), expected(3)), "gpu-2")


@pytest.mark.parametrize("other", [WAITING, fabric_result(), UNKNOWN], ids=["waiting", "good", "unknown"])
def test_a_node_with_a_possible_partner_is_waited_for(other: Mapping[str, Any]) -> None:
    """A node that waits, a good node, and a node whose test had no good pair can be the partner."""
    outcome, _ = waited(fleet_of(other, WAITING), expected())
    assert outcome.ended == "deadline"


def test_a_node_of_another_pool_is_no_partner() -> None:
    """Only nodes of one pool measure with each other."""
    fleet = fleet_of(SLOW, WAITING)
    fleet.launch(3, group="asg-2")
    report(fleet, 3, fabric_result())
    second = GroupExpected(name="other-reserved-0", group="asg-2", count=1, template_version="3")
    wanted = [expected(), pool(1, name="other", groups=(second,), expectation=EXPECTATION)]
    verdict = Gatherer(fleet.ports, wanted, judge_node=judge_node, workers=INSIDE).poll()
    assert verdict.settled
    assert verdict.verified == 1


def test_two_nodes_without_a_good_pair_end_the_wait() -> None:
    """The fabric or the floor is the cause, and waiting does not change it."""
    outcome, _ = waited(fleet_of(UNKNOWN, UNKNOWN), expected())
    assert outcome.ended == "settled"


def test_an_unknown_result_is_not_final_while_another_node_is_good() -> None:
    """The replacement reports first, and its partner, which was slow with the replaced node, reports some seconds later."""
    fleet = fleet_of(UNKNOWN, fabric_result())
    gatherer = Gatherer(fleet.ports, [expected()], judge_node=judge_node, workers=INSIDE)
    assert not gatherer.poll().settled
    report(fleet, 1, fabric_result(), seq=2)
    assert gatherer.poll().complete


def test_missing_capacity_ends_the_wait_of_the_other_node() -> None:
    """If the cloud has no capacity for the second node, the wait ends after minutes, although the first node has no result yet."""
    fleet = fleet_of(WAITING)
    fleet.problems_ = [
        GroupProblem(group="asg-1", cause=CapacityCause.STOCK_OUT, message="InsufficientInstanceCapacity: no capacity")
    ]
    outcome, _ = waited(fleet, expected())
    assert outcome.ended == "stock-out"


def test_outdated_nodes_end_the_wait_of_an_untested_canary() -> None:
    """If the group does not continue after its first node, this is reported as for a verified node."""
    fleet = fleet_of(WAITING)
    fleet.launch(2, template_version="2")
    report(fleet, 2, fabric_result())
    outcome, _ = waited(fleet, expected())
    assert outcome.ended == "stale"


def test_a_failed_canary_ends_the_wait_while_another_group_is_untested() -> None:
    """A node that waits for the fabric test has reported."""
    fleet = fleet_of(SLOW)
    fleet.launch(2, template_version="2")
    fleet.launch(3, group="asg-2")
    fleet.launch(4, group="asg-2")
    report(fleet, 3, WAITING)
    report(fleet, 4, WAITING)
    second = GroupExpected(name="gpu-reserved-1", group="asg-2", count=2, template_version="3")
    wanted = expected(2)
    outcome, _ = waited(fleet, replace(wanted, groups=(*wanted.groups, second)))
    assert outcome.ended == "canary"


SHEET = f"bootstrap/train/gpu/{BUNDLE}.fabric.json"


def test_nodes_without_a_result_are_asked_while_the_command_waits() -> None:
    """The sheet next to the bundle asks each node without a result. When the command ends, the sheet contains no requests."""
    fleet = fleet_of(WAITING, WAITING, fabric_result())
    waited(fleet, expected(3))
    assert {key for key, _ in fleet.sheets} == {SHEET}
    asked = [sheet["nodes"] for _, sheet in fleet.sheets]
    assert asked[0] == {instance(at): {"boot": "boot-0001", "ask": 1} for at in (1, 2)}
    assert (asked[-1], fleet.sheets[-1][1]["test"]) == ({}, "")


@pytest.mark.parametrize(("mode", "result"), [("none", WAITING), ("all", fabric_result())], ids=["one poll", "no wait"])
def test_a_command_that_does_not_wait_writes_nothing(mode: str, result: Mapping[str, Any]) -> None:
    """A refresh, and an `up` whose nodes are verified, need no permission to write."""
    fleet = fleet_of(result, result)
    waited(fleet, expected(), mode)
    assert fleet.sheets == []


def test_a_pool_without_the_test_has_no_sheet() -> None:
    """Nothing is written for a pool that does not require check B8."""
    fleet = Fleet()
    fleet.launch(1)
    waited(fleet, pool(1))
    assert fleet.sheets == []


def test_a_command_that_cannot_write_says_what_to_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without permission to write next to the bundle, the test cannot run. The message names the object and the alternatives."""
    fleet = fleet_of(WAITING, WAITING)

    def refuse(*_: object) -> None:
        raise PortUnavailable("AccessDenied: s3:PutObject")

    monkeypatch.setattr(fleet, "publish", refuse)
    outcome, lines = waited(fleet, expected())
    assert len([one for one in lines if one.startswith("the fabric test does not continue; retrying: ")]) == 1
    text = reasons(outcome, "aws")[-1]
    assert text.startswith(f"the object {SHEET} of the fabric test cannot be written: AccessDenied: s3:PutObject")
    assert "or set handover.fabric_test to off" in text


def test_polls_follow_each_other_quickly_only_while_nodes_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first request, the next poll follows at once. When nothing happens for minutes, the pauses grow as without the test."""
    pauses: list[float] = []

    def pause(self: Always, timeout: float | None = None) -> bool:
        pauses.append(timeout or 0.0)
        return False

    monkeypatch.setattr(Always, "wait", pause)
    wanted, now = expected(), iter(range(0, 100_000, 20))
    fleet = fleet_of(WAITING, WAITING)
    gatherer = Gatherer(fleet.ports, [wanted], judge_node=judge_node, workers=INSIDE)
    time_of_relay = iter(range(0, 100_000, 20))
    relay = FabricRelay(fleet, "train", [wanted], clock=lambda: float(next(time_of_relay)))
    watch(
        gatherer,
        Wait(deadline_s=2000),
        log=lambda _: None,
        cancelled=Always(),
        clock=lambda: float(next(now)),
        relay=relay,
    )
    assert pauses[0] == RELAY_POLL_S
    assert pauses[-2] > 5.0


def test_the_members_of_groups_are_read_less_often_during_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clouds limit these requests, so that frequent polls use the members of the last seconds."""
    fleet = fleet_of(WAITING, WAITING)
    reads: list[object] = []
    monkeypatch.setattr(fleet, "members", lambda groups: reads.append(groups) or list(fleet.members_))
    gatherer = Gatherer(fleet.ports, [expected()], judge_node=judge_node, workers=INSIDE)
    gatherer._clock = lambda: 100.0
    for _ in range(3):
        gatherer.poll()
    assert len(reads) == 3
    gatherer.in_test = frozenset((instance(1),))
    for _ in range(3):
        gatherer.poll()
    assert len(reads) == 3
    gatherer._clock = lambda: 103.0
    gatherer.poll()
    assert len(reads) == 4


def test_a_report_of_another_role_does_not_count() -> None:
    """Like evidence, a report counts only if the role of the pool signed it."""
    fleet = fleet_of(WAITING)
    content = {"schema": REPORT, **NodeReport(test="0" * 16, ask=1, ready=True).__dict__}
    fleet.report(1, seq=7, document=content, is_report=True)
    for role, count in ((ROLE, 1), ("other", 0)):
        gatherer = Gatherer(fleet.ports, [expected(1, node_role=role)], judge_node=judge_node, workers=INSIDE)
        assert len(gatherer.reports(gatherer.poll().nodes)) == count


def test_a_report_has_a_lower_limit_than_evidence() -> None:
    """A report is read and parsed up to 16 KiB, because each poll reads those of all nodes."""
    place: dict[str, Any] = {
        "instance_id": instance(1),
        "boot_id": "b",
        "seq": 1,
        "key": "k",
        "etag": "e",
        "modified": LAUNCHED,
    }
    assert EvidenceRef(**place, is_report=True).limit == 16_384 < EvidenceRef(**place).limit
    longest = json.dumps({"schema": REPORT, "reason": ""}).encode().ljust(16_384)
    assert evidence_of(longest, is_report=True).document["schema"] == REPORT
    with pytest.raises(NotEvidence, match="16384"):
        evidence_of(longest + b" ", is_report=True)
