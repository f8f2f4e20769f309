from __future__ import annotations

import functools
import math
import random

import pytest

from gpuinfra.node import fabric
from gpuinfra.node.pairs import PairResult
from tests.node.fabric_world import World


@pytest.fixture(autouse=True)
def each_plan_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand simulated nodes read the same plan, so it is parsed once."""
    monkeypatch.setattr(fabric, "plan_of", functools.lru_cache(maxsize=64)(fabric.plan_of))


def names(count: int) -> list[str]:
    """Nodes in the order of their names."""
    return [f"i-{at:017x}" for at in range(count)]


def started(count: int, **changes: object) -> World:
    """A pool in which every node runs the command within a minute."""
    world = World(nodes=count, **changes)  # pyright: ignore[reportArgumentType]
    at = random.Random(count)
    for name in names(count):
        world.start(name, time=at.uniform(0, 60))
    return world


def most(count: int) -> int:
    """The maximum number of store requests per node: 30 for each of log2(n) rounds, and 60 to join and to replace a dead leader."""
    return 60 + 30 * max(1, math.ceil(math.log2(count)))


def are_few(world: World, count: int, more: float = 0.0) -> bool:
    """True if no node sent more requests than `most`, and the leader not more than half as many again: it also looks for nodes that have restarted."""
    *others, leader = sorted(process.requests for process in world.processes)
    return max(others) <= most(count) + more and leader <= 1.5 * most(count) + more


def only(world: World) -> dict[str, object]:
    """The verdict, which all nodes agree on."""
    (found,) = world.verdicts()
    return found


@pytest.mark.parametrize("count", [2, 3, 8, 13, 64])
def test_healthy_pool_is_measured_in_log2_rounds(count: int) -> None:
    """Every node is good after log2(n) rounds, and no pair is measured twice."""
    world = started(count)
    world.run()
    assert only(world) == {"expected": count, "good": names(count), "slow": {}, "slow_paths": [], "unknown": []}
    assert {process.plan.round for process in world.processes if process.plan} == {fabric.main_rounds(count)}
    assert set(world.measured.values()) == {1}
    assert max(process.requests for process in world.processes) <= most(count)


@pytest.mark.parametrize("count", [128, 1000])
def test_a_large_pool_finds_the_slow_node_the_slow_path_and_the_dead_nodes(count: int) -> None:
    """Nodes of a pool with a slow node, a slow path, deaths, a restart and a late node agree on the verdict, with O(log n) requests per node."""
    every = names(count)

    def at(share: float) -> str:
        return every[int(share * count)]

    path = frozenset((at(0.3), every[every.index(at(0.3)) ^ 1]))
    world = World(nodes=count, slow=frozenset((at(0.077),)), slow_paths=frozenset((path,)))
    moment = random.Random(5)
    for name in every:
        world.start(name, time=moment.uniform(0, 60) if name != at(0.9) else 1200.0)
    dead = [at(0.02), at(0.412), at(0.998)]
    for order, name in enumerate(dead):
        world.kill(name, 1100.0 + 90 * order)
    world.kill(at(0.64), 1150.0)
    world.start(at(0.64), 1400.0)
    world.run()
    found = only(world)
    assert list(found["slow"]) == [at(0.077)]  # pyright: ignore[reportArgumentType]
    assert found["slow_paths"] == [sorted(path)]
    assert found["unknown"] == []
    assert set(found["good"]) == set(every) - {at(0.077)} - set(dead)  # pyright: ignore[reportArgumentType]
    (last,) = {tuple(process.plan.absent) for process in world.processes if process.plan and process.alive}
    assert list(last) == dead
    assert are_few(world, count)
    assert all(len(data) <= fabric.MAX_BYTES for data in world.objects.values())


def test_requests_grow_with_the_logarithm() -> None:
    """Sixteen times as many nodes need only the requests of four more rounds."""
    found = {}
    for count in (16, 256):
        world = started(count)
        world.run()
        found[count] = max(process.requests for process in world.processes)
    assert found[256] <= found[16] + 4 * 30


@pytest.mark.parametrize("slow", [0, 1, 6])
def test_one_slow_node_among_eight_is_named(slow: int) -> None:
    """The slow node is named with the measured reason, also if it is the leader, and the other nodes are good."""
    world = started(8, slow=frozenset((names(8)[slow],)))
    world.run()
    found = only(world)
    assert list(found["slow"]) == [names(8)[slow]]  # pyright: ignore[reportArgumentType]
    assert "61.0 of 150 GB/s" in str(found["slow"])
    assert len(found["good"]) == 7  # pyright: ignore[reportArgumentType]


def test_a_node_that_cannot_start_the_all_reduce_is_named() -> None:
    """The partners of a node without NCCL wait in vain. The node is named with its own reason."""
    world = started(8, broken=frozenset((names(8)[4],)))
    world.run()
    found = only(world)
    assert list(found["slow"]) == [names(8)[4]]  # pyright: ignore[reportArgumentType]
    assert "NCCL is not installed" in str(found["slow"])
    assert len(found["good"]) == 7  # pyright: ignore[reportArgumentType]


def test_a_pool_without_a_good_pair_names_no_node() -> None:
    """If every pair is slow, the fabric or the floor is the suspect, and no node is named."""
    world = started(6, slow=frozenset(names(6)))
    world.run()
    found = only(world)
    assert (found["good"], found["slow"], found["unknown"]) == ([], {}, names(6))


@pytest.mark.parametrize("moment", ["plan/00/", "plan/01/", "plan/02/", "plan/03/"])
def test_the_next_node_takes_over_from_a_dead_leader(moment: str) -> None:
    """A leader that dies at the moment at which it publishes a plan is replaced, and the verdict names it as absent."""
    world = started(8)

    def die(key: str) -> None:
        if key.startswith(moment + names(8)[0]):
            for process in world.processes:
                process.alive = process.alive and process.name != names(8)[0]

    world.before_put = die
    world.run()
    assert set(only(world)["good"]) >= set(names(8)[1:])  # pyright: ignore[reportArgumentType]
    assert all(process.plan for process in world.processes if process.alive)


def test_a_leader_that_stops_for_some_time_does_not_blame_a_node() -> None:
    """The next node takes over from a leader that stops. When the leader continues, it reads the verdict, in which it is absent."""
    first = names(8)[0]
    world = started(8, stopped={first: (75.0, 9000.0)})
    world.run()
    found = only(world)
    assert (found["good"], found["slow"], found["slow_paths"]) == (names(8)[1:], {}, [])
    assert [list(process.plan.absent) for process in world.processes if process.plan] == [[first]] * 8


def test_a_node_that_misses_a_round_joins_again() -> None:
    """A node that stops for longer than a round joins again as a new process and is good."""
    late = names(8)[6]
    world = started(8, stopped={late: (130.0, 1450.0)})
    world.run()
    found = only(world)
    assert (found["good"], found["slow_paths"]) == (names(8), [])
    assert sum(key.startswith(f"member/00/{late}/") for key in world.objects) == 2


def test_two_nodes_that_do_not_meet_are_not_a_slow_path() -> None:
    """A node that stops when the first round starts does not meet its partner. Both nodes are good in later rounds."""
    late, world = names(8)[6], started(8)

    def stop(key: str) -> None:
        if key.startswith("plan/00/"):
            world.stopped[late] = (world.now, world.now + 300)

    world.before_put = stop
    world.run()
    found = only(world)
    assert (found["good"], found["slow_paths"]) == (names(8), [])
    assert sum(key.startswith("result/00/") and "/absent/" in key for key in world.objects) == 2


def test_two_nodes_with_one_name_are_reported() -> None:
    """One of two processes under the same name takes part. The other one ends with the name and what to do."""
    world = started(4)
    world.start(names(4)[2], 10.0, incarnation="a-second-one")
    world.run()
    ended = [process for process in world.processes if process.problem]
    assert [process.name for process in ended] == [names(4)[2]]
    assert f"another process takes part under the name {names(4)[2]}" in ended[0].problem
    assert only(world)["good"] == names(4)


def test_an_earlier_incarnation_under_the_same_name_is_reported() -> None:
    """A second process whose clock is behind never takes part, and does not report the verdict of the first process."""
    world = started(4)
    world.start(names(4)[2], 700.0, incarnation="0")
    world.run()
    assert [process.problem[:15] for process in world.processes if process.problem] == ["another process"]
    assert only(world)["good"] == names(4)


def test_a_missing_node_delays_the_start_and_the_verdict_states_the_expected_number() -> None:
    """The first round starts after the join time without a node that never joins."""
    world = World(nodes=5)
    for name in names(4):
        world.start(name)
    world.run()
    assert (only(world)["good"], only(world)["expected"]) == (names(4), 5)
    assert world.now >= fabric.Settings(name="x", incarnation="1", nodes=5).join_s


def test_a_node_that_restarts_during_an_all_reduce_measures_again() -> None:
    """The partner's all-reduce fails, but this is not a slow path. The restarted node takes part in a later round and is good."""
    world, restarted = started(8), names(8)[3]

    def die(pair: frozenset[str]) -> None:
        if restarted in pair and sum(world.measured[one] for one in world.measured if restarted in one) == 1:
            world.kill(restarted, world.now)
            world.start(restarted, world.now + 50)

    world.on_meeting = die
    world.run()
    found = only(world)
    assert (found["good"], found["slow_paths"]) == (names(8), [])
    assert sum(key.startswith(f"member/00/{restarted}/") for key in world.objects) == 2
    assert any(key.startswith("result/00/") and key.endswith(f"/fail/{restarted}") for key in world.objects)


def test_a_slow_path_without_a_second_partner_is_found_in_a_further_round() -> None:
    """After log2(n) rounds, the last of three nodes is slow with its only partner. A further round shows that the path is slow, not the node."""
    path = frozenset((names(3)[0], names(3)[2]))
    world = started(3, slow_paths=frozenset((path,)))
    world.run()
    found = only(world)
    assert (found["good"], found["slow"], found["slow_paths"]) == (names(3), {}, [sorted(path)])
    assert {process.plan.round for process in world.processes if process.plan} == {fabric.main_rounds(3) + 1}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"null",
        b'{"schema":"gpuinfra.fabric-plan/1","members":["a 1"],"absent":[],"pairs":[[0,1]]}',
        b'{"schema":"gpuinfra.fabric-plan/1","members":["a 1","b 1"],"absent":[],"pairs":[[0,0]]}',
        b'{"schema":"gpuinfra.fabric-plan/1","members":["a"],"absent":[],"pairs":[]}',
        b'{"schema":"gpuinfra.fabric-plan/1","members":["a 1"],"absent":[],"pairs":[],"verdict":1}',
        b'{"schema":"gpuinfra.fabric-plan/1","members":[],"absent":[],"pairs":[],"verdict":{}}',
        b'{"members":[],"absent":[],"pairs":[]}',
        b'{"schema":"other","members":[],"absent":[],"pairs":[]}',
    ],
)
def test_invalid_plans_are_ignored(data: bytes) -> None:
    """The content of the store comes from other machines: an invalid plan does not stop the pool."""
    assert fabric.plan_of(0, "a", data) is None
    world = started(4)
    for key in ("plan/00/a/plan", "plan/x/a/plan", "result/00/../pass"):
        world.add(key, data)
    world.run()
    assert only(world)["good"] == names(4)


def test_plan_is_the_same_after_the_store() -> None:
    """A plan of 1,000 nodes with long names is within the size limit and is read back unchanged."""
    members = {f"{at:08d}-0000-0000-0000-000000000000": "6926e9aa-1234" for at in range(fabric.MAX_NODES)}
    leader = next(iter(members))
    plan = fabric.RoundPlan(1, leader, members, fabric.choose(0, members, []), {"b": "2"})
    assert fabric.plan_of(1, leader, plan.dumped()) == plan
    assert fabric.plan_of(1, "a stranger", plan.dumped()) is None
    assert len(plan.dumped()) < fabric.MAX_BYTES // 2


def test_pairs_are_not_repeated_after_a_death() -> None:
    """If a death shifts the positions, pairs that are already measured are skipped."""
    results = [PairResult("a", "b", True), PairResult("c", "d", True)]
    assert fabric.choose(1, ["a", "c", "d"], results) == (("a", "d"),)
    assert fabric.choose(0, ["a", "b"], results) == ()


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
    """Keys of another form, for example with the writer in another place, are skipped."""
    assert fabric.entry_of(key) is None


def test_keys_of_the_protocol_are_read() -> None:
    """Round, writer and rest of each kind of key."""
    assert fabric.entry_of("member/00/i-1/0001-ab") == (0, "i-1", "0001-ab")
    assert fabric.entry_of("plan/03/AROA1:i-1/verdict") == (3, "AROA1:i-1", "verdict")
    assert fabric.entry_of("result/12/i-1/bye/-") == (12, "i-1", "bye/-")


@pytest.mark.parametrize("restarted", [0, 2])
def test_a_restart_does_not_delay_the_other_nodes(restarted: int) -> None:
    """The other nodes do not wait for a process whose node has joined again, also if it was the leader. All nodes are good within minutes."""
    world = World(nodes=4)
    for name in names(4):
        world.start(name, time=1.0)
    world.kill(names(4)[restarted], 60.0)
    world.start(names(4)[restarted], 125.0)
    world.run()
    assert only(world)["good"] == names(4)
    assert world.now < 700


@pytest.mark.parametrize("left", [0, 1, 3])
def test_a_node_that_leaves_does_not_delay_the_other_nodes(left: int) -> None:
    """A node that shuts down during a round is not in the next round, and is not waited for."""
    world = World(nodes=4)
    for name in names(4):
        world.start(name, time=1.0)
    world.terminate(names(4)[left], 60.0)
    world.run()
    assert only(world)["good"] == [one for one in names(4) if one != names(4)[left]]
    assert world.now < 700
