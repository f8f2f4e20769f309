"""Reservations and Capacity Blocks that start later, as preflight reads them on AWS and Google Cloud."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpuinfra.clouds.preflight import RowState
from gpuinfra.plan.model import Plan
from tests.doctor import test_aws_live as aws
from tests.doctor import test_gcp_live as gcp
from tests.doctor.test_gcp_live import google as google

STARTS, ENDS = datetime(2027, 1, 2, 3, 4, tzinfo=UTC), datetime(2027, 1, 9, 3, 4, tzinfo=UTC)


def future(plan: Plan) -> Plan:
    """The plan, with reservations that start and end later."""
    (pool,) = plan.pools
    groups = tuple(
        replace(one, count=0, starts_at="2027-01-02T03:04:00Z", ends_at="2027-01-09T03:04:00Z") if one.reservation_id else one
        for one in pool.groups
    )  # fmt: skip
    return replace(plan, pools=(replace(pool, groups=groups),))


@pytest.mark.parametrize(
    ("changes", "state", "said"),
    [
        ({}, RowState.OK, "scheduled"),
        ({"StartDate": STARTS + timedelta(minutes=1)}, RowState.ERROR, "set `starts_at` in the stack file to 2027-01-02T03:05:00Z"),
        ({"EndDate": ENDS - timedelta(minutes=1)}, RowState.ERROR, "set `ends_at` in the stack file to 2027-01-09T03:03:00Z"),
        ({"State": "failed"}, RowState.ERROR, "is failed"),
        ({"State": "active", "EndDate": datetime.now(UTC) + timedelta(days=2)}, RowState.ERROR, "set `ends_at`"),
    ],
)  # fmt: skip
def test_future_reservation_on_aws(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], state: RowState, said: str
) -> None:
    """A reservation that is not active yet fits nodes that start and end with it. Its times are compared with the declaration."""
    given = {"State": "scheduled", "StartDate": STARTS, "EndDate": ENDS, "EndDateType": "limited", **changes}
    rows, _ = aws.ask(monkeypatch, future(aws.P4D), DescribeCapacityReservations=aws.reservations(**given))
    row = aws.of(rows, "reservation")
    assert row.state is state
    assert said in f"{row.found} {row.fix}"


def test_an_undeclared_start_is_in_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the declaration has no start, the fix contains the start of the reservation."""
    given = aws.reservations(State="scheduled", StartDate=STARTS)
    row = aws.of(aws.ask(monkeypatch, aws.P4D, DescribeCapacityReservations=given)[0], "reservation")
    assert row.state is RowState.ERROR
    assert "set `starts_at` in the stack file to 2027-01-02T03:04:00Z" in row.fix


def test_future_reservation_on_google_cloud(google: gcp.Google) -> None:
    """Compute Engine creates the reservation at its start, so until then its absence is a warning."""
    del google.answers[gcp.PATHS["reservation"]]
    row = gcp.of(gcp.ask(future(gcp.PLAN)), "reservation")
    assert row.state is RowState.WARN
    assert row.needed == "a reservation at 2027-01-02T03:04:00Z"
    assert row.fix == "gcloud compute future-reservations list --project=ai-team"
