"""The pairs and the results of the fabric test, in simulated pools with healthy, slow, busy, dead and lying nodes."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from gpuinfra.handover import pairing
from gpuinfra.handover.pairing import RUN_S
from gpuinfra.node.checks import fabric_test
from gpuinfra.node.fabric import FAIL, PASS
from gpuinfra.node.fabric_relay import (
    MAX_REASON,
    MAX_SHEET,
    REPORT,
    FabricRuling,
    FabricSheet,
    NodeCall,
    NodeReport,
    call_of,
    report_of,
)
from gpuinfra.node.outcome import shortened

from .pool_world import HANG_S, POLL_S, READ_S, TEST, Pool, PoolNode, pool, states

State = fabric_test.TestState


@pytest.mark.parametrize("count", [2, 3, 4, 8, 13, 64])
def test_each_node_of_a_healthy_pool_measures_with_log2_partners(count: int) -> None:
    """All nodes are good, and no pair is measured twice. The time grows with the logarithm of the number of nodes."""
    world = pool(count)
    partners = max(1, (count - 1).bit_length())
    assert world.run(4000) < 60 + 70 * partners
    assert states(world) == dict.fromkeys(world.nodes, "good")
    assert set(world.measured.values()) == {2}  # once on each node
    of = [sum(name in pair for pair in world.measured) for name in world.nodes]
    assert max(of) <= partners + 1
    if count in (2, 4, 8, 64):
        assert set(of) == {partners}


def test_the_first_pair_does_not_wait_for_a_node_that_is_late() -> None:
    """Two nodes measure as soon as they are ready. A node that is an hour late measures with a good one."""
    world = pool(3)
    world.nodes["i-0002"].starts = 3600.0
    world.run(600, lambda: len(states(world)) == 2)
    assert world.now < 120
    world.run(5000)
    assert states(world) == dict.fromkeys(world.nodes, "good")
    assert world.now < 3600 + 180


@pytest.mark.parametrize("count", [3, 8, 13])
def test_the_slow_node_is_slow_with_two_partners(count: int) -> None:
    """Only the slow node is slow, and its reason names two partners."""
    world = pool(count)
    world.nodes["i-0001"].slow = True
    world.run(4000)
    assert states(world) == {name: "slow" if name == "i-0001" else "good" for name in world.nodes}
    ruling = world.nodes["i-0001"].ruling
    assert ruling is not None
    assert ruling.reason.count("61.0 of 150 GB/s") == 2


def test_a_slow_path_is_a_warning_of_two_good_nodes() -> None:
    """Both nodes are good with others."""
    path = frozenset(("i-0002", "i-0003"))
    world = pool(8, slow_paths=frozenset((path,)))
    world.run(4000)
    assert states(world) == dict.fromkeys(world.nodes, "good")
    named = {name for one in world.nodes.values() if one.ruling for name in one.ruling.slow_paths}
    assert named <= path
    assert named


def test_two_slow_nodes_without_another_partner_are_unknown_until_one_is_replaced() -> None:
    """Neither node can be blamed. With the replacement, the healthy node is good."""
    world = pool(2)
    world.nodes["i-0001"].slow = True
    world.run(1000)
    assert states(world) == {"i-0000": "unknown", "i-0001": "unknown"}
    world.nodes["i-0001"].dead = True
    world.nodes["i-0009"] = PoolNode("i-0009", starts=world.now)
    world.run(1000, lambda: states(world)["i-0000"] == "good")
    assert (states(world)["i-0000"], states(world)["i-0009"]) == ("good", "good")


@pytest.mark.parametrize("busy", [0, 3])
def test_verified_nodes_help_a_replaced_node_and_keep_their_result(busy: int) -> None:
    """A few good nodes are asked first, and more of them while those run jobs."""
    world = pool(6)
    for number, node in enumerate(world.nodes.values()):
        node.verified = number > 0
        node.busy = 0 < number <= busy
    world.run(1000)
    assert states(world) == {"i-0000": "good"}
    asked = {name for pair in world.measured for name in pair} - {"i-0000"}
    assert 1 <= len(asked) <= 2 + busy


def test_nodes_are_released_when_all_have_results() -> None:
    """The sheet then contains no requests."""
    world = pool(4)
    world.run(2000)
    for node in world.nodes.values():
        node.verified = True
    world.run(2 * POLL_S, lambda: False)
    assert world.sheet.calls == {}
    assert not world.test.is_eventful(world.now + pairing.EVENTFUL_S)


def test_a_busy_node_is_not_paired() -> None:
    """The other nodes do not wait for a node that runs a job. When the job has ended, it measures with a verified node."""
    world = pool(3)
    world.nodes["i-0001"].busy = True
    world.run(1000, lambda: len(states(world)) == 2)
    assert world.now < 120
    world.nodes["i-0001"].busy = False
    world.run(1000)
    assert states(world) == dict.fromkeys(world.nodes, "good")


def test_a_node_that_leaves_before_it_arrives_does_not_delay_its_partner() -> None:
    """The sheet no longer asks its partner for this all-reduce, and the partner measures with another node."""
    world = pool(4)
    world.run(60, lambda: bool(world.sheet.calls.get("i-0000", NodeCall("", 0)).run))
    partner = world.sheet.calls["i-0000"].partner
    world.nodes[partner].busy = True
    began = world.now
    world.run(1000, lambda: len(states(world)) == 3)
    assert world.now - began < 240
    assert partner not in states(world)


def test_a_node_that_dies_during_an_all_reduce_delays_only_its_partner() -> None:
    """The partner fails when its time is over, and is then good with another node."""
    world = pool(4)
    world.run(200, lambda: len(world.measured) == 2)
    (dead, partner) = sorted(next(iter(world.measured)))
    world.nodes[dead].dead = True
    world.run(3000)
    assert {name: state for name, state in states(world).items() if name != dead} == dict.fromkeys(
        world.nodes.keys() - {dead}, "good"
    )
    assert partner in states(world)


def test_a_node_that_still_measures_keeps_its_all_reduce() -> None:
    """After the outcome of one node, the sheet still asks its partner for the same all-reduce, and no other node gets this partner."""
    nodes, test = [PoolNode(f"i-{number}").verdict for number in range(3)], pairing.PoolTest(TEST)
    ready = {one.instance_id: NodeReport(test=TEST, ask=1, ready=True) for one in nodes}
    test.turn(nodes, {}, 0)
    test.turn(nodes, ready, 1)
    asked = test.turn(nodes, ready, 2).calls
    (first, second) = [name for name, call in asked.items() if call.run]
    run = asked[second].run
    arrived = {name: NodeReport(test=TEST, ask=1, ready=True, run=run, gpus=8) for name in (first, second)}
    ended = replace(arrived[first], outcome=PASS)
    for now in (3, 4, 5):
        asked = test.turn(nodes, {**ready, **arrived, first: ended}, now).calls
    assert {name: call.run for name, call in asked.items()} == {
        first: "",
        second: run,
        **{one: "" for one in asked if one not in (first, second)},
    }
    assert asked[second].partner == first


def test_a_node_that_restarts_measures_again() -> None:
    """The pairs of its earlier boot do not count, because their raw output is lost."""
    world = pool(2)
    world.run(1000)
    node = world.nodes["i-0000"]
    node.boot, node.ruling, node.report, node.asks = "boot-0002", None, None, 0
    world.nodes["i-0001"].verified = True
    world.run(1000)
    assert states(world)["i-0000"] == "good"
    assert world.measured[frozenset(world.nodes)] == 4


def test_a_node_whose_evidence_lacks_the_result_is_asked_again() -> None:
    """The service was restarted before it stored the result, so the node measures again after some minutes."""
    world = pool(3)
    world.run(1000)
    node = world.nodes["i-0000"]
    assert node.asks == 1
    node.ruling = None
    world.run(2000)
    assert (states(world)["i-0000"], node.asks) == ("good", 2)


def says(word: str, **more: object):
    """A node that reports this outcome for each all-reduce at once."""

    def report(node: PoolNode, call: NodeCall, world: Pool) -> NodeReport:
        here = NodeReport(
            test=TEST,
            ask=call.ask,
            ready=True,
            run=call.run,
            gpus=8 if call.run else 0,
            outcome=word if call.run else "",
        )
        return replace(here, **more)  # type: ignore[arg-type]

    return report


LIES = {
    "says that all fail": says("fail"),
    "says that all pass": says(PASS),
    "says that its partner did not arrive": says("absent"),
    "arrives and hangs": says(""),
    "never arrives": says("", gpus=0, run=""),
    "other test": says(PASS, test="f" * 16),
    "other request": says(PASS, ask=7),
    "runs of the future": says(PASS, run="000009"),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("count", [4, 9])
def test_a_lying_node_changes_no_other_result(lie: str, count: int) -> None:
    """Each other node is good, at the latest after its partners timed out, and before the default deadline of the handover."""
    world = pool(count, hostile=LIES[lie], liars=frozenset(("i-0001",)))
    others = world.nodes.keys() - {"i-0001"}
    world.run(2700, lambda: others <= states(world).keys())
    assert {name: states(world).get(name) for name in others} == dict.fromkeys(others, "good")
    assert world.now < HANG_S + RUN_S


def test_a_node_that_never_arrives_delays_few_other_nodes() -> None:
    """It is the partner of three nodes, which measure with others afterwards, and of no further node."""
    runs: set[str] = set()

    def never(node: PoolNode, call: NodeCall, world: Pool) -> NodeReport:
        runs.add(call.run)
        return NodeReport(test=TEST, ask=call.ask, ready=True)

    world = pool(16, spread_s=6000.0, hostile=never, liars=frozenset(("i-0001",)))
    world.run(9000, lambda: len(states(world)) == 15)
    assert set(states(world).values()) == {"good"}
    assert len(runs - {""}) == pairing.MOST_MISSED


@pytest.mark.parametrize("count", [128, pytest.param(1000, marks=pytest.mark.long)])
def test_a_large_pool_that_boots_slowly(count: int) -> None:
    """A thousand nodes that boot within 15 minutes have results soon after the last one. The sheet stays below its limit."""
    world = pool(count, spread_s=0.9 * count)
    world.nodes["i-0077"].slow = True
    dead = "i-0042"
    world.nodes[dead].starts = 0.0
    sizes: list[int] = []

    def done() -> bool:
        sizes.append(len(json.dumps(world.sheet.document())) if world.now % 50 < POLL_S else 0)
        if world.now > 100:
            world.nodes[dead].dead = True
        return all(one.ruling or one.dead for one in world.nodes.values())

    assert world.run(5000, done) < 0.9 * count + 1600
    expected = {name: "slow" if name == "i-0077" else "good" for name in world.nodes if name != dead}
    assert {name: state for name, state in states(world).items() if name != dead} == expected
    assert max(sizes) < MAX_SHEET // 2
    assert max(one.reads for one in world.nodes.values()) <= world.now / READ_S + 2


def test_the_largest_sheet_fits() -> None:
    """As many nodes as are asked at once and as many helpers, each with the longest name, and with the longest result that reports lead to."""
    name, boot = "{:0>128}", "1" * 64
    told = report_of(
        {"schema": REPORT, **asdict(NodeReport("", 1)), "test": TEST, "outcome": FAIL, "reason": "\U0001f4a5" * 300}
    )
    assert told is not None
    reason = shortened(f"with i-1: {told.reason}; with i-2: {told.reason}", 2 * MAX_REASON)
    ruling = FabricRuling(State.SLOW, reason, (), 2000)
    calls = {name.format(at): NodeCall(boot, 2, ruling=ruling) for at in range(pairing.MOST_ASKED)}
    arrived = {
        name.format(f"h{at}"): NodeCall(boot, 2, "012345", name.format(at), 1, 8, "f" * 256)
        for at in range(pairing.MOST_ASKED)
    }
    sheet = json.dumps(FabricSheet(TEST, calls | arrived).document())
    assert len(sheet) < MAX_SHEET
    assert call_of(sheet.encode(), name.format(1)) == (TEST, calls[name.format(1)])


def test_a_pool_that_is_larger_than_a_sheet_is_tested_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """No sheet asks more nodes than fit, and each node has a result in the end."""
    monkeypatch.setattr(pairing, "MOST_ASKED", 4)
    world, sizes = pool(18), list[int]()
    world.nodes["i-0003"].slow = True

    def done() -> bool:
        sizes.append(len(world.sheet.calls))
        return len(states(world)) == 18

    world.run(9000, done)
    assert states(world) == {name: "slow" if name == "i-0003" else "good" for name in world.nodes}
    assert 4 <= max(sizes) <= 8
