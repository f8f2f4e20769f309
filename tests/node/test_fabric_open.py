"""The fabric test of a pool whose number of nodes is unknown: the nodes of a deployment, and a replaced node with idle nodes."""

from __future__ import annotations

import functools
import random

import pytest

from gpuinfra.node import fabric
from tests.node.fabric_world import MEASURE_S, World
from tests.node.test_fabric import are_few, names, only


@pytest.fixture(autouse=True)
def each_plan_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand simulated nodes read the same plan, so it is parsed once."""
    monkeypatch.setattr(fabric, "plan_of", functools.lru_cache(maxsize=64)(fabric.plan_of))


def started(count: int, spread_s: float = 60.0, **changes: object) -> World:
    """A pool whose nodes boot within some time and do not know each other's number."""
    world = World(nodes=0, **changes)  # pyright: ignore[reportArgumentType]
    at = random.Random(count)
    for name in names(count):
        world.start(name, time=at.uniform(0, spread_s))
    return world


@pytest.mark.parametrize("count", [2, 3, 8, 13, 64])
def test_nodes_start_when_no_other_node_joins(count: int) -> None:
    """All nodes are good in the first test. A small pool starts in less than two minutes after the last node joined."""
    world = started(count, spread_s=20.0)
    first: list[float] = []
    world.before_put = lambda key: first.append(world.now) if key.startswith("plan/00/") else None
    world.run()
    assert only(world) == {"expected": count, "good": names(count), "slow": {}, "slow_paths": [], "unknown": []}
    assert min(first) < 20 + 120
    assert set(world.measured.values()) == {1}


def test_the_first_round_starts_when_the_time_is_over() -> None:
    """The leader publishes the first plan as soon as no other node has joined for the quiet time, and the others read it seconds later."""
    world = started(4, spread_s=0.0)
    plans: list[float] = []
    world.before_put = lambda key: plans.append(world.now) if key.startswith(("plan/00/", "result/00/")) else None
    world.run()
    first_poll_s = 2.0
    assert plans[0] == fabric.QUIET_S + first_poll_s
    assert plans[-1] < plans[0] + first_poll_s + MEASURE_S + 1


@pytest.mark.parametrize("count", [128, pytest.param(1000, marks=pytest.mark.long)])
def test_a_large_pool_that_boots_slowly_finds_the_slow_node_and_the_slow_path(count: int) -> None:
    """A thousand nodes that boot within 15 minutes find the slow node and the slow path, and fewer nodes in less time.

    Nodes die, and one restarts. Requests per node stay O(log n).
    """
    every = names(count)
    path = frozenset((every[count // 3], every[(count // 3) ^ 1]))
    slow = every[count // 13]
    world = World(nodes=0, slow=frozenset((slow,)), slow_paths=frozenset((path,)))
    at, spread_s = random.Random(7), 0.9 * count
    for name in every:
        world.start(name, time=at.uniform(0, spread_s))
    dead = [every[int(share * count)] for share in (0.02, 0.412, 0.998)]
    for order, name in enumerate(dead):
        world.kill(name, spread_s + 100 + 90 * order)
    world.kill(every[count // 2], spread_s + 200)
    world.start(every[count // 2], spread_s + 400)
    world.run()
    found = only(world)
    assert list(found["slow"]) == [slow]  # pyright: ignore[reportArgumentType]
    assert set(found["good"]) == set(every) - {slow} - set(dead)  # pyright: ignore[reportArgumentType]
    assert found["unknown"] == []
    assert [set(one) for one in found["slow_paths"]] in ([], [set(path)])  # pyright: ignore[reportGeneralTypeIssues]
    assert are_few(world, count, more=2 * spread_s / 10)


def test_a_node_without_partner_ends_alone() -> None:
    """A node that no other node joins reports this after the join time, and publishes no plan."""
    world = World(nodes=0, join_s=300.0)
    world.start(names(1)[0])
    world.run()
    (process,) = world.processes
    assert process.ended is fabric.Alone
    assert "no other node joined within 300 s" in process.problem
    assert not [key for key in world.objects if key.startswith("plan/")]


def test_two_replaced_nodes_join_late_and_are_measured_with_good_nodes() -> None:
    """A node that joins during the rounds takes part from the next round on, in the same test."""
    world = started(8, spread_s=5.0)
    world.start("i-late", time=60.0)
    world.run()
    assert sorted(only(world)["good"]) == sorted([*names(8), "i-late"])  # pyright: ignore[reportArgumentType]


def test_a_test_takes_the_maximum_number_of_nodes_and_refuses_the_others_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The nodes with the first names take part, also if others join before each round.
    The others leave the full test within minutes, and can start another one."""
    monkeypatch.setattr(fabric, "MAX_NODES", 8)
    world = started(11, spread_s=5.0)
    world.start("a-late", time=120.0)
    ended: list[float] = []
    world.before_put = lambda key: ended.append(world.now) if key.endswith(fabric.LEFT) else None
    world.run()
    assert only(world)["good"] == names(8)
    refused = {process.name for process in world.processes if process.ended is fabric.TestEnded}
    assert refused == {*names(11)[8:], "a-late"}
    assert len(ended) == 4
    assert max(ended) < 240


def test_a_node_that_restarts_keeps_its_place_in_a_full_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its new process takes part from the next round on, instead of a node that joined earlier and has no place."""
    monkeypatch.setattr(fabric, "MAX_NODES", 4)
    world = started(5, spread_s=5.0)
    world.kill(names(5)[3], 60.0)
    world.start(names(5)[3], 125.0)
    world.run()
    assert only(world)["good"] == names(4)


def test_a_node_that_joins_after_the_verdict_is_not_part_of_it() -> None:
    """The verdict of an earlier test does not count for a node that did not take part."""
    world = started(4, spread_s=5.0)
    world.start("i-late", time=5000.0)
    world.run()
    (late,) = [process for process in world.processes if process.name == "i-late"]
    assert (late.ended, late.plan) == (fabric.TestEnded, None)
    assert "i-late" not in only(world)["good"]  # pyright: ignore[reportOperatorIssue]


def test_a_test_whose_nodes_all_restarted_is_abandoned() -> None:
    """If every node restarts during a round, nobody continues the test, and each node says so instead of waiting for hours."""
    world = started(4, spread_s=5.0)
    for name in names(4):
        world.kill(name, 70.0)
        world.start(name, 300.0)
    world.run()
    again = [process for process in world.processes if process.alive and process.ended]
    assert {process.ended for process in again} == {fabric.TestEnded}
    assert len(again) == 4
    assert world.now < 1000


@pytest.mark.parametrize("restarted", [0, 2])
@pytest.mark.parametrize("count", [0, 4])
def test_a_restart_does_not_delay_the_other_nodes(restarted: int, count: int) -> None:
    """The other nodes do not wait for a process whose node has joined again, also if it was the leader. All nodes are good within minutes."""
    world = World(nodes=count)
    for name in names(4):
        world.start(name, time=1.0)
    world.kill(names(4)[restarted], 60.0)
    world.start(names(4)[restarted], 125.0)
    world.run()
    assert only(world)["good"] == names(4)
    assert world.now < 700


def test_another_node_replaces_a_dead_leader_within_half_an_hour() -> None:
    """If the leader dies during the first round, the next node takes over soon after the time limit of the round."""
    world = started(4, spread_s=5.0)
    world.kill(names(4)[0], 60.0)
    world.run()
    assert only(world)["good"] == names(4)[1:]
    assert world.now < 1900


@pytest.mark.parametrize("left", [0, 1, 3])
def test_a_node_that_leaves_does_not_delay_the_other_nodes(left: int) -> None:
    """A node that shuts down during a round is not in the next round, and is not waited for."""
    world = started(4, spread_s=5.0)
    world.terminate(names(4)[left], 60.0)
    world.run()
    found = only(world)
    assert found["good"] == [one for one in names(4) if one != names(4)[left]]
    assert found["slow_paths"] == []
    assert world.now < 700


@pytest.mark.parametrize("first", [True, False])
def test_a_node_that_was_alone_is_no_partner_while_it_pauses(first: bool) -> None:
    """Two nodes that join later measure with each other, not with the process that ended alone."""
    alone, late = ("a", ["b", "c"]) if first else ("z", ["b", "c"])
    world = World(nodes=0, join_s=300.0)
    world.start(alone)
    for name in late:
        world.start(name, time=310.0)
    world.run()
    (found,) = [process.plan for process in world.processes if process.name == "b"]
    assert found is not None
    assert list(found.members) == late
    assert world.now < 310 + 200


@pytest.mark.parametrize("name", ["a", "z"])
def test_a_process_that_died_half_an_hour_ago_is_no_partner(name: str) -> None:
    """A node that died before the first round does not delay two nodes that join much later."""
    world = World(nodes=0)
    world.start(name)
    world.kill(name, 20.0)
    for one in ("b", "c"):
        world.start(one, time=1900.0)
    world.run()
    assert only(world)["good"] == ["b", "c"]
    assert world.now < 1900 + 200


def test_a_node_whose_clock_is_behind_takes_part_from_the_second_round_on() -> None:
    """A node that seems to have died is not part of the first round. It joins again, and is good."""
    world = World(nodes=0)
    for one in ("b", "c"):
        world.start(one, time=4000.0)
    world.start("d", time=4001.0, incarnation="000000001")
    world.run()
    assert only(world)["good"] == ["b", "c", "d"]
    assert "plan/00/b/plan" in world.objects
    assert "d" not in str(fabric.plan_of(0, "b", world.objects["plan/00/b/plan"]).pairs)  # pyright: ignore[reportOptionalMemberAccess]
    assert world.now < 4001 + 600


@pytest.mark.parametrize(("leaves", "moment"), [(True, 400.0), (False, 20_000.0)])
def test_a_test_whose_nodes_left_or_died_is_abandoned_at_once(leaves: bool, moment: float) -> None:
    """A new node does not wait for a test whose nodes have all shut down, or whose nodes joined before the time limit of a test."""
    world = started(4, spread_s=5.0)
    for name in names(4):
        (world.terminate if leaves else world.kill)(name, 60.0)
    world.start("i-new", time=moment)
    world.run()
    (new,) = [process for process in world.processes if process.name == "i-new"]
    assert new.ended is fabric.TestEnded
    assert world.now < moment + 60


def test_a_new_node_waits_until_a_dead_leader_is_replaced() -> None:
    """A node that joins shortly after the leader died is measured in the same test."""
    world = started(4, spread_s=5.0)
    world.kill(names(4)[0], 60.0)
    world.kill(names(4)[1], 60.0)
    world.start("i-new", time=70.0)
    world.run()
    assert only(world)["good"] == [*names(4)[2:], "i-new"]


def test_the_next_node_takes_over_if_the_first_one_dies_before_the_first_plan() -> None:
    """The first node joins and dies. Another node publishes the first plan within minutes."""
    world = started(8, spread_s=5.0)
    first: list[tuple[float, str]] = []
    world.before_put = lambda key: first.append((world.now, key)) if key.startswith("plan/00/") else None
    world.kill(names(8)[0], 8.0)
    world.run()
    assert first[0][1].split("/")[2] == names(8)[1]
    assert first[0][0] < 180
    assert set(only(world)["good"]) == set(names(8)[1:])  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "key",
    [
        "result/00/i-victim/pass/x/i-evil/y",
        "result/00/i-victim/i-evil/x",
        "member/00/i-victim/i-evil/x",
        "plan/00/i-victim/i-evil/x",
        "plan/00/i-victim/other",
        "member/01/i-victim/1",
        "other/00/i-victim/1",
        "member/00/i-victim/1/x-left",
        "member/00/i-victim/",
        "result/00/../pass/x",
    ],
)
def test_a_node_cannot_write_under_the_name_of_another_node(key: str) -> None:
    """A store that lets a node write below its own name anywhere in a key accepts these keys, but the protocol skips them."""
    assert fabric.entry_of(key) is None


def test_keys_of_the_protocol_are_read() -> None:
    """Round, writer and rest of each kind of key."""
    assert fabric.entry_of("member/00/i-1/0001-ab") == (0, "i-1", "0001-ab")
    assert fabric.entry_of("plan/03/AROA1:i-1/verdict") == (3, "AROA1:i-1", "verdict")
    assert fabric.entry_of("result/12/i-1/bye/-") == (12, "i-1", "bye/-")
