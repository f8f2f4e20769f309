"""The dates of a stack: starts, ends, and what is due."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from gpuinfra.calendar import Calendar, DateCommands, DateState, RunningNodes, ending, needs_attention
from gpuinfra.spec import parse_spec
from tests.rules.cases import block, declaration, reserved

COMMANDS = DateCommands(up="UP", destroy="DESTROY", offers="OFFERS", stop_idle="STOP")
START, END = "2026-12-01T11:30:00Z", "2026-12-08T10:55:00Z"
GROUP = "gpu-block-0"


def calendar(now: str, deployed: dict[str, int] | None, cloud: str = "aws", days: int = 2, **changes: Any) -> Calendar:
    """The calendar of a base declaration with changes. By default, it has a Capacity Block of two nodes."""
    changes = changes or {"pools__0__capacity": block()}
    spec = parse_spec(declaration((cloud, {key.replace("__", "."): value for key, value in changes.items()})))
    within = timedelta(days=days)
    return Calendar(spec=spec, now=datetime.fromisoformat(now), within=within, commands=COMMANDS, deployed=deployed)


def states(found: Calendar) -> list[tuple[str, str, str]]:
    """State, service and command of each date."""
    return [(one.state.value, one.by, one.command) for one in found.events()]


ASG = "EC2 Auto Scaling"


@pytest.mark.parametrize(
    ("now", "deployed", "expected"),
    [
        ("2026-11-21T00:00:00Z", 0, [("later", ASG, "UP"), ("later", ASG, "OFFERS")]),
        ("2026-11-29T11:29:00Z", 0, [("later", ASG, "UP"), ("later", ASG, "OFFERS")]),
        ("2026-11-29T11:30:00Z", 0, [("soon", ASG, "UP"), ("later", ASG, "OFFERS")]),
        ("2026-12-01T11:30:00Z", 0, [("due", ASG, "UP"), ("later", ASG, "OFFERS")]),
        ("2026-12-01T11:30:00Z", 2, [("done", ASG, ""), ("later", ASG, "OFFERS")]),
        ("2026-12-06T10:55:00Z", 2, [("done", ASG, ""), ("soon", ASG, "OFFERS")]),
        ("2026-12-08T10:55:00Z", 2, [("done", ASG, ""), ("due", ASG, "OFFERS")]),
        ("2026-12-08T10:55:00Z", 0, [("done", ASG, ""), ("done", ASG, "")]),
        ("2027-12-08T10:55:00Z", 2, [("done", ASG, ""), ("due", ASG, "OFFERS")]),
    ],
)
def test_dates_of_a_capacity_block(now: str, deployed: int, expected: list[tuple[str, str, str]]) -> None:
    """`up` is due after the start until the stack expects the nodes, and the next block is due after the end until the stack expects none."""
    found = calendar(now, {GROUP: deployed})
    assert [one.at.strftime("%Y-%m-%dT%H:%M:%SZ") for one in found.events()] == [START, END]
    assert states(found) == expected
    assert needs_attention(found.events()) == any(state in ("due", "soon") for state, _, _ in expected)


def test_a_group_that_is_not_in_the_state_is_due() -> None:
    """A pool that was declared after the last `up` expects no nodes."""
    assert states(calendar("2026-12-02T00:00:00Z", {}))[0][0] == "due"


def test_without_the_state_a_date_that_has_passed_is_done() -> None:
    """If the state was not read, it is not known whether an action is missing."""
    assert [one.state for one in calendar("2026-12-08T10:55:00Z", None).events()] == [DateState.DONE, DateState.DONE]


@pytest.mark.parametrize(("cloud", "by"), [("aws", ASG), ("azure", "you"), ("gcp", "you")])
def test_nodes_remain_in_an_expired_stack_until_up(cloud: str, by: str) -> None:
    """After the cluster expires, `up` removes the nodes that the stack expects, and `destroy` is due until the stack has no resources."""
    group = {"aws": "gpu-on-demand-0", "azure": "gpu-on-demand-0", "gcp": "gpu-spot-0"}[cloud]
    before = calendar("2026-12-01T11:29:00Z", {group: 2}, cloud, expires_at=START)
    after = calendar("2026-12-01T11:30:00Z", {group: 2}, cloud, expires_at=START)
    removed = calendar("2026-12-01T11:30:00Z", {group: 0}, cloud, expires_at=START)
    assert states(before) == [("soon", "you", ""), ("soon", by, "")]
    assert states(after) == [("due", "you", "DESTROY"), ("due", by, "UP")]
    assert states(removed) == [("due", "you", "DESTROY"), ("done", by, "")]
    assert [one.group for one in after.events()] == ["", group]


def test_nodes_that_only_a_scheduled_action_started_remain_until_up() -> None:
    """If the state expects no nodes and still has scheduled actions after the end, `up` is due, because an action may have started nodes."""
    expired = calendar("2026-12-01T11:30:00Z", {"gpu-on-demand-0": 0}, expires_at=START)
    assert ("due", ASG, "UP") not in states(expired)
    assert ("due", ASG, "UP") in states(replace(expired, scheduled=frozenset({"gpu-on-demand-0"})))
    before = calendar("2026-12-01T11:29:00Z", {"gpu-on-demand-0": 0}, expires_at=START)
    assert "due" not in [state for state, _, _ in states(replace(before, scheduled=frozenset({"gpu-on-demand-0"})))]


def test_each_end_states_its_reason() -> None:
    """An end names the Capacity Block, the reservation, or the end of the cluster."""
    two = [*block(), *reserved(ends_at="2026-12-05T00:00:00Z")]
    found = calendar("2026-11-21T00:00:00Z", {}, pools__0__capacity=two)
    whats = [one.what for one in found.events()]
    assert whats == [
        "2 nodes start",
        "2 nodes removed: reservation cr-0123456789abcdef0 ends",
        "2 nodes removed: Capacity Block cr-0123456789abcdef0 ends",
    ]
    expired = calendar("2026-11-21T00:00:00Z", {}, pools__0__capacity=two, expires_at="2026-12-04T00:00:00Z")
    assert [one.what for one in expired.events()][1:] == [
        "the cluster expires",
        *2 * ["2 nodes removed: the cluster expires"],
    ]


def test_a_stack_without_dates_has_none() -> None:
    """On-demand nodes without `expires_at` have no dates."""
    found = calendar("2026-12-01T00:00:00Z", {}, name="train")
    assert found.events() == ()
    assert not needs_attention(found.events())


@pytest.mark.parametrize(
    ("now", "minutes", "names"),
    [
        ("2026-12-08T09:54:00Z", 60, []),
        ("2026-12-08T09:55:00Z", 60, [GROUP]),
        ("2026-12-08T10:54:00Z", 1, [GROUP]),
        ("2026-12-08T10:55:00Z", 60, []),
        ("2026-11-30T00:00:00Z", 1440, []),
    ],
)
def test_only_groups_with_nodes_end(now: str, minutes: int, names: list[str]) -> None:
    """A group is about to end if it has nodes and its end is within the time."""
    spec = parse_spec(declaration(("aws", {"pools.0.capacity": block()})))
    found = ending(spec, datetime.fromisoformat(now), timedelta(minutes=minutes))
    assert [group.name for group in found] == names


@pytest.mark.parametrize(
    ("now", "unverified", "expected"),
    [
        ("2026-12-01T12:00:00Z", 1, [("due", "UP"), ("later", "")]),
        ("2026-12-01T12:00:00Z", 0, [("done", ""), ("later", "")]),
        ("2026-12-02T11:00:00Z", 0, [("done", ""), ("soon", "")]),
        ("2026-12-04T11:00:00Z", 0, [("done", ""), ("done", "")]),
    ],
)
def test_flex_start_nodes_have_dates_while_they_exist(
    now: str, unverified: int, expected: list[tuple[str, str]]
) -> None:
    """`up` is due until all nodes are in the state. The first node ends after the run time."""
    launched = tuple(datetime.fromisoformat(f"2026-12-01T{hour}:00:00Z") for hour in ("11", "10"))
    flex: dict[str, Any] = {"pools__0__capacity": [{"kind": "flex", "count": 2, "max_run_hours": 72}]}
    found = replace(
        calendar(now, {}, "gcp", **flex), running={"gpu-flex-0": RunningNodes(launched=launched, unverified=unverified)}
    )
    assert [(one.state.value, one.command) for one in found.events()] == expected
    assert [one.at.isoformat() for one in found.events()] == ["2026-12-01T11:00:00+00:00", "2026-12-04T10:00:00+00:00"]
    assert {one.by for one in found.events()} == {"Google Cloud"}
    assert not calendar(now, {}, "gcp", **flex).events()


def test_a_group_that_has_not_started_does_not_end() -> None:
    """A group whose start and end are both ahead has no nodes, so its jobs are not stopped."""
    capacity = reserved(starts_at="2026-12-01T11:30:00Z", ends_at="2026-12-01T12:30:00Z")
    spec = parse_spec(declaration(("aws", {"pools.0.capacity": capacity})))
    before, after = (datetime.fromisoformat(f"2026-12-01T11:{minute}:00Z") for minute in ("29", "30"))
    assert not ending(spec, before, timedelta(hours=2))
    assert [group.name for group in ending(spec, after, timedelta(hours=2))] == ["gpu-reserved-0"]


def test_flex_start_nodes_remain_in_an_expired_stack_until_up() -> None:
    """The state expects no flex-start nodes, so the nodes that exist determine whether `up` is due after the cluster expires."""
    flex: dict[str, Any] = {
        "pools__0__capacity": [{"kind": "flex", "count": 2, "max_run_hours": 72}],
        "expires_at": START,
    }
    found = calendar("2026-12-01T12:00:00Z", {"gpu-flex-0": 0}, "gcp", **flex)
    nodes = {"gpu-flex-0": RunningNodes(launched=(datetime.fromisoformat("2026-12-01T11:00:00Z"),), unverified=0)}
    assert ("due", "you", "UP") not in states(found)
    assert ("due", "you", "UP") in states(replace(found, running=nodes))
