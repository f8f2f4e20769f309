"""The planned work that an operator records for the control node."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuinfra.base import naming
from gpuinfra.base.errors import DeploymentError, UsageError
from gpuinfra.cli import maintenance as cli
from gpuinfra.cli.stacks import Stacks
from gpuinfra.handover.judge import NodeVerdict
from gpuinfra.node.orders import NodeOrder, OrderKind
from gpuinfra.node.repair import Maintenance, RepairState
from gpuinfra.node.repair_service import planned_work, released_nodes
from gpuinfra.verification import store
from gpuinfra.verification.maintenance import Work, planned, record
from tests.handover.fleet import Fleet
from tests.verification.test_nodes import polled, series

NOW = 1_800_000_000.0
KEY = naming.planned_work("train")


def world(count: int = 2) -> Fleet:
    """A fleet of verified nodes."""
    fleet = Fleet()
    for number in range(1, count + 1):
        fleet.launch(number)
        series(fleet, number, [8, 8])
    return fleet


def ids(*nodes: NodeVerdict) -> dict[str, str]:
    """The labels of nodes by instance ID."""
    return {node.instance_id: node.label for node in nodes}


def test_planned_work_is_recorded_and_ends_by_itself() -> None:
    """The control node reads what the command wrote. An entry that has ended is removed with the next one, and a new one replaces that of the same node."""
    fleet = world()
    poll = polled(fleet, 2)
    first, second = poll.verdict.nodes
    assert planned(poll, NOW) == []
    record(poll, ids(first), Work(until=NOW + 60, released=False, by="me", why="cables"), NOW)
    data = json.dumps(dict(fleet.sheets)[KEY]).encode()
    (work,) = planned_work(data)
    assert (work.node, work.until, work.why) == (first.instance_id, NOW + 60, "cables")
    assert Maintenance(silenced=((work.node, work.until),)).covers("x", first.instance_id, NOW)
    assert not Maintenance(silenced=((work.node, work.until),)).covers("x", first.instance_id, NOW + 60)
    record(poll, ids(second), Work(until=NOW + 900, released=False, by="me", why=""), NOW + 61)
    assert [one["node"] for one in planned(poll, NOW + 61)] == [second.instance_id]
    record(poll, ids(second), Work(until=None, released=False, by="me", why=""), NOW + 62)
    assert planned(poll, NOW + 62) == []


def test_a_release_is_recorded_beside_the_planned_work() -> None:
    """A release does not end planned work."""
    fleet = world()
    poll = polled(fleet, 2)
    first, second = poll.verdict.nodes
    record(poll, ids(first), Work(until=NOW + 600, released=False, by="me", why=""), NOW)
    record(poll, ids(first, second), Work(until=None, released=True, by="me", why=""), NOW + 1)
    data = json.dumps(dict(fleet.sheets)[KEY]).encode()
    assert released_nodes(data) == ((first.instance_id, NOW + 1), (second.instance_id, NOW + 1))
    assert len(planned_work(data)) == 1


@pytest.mark.parametrize("exists", [False, True])
def test_two_operators_at_the_same_moment_keep_both_entries(monkeypatch: pytest.MonkeyPatch, exists: bool) -> None:
    """The one that reads before and writes after the other reads the record again, also if the record is new."""
    fleet = world()
    poll = polled(fleet, 2)
    first, second = poll.verdict.nodes
    if exists:
        record(poll, {"i-gone": "gpu-9"}, Work(until=NOW + 900, released=False, by="me", why=""), NOW)
    update, others = fleet.update, [Work(until=NOW + 900, released=False, by="other", why="")]

    def late(key: str, document: Mapping[str, object], tag: str | None) -> bool:
        if others:
            record(poll, ids(first), others.pop(), NOW)
        return update(key, document, tag)

    monkeypatch.setattr(fleet, "update", late)
    record(poll, ids(second), Work(until=NOW + 900, released=False, by="me", why=""), NOW)
    recorded = {one["node"] for one in planned(poll, NOW)} - {"i-gone"}
    assert recorded == {first.instance_id, second.instance_id}


def test_a_record_that_changes_all_the_time_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command does not claim that the planned work is recorded."""
    fleet = world()
    poll = polled(fleet, 2)
    monkeypatch.setattr(fleet, "update", lambda *_: False)
    with pytest.raises(DeploymentError, match="changed during each of 5 attempts; run the command again"):
        record(poll, ids(*poll.verdict.nodes), Work(until=NOW + 9, released=False, by="me", why=""), NOW)


def test_an_unknown_record_is_not_overwritten() -> None:
    """A record of another form is an error that names the object."""
    fleet = world()
    fleet.sheets.append((KEY, {"schema": "later"}))
    poll = polled(fleet, 2)
    with pytest.raises(DeploymentError, match=r"maintenance\.json in the evidence bucket"):
        record(poll, ids(*poll.verdict.nodes), Work(until=NOW, released=False, by="me", why=""), NOW)


@pytest.fixture
def control(monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """The fleet of the command, with a control node."""
    fleet = world()
    state = [{"type": "gpuinfra:index:NodesReady", "outputs": {}}]
    chosen = Stacks(open=lambda _: nullcontext(state), up="", restore="", project=lambda _: Path())
    monkeypatch.setattr(
        "gpuinfra.cli.options.stacks_of", lambda given: [given.pop("rehearsal"), given.pop("folder"), chosen][-1]
    )
    monkeypatch.setattr(store, "polled", lambda _: (polled(fleet, 2),))
    monkeypatch.setattr(store.Poll, "controlled", True)
    return fleet


def run(*words: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(cli.command, ["train", *words], standalone_mode=False)


def test_the_command_records_planned_work_and_prints_its_end(control: Fleet) -> None:
    """The label selects the node, and `--json` prints all planned work that is recorded."""
    done = run("gpu-1", "--for", "4h", "--why", "cables")
    assert done.return_value == 0, done.exception
    assert "no alerts and no repair until " in done.output
    document = json.loads(run("gpu-2", "--for", "30m", "--json").output)
    assert [(one["label"], one["why"]) for one in document["planned"]] == [("gpu-1", "cables"), ("gpu-2", "")]
    assert run("gpu-1", "gpu-2", "--end").output.count("the planned work ends") == 2
    assert "released" in run("gpu-1", "--release").output


def test_a_node_that_is_no_member_anymore_can_be_released(control: Fleet) -> None:
    """The control node waits for the release of a node whose instance was replaced, so the instance ID or the name in its order is allowed."""
    order = NodeOrder("1", OrderKind.DRAIN, "i-gone", "x", NOW, NOW, "gpu_7", "b")
    state = RepairState(orders=[order])
    control.sheets.append((naming.repair_orders("train"), json.loads(state.dumped())))
    done = run("i-gone", "--release")
    assert done.return_value == 0, done.exception
    assert "gpu_7 (i-gone): released" in done.output
    data = json.dumps(dict(control.sheets)[KEY]).encode()
    assert [node for node, _ in released_nodes(data)] == ["i-gone"]
    assert Maintenance(released=released_nodes(data)).ended(replace(order, since=1.0))
    assert run("gpu_7", "i-gone", "gpu-1", "--release").output.count("released") == 2
    assert "NODE is i-gone; allowed: " in str(run("i-gone", "--for", "4h").exception)
    assert "i-other" in str(run("i-other", "--release").exception)


def test_orders_that_cannot_be_read_are_an_error_of_the_release(control: Fleet) -> None:
    """The command does not record a release of a node that it does not know."""
    control.sheets.append((naming.repair_orders("train"), {"schema": "later"}))
    done = run("i-gone", "--release")
    assert isinstance(done.exception, DeploymentError)
    assert "orders.json in the evidence bucket: " in str(done.exception)
    assert run("gpu-1", "--release").return_value == 0


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["gpu-1"], "specify one of --for, --end and --release"),
        (["gpu-1", "--for", "4h", "--end"], "specify one of --for, --end and --release"),
        (["gpu-9", "--end"], "NODE is gpu-9; allowed: "),
        (["gpu-1", "--for", "soon"], "--for is 'soon'; allowed: minutes, hours or days"),
    ],
)
def test_a_wrong_call_records_nothing(words: list[str], problem: str, control: Fleet) -> None:
    """The error names what is allowed."""
    done = run(*words)
    assert isinstance(done.exception, UsageError)
    assert problem in str(done.exception)
    assert control.sheets == []


def test_a_stack_without_a_control_node_is_refused(control: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alerts and repair come from the control node, so the work would have no effect."""
    monkeypatch.setattr(store.Poll, "controlled", False)
    assert "train has no control node" in str(run("gpu-1", "--for", "1h").exception)
    assert control.sheets == []
