"""Size, updates and schedules of Auto Scaling groups."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from gpuinfra.clouds.aws.components.nodes import _rolling
from gpuinfra.plan.model import Group
from gpuinfra.spec import parse_spec
from tests.clouds.recorder import Registered
from tests.clouds.stacks import TODAY, plan_of, recording_of_spec

WHERE = {"cloud": "aws", "region": "us-east-2", "zone": "use2-az1"}


def _group(**changes: Any) -> Group:
    return Group(
        **{
            "name": "gpu-on-demand-0",
            "pool": "gpu",
            "kind": "on_demand",
            "count": 4,
            "max_count": 4,
            "zone": "use1-az4",
            **changes,
        }
    )


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 10, 64, 1000])
@pytest.mark.parametrize("terminate_first", [True, False])
def test_an_instance_refresh_keeps_nodes_running(count: int, terminate_first: bool) -> None:
    """AWS accepts the percentages, at least one of two or more nodes keeps running, and the refresh ends after the canary."""
    (pool,) = plan_of("aws-p4d").pools
    preferences: Any = _rolling(pool, _group(count=count, max_count=count, terminate_first=terminate_first)).preferences
    least, most = preferences.min_healthy_percentage, preferences.max_healthy_percentage
    assert 0 <= least <= 100 <= most <= 200
    assert most - least <= 100
    if terminate_first:
        assert most == 100
        assert least < 100
        assert count == 1 or least > 0
    else:
        assert least == 100
        assert most > 100
    marks = preferences.checkpoint_percentages
    (mark,) = marks
    replaced = next(new for new in range(count + 1) if new * 100 >= mark * count)
    # Percentages are whole numbers, so a canary of a larger group has at least 1 % of it.
    assert replaced == max(min(pool.canary, count), -(-count // 100))


def _block(starts_at: str, ends_at: str) -> tuple[Registered, list[Registered]]:
    entry = {"kind": "block", "id": "cr-0123456789abcdef0", "count": 2, "starts_at": starts_at, "ends_at": ends_at}
    spec = parse_spec(
        {"name": "burst", "where": WHERE, "pools": [{"name": "gpu", "machine": "p5.48xlarge", "capacity": [entry]}]}
    )
    recording = recording_of_spec(spec)
    return recording.one("aws:autoscaling/group:Group"), recording.of("aws:autoscaling/schedule:Schedule")


def test_a_block_in_the_future_is_empty_until_its_schedule() -> None:
    """Before the window the size is 0; a scheduled action changes it, and Pulumi ignores that change."""
    start = TODAY + timedelta(days=10)
    group, schedules = _block(f"{start}T11:30:00Z", f"{start + timedelta(days=7)}T11:30:00Z")
    assert group.inputs["desiredCapacity"] == 0
    assert "desiredCapacity" in group.ignored
    assert {one.inputs["scheduledActionName"]: one.inputs["desiredCapacity"] for one in schedules} == {
        "start": 2,
        "end": 0,
    }


def test_a_running_block_is_filled_at_once_and_ends_early() -> None:
    """Inside the window the group has its size, no action is in the past, and the last action is before AWS terminates the nodes."""
    end = TODAY + timedelta(days=6)
    group, schedules = _block(f"{end - timedelta(days=7)}T11:30:00Z", f"{end}T11:30:00Z")
    assert group.inputs["desiredCapacity"] == 2
    assert not group.ignored
    (last,) = schedules
    assert last.inputs["desiredCapacity"] == 0
    assert last.inputs["startTime"] == f"{end}T10:55:00Z"


def test_a_block_is_in_the_launch_template() -> None:
    """EC2 requires market type and target together, and the group has no reservation."""
    end = TODAY + timedelta(days=6)
    entry = {
        "kind": "block",
        "id": "cr-0123456789abcdef0",
        "count": 2,
        "starts_at": f"{end - timedelta(days=7)}T11:30:00Z",
        "ends_at": f"{end}T11:30:00Z",
    }
    spec = parse_spec(
        {"name": "burst", "where": WHERE, "pools": [{"name": "gpu", "machine": "p5.48xlarge", "capacity": [entry]}]}
    )
    recording = recording_of_spec(spec)
    template = recording.one("aws:ec2/launchTemplate:LaunchTemplate").inputs
    assert template["instanceMarketOptions"] == {"marketType": "capacity-block"}
    assert template["capacityReservationSpecification"] == {
        "capacityReservationTarget": {"capacityReservationId": "cr-0123456789abcdef0"}
    }
    assert "capacityReservationSpecification" not in recording.one("aws:autoscaling/group:Group").inputs


def test_a_reservation_with_overflow_is_used_first() -> None:
    """With `overflow`, the group prefers the reservation and falls back to on-demand capacity."""
    entry = {"kind": "reserved", "id": "cr-0123456789abcdef0", "count": 2, "overflow": True}
    spec = parse_spec(
        {"name": "train", "where": WHERE, "pools": [{"name": "gpu", "machine": "p5.48xlarge", "capacity": [entry]}]}
    )
    said = recording_of_spec(spec).one("aws:autoscaling/group:Group").inputs["capacityReservationSpecification"]
    assert said["capacityReservationPreference"] == "capacity-reservations-first"
    assert said["capacityReservationTarget"] == {"capacityReservationIds": ["cr-0123456789abcdef0"]}


def test_the_bundle_has_at_most_ten_tags() -> None:
    """S3 accepts ten tags on an object, so the tags of the declaration are not on the bundle."""
    tags = {f"tag-{number}": "x" for number in range(30)}
    pool = {"name": "gpu", "machine": "p5.48xlarge", "capacity": [{"kind": "on_demand", "count": 1}]}
    recording = recording_of_spec(parse_spec({"name": "train", "where": WHERE, "pools": [pool], "tags": tags}))
    assert len(recording.one("aws:s3/bucketObjectv2:BucketObjectv2").inputs["tags"]) <= 10
    assert len(recording.one("aws:ec2/vpc:Vpc").inputs["tags"]) > 30


@pytest.mark.parametrize(("machine", "minutes"), [("p5.48xlarge", 60), ("p4d.24xlarge", 60), ("g5.48xlarge", 20)])
def test_the_deletion_of_a_group_waits_for_its_machines(machine: str, minutes: int) -> None:
    """The provider waits longer than its 10 minutes for the instances of a group, and longest for P machines."""
    pool = {"name": "gpu", "machine": machine, "capacity": [{"kind": "on_demand", "count": 2}]}
    recording = recording_of_spec(parse_spec({"name": "slow", "where": WHERE, "pools": [pool]}))
    group = recording.one("aws:autoscaling/group:Group")
    assert group.timeouts == {"update": f"{minutes}m", "delete": f"{minutes}m"}


def _on_demand(expires_at: str) -> tuple[Registered, list[Registered]]:
    entry = {"kind": "on_demand", "count": 2}
    pools = [{"name": "gpu", "machine": "p5.48xlarge", "capacity": [entry]}]
    recording = recording_of_spec(
        parse_spec({"name": "burst", "where": WHERE, "pools": pools, "expires_at": expires_at})
    )
    return recording.one("aws:autoscaling/group:Group"), recording.of("aws:autoscaling/schedule:Schedule")


def test_a_cluster_that_expires_ends_each_group_at_this_time() -> None:
    """A group without a block has one action, which removes its nodes when the cluster expires. Until then, the declaration determines its size."""
    group, (end,) = _on_demand(f"{TODAY + timedelta(days=6)}T18:00:00Z")
    assert group.inputs["desiredCapacity"] == 2
    assert not group.ignored
    assert (end.inputs["scheduledActionName"], end.inputs["desiredCapacity"]) == ("end", 0)
    assert end.inputs["startTime"] == f"{TODAY + timedelta(days=6)}T18:00:00Z"


def test_an_expired_cluster_has_empty_groups_without_actions() -> None:
    """After the cluster expires, the size of each group is 0, and no action is in the past."""
    group, actions = _on_demand(f"{TODAY - timedelta(days=1)}T18:00:00Z")
    assert group.inputs["desiredCapacity"] == 0
    assert not actions


def test_the_maximum_size_of_a_group_changes_at_its_end() -> None:
    """After the end, the maximum differs from the one before the start, because the size in the state is 0 if only a scheduled action started the nodes."""
    start = TODAY + timedelta(days=10)
    before, _ = _block(f"{start}T11:30:00Z", f"{start + timedelta(days=7)}T11:30:00Z")
    during, _ = _block(f"{TODAY - timedelta(days=1)}T11:30:00Z", f"{TODAY + timedelta(days=6)}T11:30:00Z")
    after, _ = _on_demand(f"{TODAY - timedelta(days=1)}T18:00:00Z")
    assert [one.inputs["maxSize"] for one in (before, during, after)] == [2, 2, 0]
    assert (before.inputs["desiredCapacity"], after.inputs["desiredCapacity"]) == (0, 0)


def test_a_future_reservation_is_empty_until_its_schedule() -> None:
    """A group in a reservation that starts later is empty and targets the reservation. A scheduled action starts its nodes."""
    start = TODAY + timedelta(days=10)
    entry = {"kind": "reserved", "id": "cr-0123456789abcdef0", "count": 2, "starts_at": f"{start}T11:30:00Z"}
    pools = [{"name": "gpu", "machine": "p5.48xlarge", "capacity": [entry]}]
    recording = recording_of_spec(parse_spec({"name": "burst", "where": WHERE, "pools": pools}))
    group = recording.one("aws:autoscaling/group:Group")
    (action,) = recording.of("aws:autoscaling/schedule:Schedule")
    assert group.inputs["desiredCapacity"] == 0
    assert "desiredCapacity" in group.ignored
    assert (
        group.inputs["capacityReservationSpecification"]["capacityReservationPreference"]
        == "capacity-reservations-only"
    )
    assert (action.inputs["startTime"], action.inputs["desiredCapacity"]) == (f"{start}T11:30:00Z", 2)


@pytest.mark.parametrize(("machine", "interfaces"), [("g5.xlarge", 1), ("p4d.24xlarge", 5)])
def test_nodes_get_no_public_address_in_any_subnet(machine: str, interfaces: int) -> None:
    """Also in a subnet of an existing network with `MapPublicIpOnLaunch`. EC2 accepts the setting only on a template with one interface,
    and gives no public address to an instance with several (`AssociatePublicIpAddress` in the EC2 API model of botocore)."""
    network = {"existing": {"id": "vpc-0123456789abcdef0", "subnets": {"use2-az1": "subnet-0123456789abcdef0"}}}
    spec = parse_spec(
        {"name": "open", "where": WHERE, "network": network, "pools": [{"name": "gpu", "machine": machine, "capacity": {"kind": "on_demand", "count": 1}}]}
    )  # fmt: skip
    (template,) = recording_of_spec(spec).of("aws:ec2/launchTemplate:LaunchTemplate")
    nics = template.inputs["networkInterfaces"]
    assert len(nics) == interfaces
    assert [nic.get("associatePublicIpAddress") for nic in nics] == (
        ["false"] if interfaces == 1 else [None] * interfaces
    )
