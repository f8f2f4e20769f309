"""`--keep-trying`: the search is repeated for a stated time, and launched nodes are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuinfra.base.errors import DeploymentError, UsageError
from gpuinfra.search.patience import FIRST_S, LONGEST_S, Patience, duration

from .world import QUOTA, STOCK_OUT, TEXT, Killed, World, go

ALL = dict.fromkeys(("use1-az4", "use1-az6", "use1-az1"), STOCK_OUT)
ROUND = [
    "up use1-az4",
    "remove train-gpu-spot-0",
    "up use1-az4 use1-az6",
    "remove train-gpu-spot-0",
    "up use1-az1 use1-az4",
    "remove train-gpu-on-demand-0",
]


@pytest.fixture
def world(tmp_path: Path) -> World:
    """An account without capacity for pool `gpu`, and a search of one hour."""
    path = tmp_path / "Pulumi.find.yaml"
    path.write_text(TEXT)
    return World(path, refusals=dict(ALL), until=3600.0)


def test_the_round_starts_again_with_the_declared_placement(world: World) -> None:
    """After all placements, the search waits and tries them again, until one has capacity. The stack file is as declared."""
    world.later = {60.0: {}}
    go(world)
    assert world.calls == [*ROUND, "wait 60", "up use1-az4"]
    assert world.path.read_text() == TEXT


def test_waits_double_until_the_end(world: World) -> None:
    """The last wait ends with the search, which then fails as without the option, and states the end."""
    world.until = 600.0
    with pytest.raises(DeploymentError, match="no placement of gpu has capacity"):
        go(world)
    waits = [call for call in world.calls if call.startswith("wait")]
    assert waits == ["wait 60", "wait 120", "wait 240", "wait 180"]


def test_launched_nodes_are_kept(world: World) -> None:
    """A pool with some of its nodes stays where it is: nothing is removed, and the same placement is tried again."""
    world.partly, world.later = ("gpu",), {180.0: {}}
    go(world)
    assert world.calls == ["up use1-az4", "wait 60", "up use1-az4", "wait 120", "up use1-az4"]


def test_launched_nodes_are_kept_at_the_end(world: World) -> None:
    """At the end, launched nodes remain, whether or not there are alternatives, and the message says so."""
    world.partly, world.until = ("gpu",), 100.0
    with pytest.raises(DeploymentError, match="the nodes of gpu that were launched are kept"):
        go(world)
    assert not [call for call in world.calls if call.startswith("remove")]


def test_a_pool_without_alternatives_is_tried_again(world: World) -> None:
    """Without alternatives, the same placement is tried again until the end."""
    world.later = {60.0: {}}
    go(world, searches=False)
    assert world.calls == ["up use1-az4", "wait 60", "up use1-az4"]


def test_nodes_from_before_are_kept(world: World) -> None:
    """A pool whose nodes ran before the command is not moved. It gets the missing nodes as soon as there is capacity."""
    world.running, world.later = ("gpu",), {60.0: {}}
    go(world)
    assert world.calls == ["up use1-az4", "wait 60", "up use1-az4"]


def test_a_quota_is_not_repeated(world: World) -> None:
    """An error that does not pass ends the search at once."""
    world.refusals = {"use1-az4": QUOTA}
    with pytest.raises(DeploymentError):
        go(world)
    assert world.calls == ["up use1-az4"]


@pytest.mark.parametrize("moment", range(1, 16, 3))
def test_a_killed_search_continues(world: World, moment: int) -> None:
    """After a kill at any moment, the search continues with the same end, and finds capacity."""
    world.kill_at, world.later = moment, {60.0: {}}
    try:
        go(world)
    except Killed:
        go(world, again=True)
    assert world.path.read_text() == TEXT or "use1-az6" in world.path.read_text()
    assert world.groups


def test_the_end_is_a_time() -> None:
    """Without an end, nothing is repeated. After it, no attempt begins."""
    assert not Patience().lasts
    assert not Patience(until=1.0, now=lambda: 1.0).lasts
    assert (FIRST_S, LONGEST_S) == (60.0, 900.0)


@pytest.mark.parametrize(("text", "seconds"), [("90m", 5400.0), ("12h", 43200.0), ("3d", 259200.0)])
def test_durations(text: str, seconds: float) -> None:
    """A duration has a unit."""
    assert duration("--for", text) == seconds


@pytest.mark.parametrize("text", ["", "12", "-1h", "31d", "1w", "nanh", "infd", "0m"])
def test_a_wrong_duration_names_the_allowed_ones(text: str) -> None:
    """A wrong duration is one error with the value and what is allowed."""
    with pytest.raises(UsageError, match=r"--for is .*; allowed: minutes, hours or days"):
        duration("--for", text)
