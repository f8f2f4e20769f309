"""`--keep-trying`: the search is repeated for a stated time, and launched nodes are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuinfra.base.errors import DeploymentError, UsageError
from gpuinfra.search.patience import FIRST_S, LONGEST_S, Patience, duration

from .world import INTERNAL, QUOTA, STOCK_OUT, TEXT, THROTTLED, Killed, World, go

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


TWO = TEXT.replace(
    "      - name: small\n        machine: p4d.24xlarge\n        capacity: {kind: on_demand, count: 1}\n",
    "      - name: small\n        machine: p4d.24xlarge\n        capacity: {kind: on_demand, count: 1}\n        fallback:\n          - {zone: use1-az6}\n",
)
"""Both pools have alternatives."""


@pytest.mark.parametrize("kept", ["partly", "running"])
def test_a_kept_pool_does_not_stop_the_others(world: World, kept: str) -> None:
    """A pool without nodes moves to its alternatives while another pool keeps its nodes and its placement."""
    world.path.write_text(TWO)
    world.pools, world.later = ("gpu", "small"), {60.0: {}}
    world.refusals = dict.fromkeys(("use1-az4", "use1-az6"), STOCK_OUT)
    setattr(world, kept, ("gpu",))
    go(world)
    assert world.calls == [
        "up use1-az4", "remove train-small-on-demand-0", "up use1-az4 use1-az6", "remove train-small-on-demand-0",
        "wait 60", "up use1-az4",
    ]  # fmt: skip
    assert world.path.read_text() == TWO


def test_a_pool_without_alternatives_does_not_stop_the_others(world: World) -> None:
    """A pool without `fallback` is repeated, while the other pool moves to the placement that has capacity and stays there."""
    world.pools, world.later = ("gpu", "small"), {60.0: {}}
    world.refusals = {"use1-az4": STOCK_OUT}
    go(world)
    assert world.calls == ["up use1-az4", "remove train-gpu-spot-0", "up use1-az4 use1-az6", "wait 60", "up use1-az4 use1-az6"]  # fmt: skip


def test_kept_nodes_stay_after_the_last_alternative_of_another_pool(world: World) -> None:
    """At the end, only the groups of the pool without nodes are removed, and the stack file is as declared."""
    world.path.write_text(TWO)
    world.pools, world.partly, world.until = ("gpu", "small"), ("gpu",), 100.0
    with pytest.raises(DeploymentError):
        go(world)
    assert not [call for call in world.calls if "remove train-gpu" in call]
    assert "train-gpu-spot-0" in " ".join(world.groups)


def test_the_error_names_the_pools_that_did_not_move(world: World) -> None:
    """At the end, the pool that moved stays at its last placement, and the message about missing alternatives names the other pool."""
    world.pools, world.refusals, world.until = ("gpu", "small"), {"use1-az4": STOCK_OUT}, 60.0
    with pytest.raises(DeploymentError, match="no other capacity was tried for small, because small has no `fallback`"):
        go(world)
    assert "remove train-gpu-spot-0" in world.calls
    assert "use1-az6" in world.groups.values()
    assert "        zone: use1-az6\n" in world.path.read_text()


def test_without_time_no_pool_moves_alone(world: World) -> None:
    """Without `--keep-trying`, a pool that cannot move ends the search before another pool moves, because the deployment fails anyway."""
    world.path.write_text(TWO)
    world.pools, world.running, world.until = ("gpu", "small"), ("gpu",), None
    with pytest.raises(DeploymentError, match="nodes of gpu ran before this command"):
        go(world)
    assert world.calls == ["up use1-az4"]


def test_a_quota_is_not_repeated(world: World) -> None:
    """An error that does not pass ends the search at once."""
    world.refusals = {"use1-az4": QUOTA}
    with pytest.raises(DeploymentError):
        go(world)
    assert world.calls == ["up use1-az4"]


@pytest.mark.parametrize(
    ("message", "words"),
    [(THROTTLED, "the cloud limits the request rate"), (INTERNAL, "the cloud's service failed")],
)
def test_an_error_that_passes_is_repeated(world: World, message: str, words: str) -> None:
    """While there is time, an error of the cloud that passes leads to a wait, and one line says why. No group is removed."""
    world.refusals, world.later = {"use1-az4": message}, {180.0: {}}
    lines = go(world)
    assert world.calls == ["up use1-az4", "wait 60", "up use1-az4", "wait 120", "up use1-az4"]
    assert f"{words}: the next attempt begins in 60 s; the search ends at 1970-01-01 01:00 UTC" in world.lines
    assert lines[0].endswith("failed after 0 s")


@pytest.mark.parametrize("message", [THROTTLED, INTERNAL])
def test_an_error_that_passes_ends_a_search_without_time(world: World, message: str) -> None:
    """Without `--keep-trying`, the error ends the search, and the text contains the message and the advice."""
    world.refusals, world.until = {"use1-az4": message}, None
    with pytest.raises(DeploymentError, match="what to do: ") as caught:
        go(world)
    assert message in str(caught.value)
    assert world.calls == ["up use1-az4"]


def test_an_error_that_does_not_pass_ends_with_the_time(world: World) -> None:
    """At the end, the text contains the message of the cloud and how long the search was repeated."""
    world.refusals, world.until = {"use1-az4": INTERNAL}, 100.0
    with pytest.raises(DeploymentError, match="the search was repeated until 1970-01-01 00:01 UTC") as caught:
        go(world)
    assert INTERNAL in str(caught.value)
    assert world.calls == ["up use1-az4", "wait 60", "up use1-az4", "wait 40", "up use1-az4"]


def test_a_pool_without_capacity_moves_while_the_error_of_another_one_passes(world: World) -> None:
    """The pool with the error of the service stays where it is, and the next attempt deploys it again."""
    world.path.write_text(TWO)
    world.pools, world.later = ("gpu", "small"), {60.0: {}}
    world.refusals, world.own = {"use1-az4": STOCK_OUT}, {"small": INTERNAL}
    go(world)
    assert world.calls == ["up use1-az4", "remove train-gpu-spot-0", "up use1-az4 use1-az6", "wait 60", "up use1-az4 use1-az6"]  # fmt: skip


def test_a_cloud_that_does_not_answer_is_asked_again(world: World) -> None:
    """While there is time, an answer that cannot be read leads to a wait, because launched nodes are possibly there."""
    world.unread, world.later = 1, {60.0: {}}
    go(world)
    assert world.calls == ["up use1-az4", "wait 60", "up use1-az4"]
    assert "the reason for missing nodes cannot be read (HTTP 503): the next attempt begins in 60 s; " in "\n".join(world.lines)  # fmt: skip


def test_a_cloud_that_does_not_answer_ends_a_search_without_time(world: World) -> None:
    """Without `--keep-trying`, the error of the deployment ends the search, and one line says that its reason is unknown."""
    world.unread, world.until = 1, None
    with pytest.raises(DeploymentError, match="exited with code 255"):
        go(world)
    assert world.lines == ["the reason for missing nodes cannot be read: HTTP 503"]


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
