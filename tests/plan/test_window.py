"""The start and the end of nodes: future reservations, and the time at which a cluster expires."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pytest

from gpuinfra.clouds.aws.instances import schedule
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Group, Plan
from gpuinfra.report.plan_tables import dates
from gpuinfra.spec import parse_spec
from tests.rules.cases import TODAY, block, declaration, reserved

RESERVATIONS = {
    "aws": reserved(),
    "azure": [{"kind": "reserved", "id": "/subscriptions/0/resourceGroups/r/providers/Microsoft.Compute/capacityReservationGroups/g", "count": 2}],
    "gcp": [{"kind": "reserved", "id": "train", "count": 2}],
}  # fmt: skip
START, END = "2026-12-01T11:30:00Z", "2026-12-08T11:30:00Z"


def plan_of(cloud: str, now: str | None = None, today: date = TODAY, **changes: Any) -> Plan:
    """The plan of a base declaration with changes, at a time or on a date."""
    spec = parse_spec(declaration((cloud, {key.replace("__", "."): value for key, value in changes.items()})))
    at = datetime.fromisoformat(now) if now else None
    return build_plan(spec, at.date() if at else today, at)


def group_of(cloud: str, now: str, **changes: Any) -> Group:
    """The only group of a plan."""
    ((group,),) = (pool.groups for pool in plan_of(cloud, now, **changes).pools)
    return group


@pytest.mark.parametrize(
    ("now", "count", "times", "actions"),
    [
        ("2026-12-01T11:29:59Z", 0, (START, END), ["start", "end"]),
        ("2026-12-01T11:30:00Z", 2, (START, END), ["end"]),
        ("2026-12-08T11:29:59Z", 2, (START, END), ["end"]),
        ("2026-12-08T11:30:00Z", 0, (None, None), []),
    ],
)
@pytest.mark.parametrize("cloud", RESERVATIONS)
def test_nodes_of_a_future_reservation_run_between_its_times(
    cloud: str, now: str, count: int, times: tuple[str | None, str | None], actions: list[str]
) -> None:
    """A group is empty before the start and after the end of its reservation, and has no action in the past."""
    capacity = [{**RESERVATIONS[cloud][0], "starts_at": START, "ends_at": END}]
    machine = {"pools__0__machine": "Standard_NC40ads_H100_v5"} if cloud == "azure" else {}
    group = group_of(cloud, now, pools__0__capacity=capacity, **machine)
    assert (group.count, group.max_count) == (count, 2)
    assert (group.starts_at, group.ends_at) == times
    assert [name for name, _ in schedule(group)] == actions


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_a_cluster_has_no_nodes_after_it_expires(cloud: str) -> None:
    """Until `expires_at`, a plan has its nodes and an end. From then on, it has no nodes and no end."""
    before = group_of(cloud, "2026-12-01T11:29:59Z", expires_at=START)
    after = group_of(cloud, "2026-12-01T11:30:00Z", expires_at=START)
    assert (before.count, before.ends_at) == (2, START)
    assert (after.count, after.max_count, after.ends_at) == (0, 2, None)
    assert [*map(str, schedule(before))] == [str(("end", START))]
    assert not schedule(after)


def test_a_date_without_a_time_is_before_an_end_on_the_same_day() -> None:
    """A plan for a date has nodes on the day on which the cluster expires, and none on the next day."""
    on, later = (plan_of("gcp", today=date(2026, 12, day), expires_at=START).pools[0] for day in (1, 2))
    assert (on.count, later.count) == (2, 0)


def test_the_earlier_end_applies() -> None:
    """Nodes of a block stop when the cluster expires, if the block ends later."""
    sooner = group_of("aws", "2026-12-02T00:00:00Z", pools__0__capacity=block(), expires_at="2026-12-05T00:00:00Z")
    later = group_of("aws", "2026-12-02T00:00:00Z", pools__0__capacity=block(), expires_at="2026-12-09T00:00:00Z")
    assert sooner.ends_at == "2026-12-05T00:00:00Z"
    assert later.ends_at == "2026-12-08T10:55:00Z"
    assert sooner.count == later.count == 2


def test_an_expired_cluster_requests_no_flex_start_nodes() -> None:
    """After a cluster expires, its flex-start groups have no resize request."""
    flex: dict[str, Any] = {
        "pools__0__capacity": [{"kind": "flex", "count": 2, "max_run_hours": 72}],
        "expires_at": START,
    }
    request = "gcp:compute/resizeRequest:ResizeRequest"
    assert plan_of("gcp", "2026-12-01T11:00:00Z", **flex).resources[request] == 1
    assert request not in plan_of("gcp", "2026-12-01T12:00:00Z", **flex).resources


def test_the_plan_shows_when_nodes_start_and_are_removed() -> None:
    """The lines of a pool contain the start until it passes, and the end."""
    changes: dict[str, Any] = {"pools__0__capacity": block()}
    (before,) = dates(plan_of("aws", "2026-12-01T11:00:00Z", **changes).pools[0])
    (during,) = dates(plan_of("aws", "2026-12-02T11:00:00Z", **changes).pools[0])
    assert before == f"gpu-block-0: nodes start at {START} and are removed at 2026-12-08T10:55:00Z"
    assert during == "gpu-block-0: nodes are removed at 2026-12-08T10:55:00Z"
    assert not list(dates(plan_of("aws").pools[0]))
