"""The planned work that an operator records for the control node."""

from __future__ import annotations

import json

import pytest

from gpuinfra.base import naming
from gpuinfra.base.errors import DeploymentError
from gpuinfra.node.repair import Maintenance
from gpuinfra.node.repair_service import planned_work, released_nodes
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


def test_planned_work_is_recorded_and_ends_by_itself() -> None:
    """The control node reads what the command wrote. An entry that has ended is removed with the next one, and a new one replaces that of the same node."""
    fleet = world()
    poll = polled(fleet, 2)
    first, second = poll.verdict.nodes
    assert planned(poll, NOW) == []
    record(poll, [first], Work(until=NOW + 60, released=False, by="me", why="cables"), NOW)
    data = json.dumps(dict(fleet.sheets)[KEY]).encode()
    (work,) = planned_work(data)
    assert (work.node, work.until, work.why) == (first.instance_id, NOW + 60, "cables")
    assert Maintenance(silenced=((work.node, work.until),)).covers("x", first.instance_id, NOW)
    assert not Maintenance(silenced=((work.node, work.until),)).covers("x", first.instance_id, NOW + 60)
    record(poll, [second], Work(until=NOW + 900, released=False, by="me", why=""), NOW + 61)
    assert [one["node"] for one in planned(poll, NOW + 61)] == [second.instance_id]
    record(poll, [second], Work(until=None, released=False, by="me", why=""), NOW + 62)
    assert planned(poll, NOW + 62) == []


def test_a_release_is_recorded_beside_the_planned_work() -> None:
    """A release does not end planned work."""
    fleet = world()
    poll = polled(fleet, 2)
    first, second = poll.verdict.nodes
    record(poll, [first], Work(until=NOW + 600, released=False, by="me", why=""), NOW)
    record(poll, [first, second], Work(until=None, released=True, by="me", why=""), NOW + 1)
    data = json.dumps(dict(fleet.sheets)[KEY]).encode()
    assert released_nodes(data) == ((first.instance_id, NOW + 1), (second.instance_id, NOW + 1))
    assert len(planned_work(data)) == 1


def test_an_unknown_record_is_not_overwritten() -> None:
    """A record of another form is an error that names the object."""
    fleet = world()
    fleet.sheets.append((KEY, {"schema": "later"}))
    poll = polled(fleet, 2)
    with pytest.raises(DeploymentError, match=r"maintenance\.json in the evidence bucket"):
        record(poll, list(poll.verdict.nodes), Work(until=NOW, released=False, by="me", why=""), NOW)
