"""Templates get versions, and groups launch, keep, replace and end instances."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest

from gpuinfra_rehearsal.cloud.aws import refreshes, schedules
from gpuinfra_rehearsal.cloud.core import fleet as fleet_module
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected
from gpuinfra_rehearsal.cloud.core.faults import Faults
from gpuinfra_rehearsal.nodes import Instance
from rehearsal.tests.cloud import stacks
from rehearsal.tests.cloud.conftest import Client


class Host:
    """A node host that only remembers."""

    def __init__(self) -> None:
        self.launched: dict[str, Instance] = {}
        self.terminated: list[str] = []

    def launch(self, instance) -> None:
        self.launched[instance.id] = instance

    def terminate(self, id: str) -> None:
        self.terminated.append(id)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "_SETTLE_S", 0)
    monkeypatch.setattr(fleet_module, "_RETRY_S", 0)


@pytest.fixture
def host(cloud: Cloud) -> Host:
    """A node host that only remembers, in the cloud's fleet."""
    cloud.fleet.host = Host()
    return cloud.fleet.host


def names(cloud: Cloud) -> list[str]:
    """Who runs."""
    return sorted(one["name"] for one in cloud.fleet.instances().values() if one["state"] == "running")


def test_a_template_gets_a_version_for_launch_settings_only(aws: Client) -> None:
    """New user data creates a version and a new default; new tags do not."""
    made = stacks.template(aws)
    assert made.outputs["latestVersion"] == 1
    tagged = aws.update(made, {"tags": {"a": "b"}})
    assert tagged.outputs["latestVersion"] == 1
    changed = aws.update(tagged, {"userData": "YQ=="})
    assert (changed.outputs["latestVersion"], changed.outputs["defaultVersion"]) == (2, 2)


def test_a_group_launches_its_instances(aws: Client, cloud: Cloud, host: Host) -> None:
    """Instances have the template's machine type and names in launch order, and a second round launches none."""
    _, subnet = stacks.network(aws)
    stacks.group(aws, stacks.template(aws), 2, subnet)
    cloud.fleet.reconcile()
    cloud.fleet.reconcile()
    assert names(cloud) == ["gpu-1", "gpu-2"]
    (first, _) = host.launched.values()
    assert (first.machine, first.zone, first.pool, first.cluster) == ("p4d.24xlarge", "use1-az4", "gpu", "train")


def test_a_lost_instance_is_replaced_under_a_new_number(aws: Client, cloud: Cloud, host: Host) -> None:
    """The replacement of gpu-1 is gpu-3: a number is never used twice."""
    _, subnet = stacks.network(aws)
    stacks.group(aws, stacks.template(aws), 2, subnet)
    cloud.fleet.reconcile()
    assert cloud.fleet.terminate("i-00000000000000001", "hardware")
    cloud.fleet.reconcile()
    assert names(cloud) == ["gpu-2", "gpu-3"]
    assert host.terminated == ["i-00000000000000001"]


def test_scaling_in_and_deleting_end_instances(aws: Client, cloud: Cloud, host: Host) -> None:
    """A smaller size ends one instance, deletion ends all, and a new pool of that name starts at 1."""
    _, subnet = stacks.network(aws)
    made = stacks.group(aws, stacks.template(aws), 3, subnet)
    cloud.fleet.reconcile()
    made = aws.update(made, {"desiredCapacity": 2})
    cloud.fleet.reconcile()
    assert names(cloud) == ["gpu-1", "gpu-2"]
    aws.delete(made)
    assert names(cloud) == []
    assert sorted(host.terminated) == [f"i-0000000000000000{n}" for n in (1, 2, 3)]
    stacks.group(aws, stacks.template(aws, "again"), 1, subnet, "again")
    cloud.fleet.reconcile()
    assert names(cloud) == ["gpu-1"]


def test_a_group_that_is_deleted_during_a_launch_launches_no_more(
    aws: Client, cloud: Cloud, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deletion between two launches, or between a launch and its start, leaves no instance and no running machine."""
    _, subnet = stacks.network(aws)
    made = stacks.group(aws, stacks.template(aws), 3, subnet)
    launch = host.launch

    def deleted_meanwhile(instance) -> None:
        if not host.launched:
            aws.delete(made)
        launch(instance)

    monkeypatch.setattr(host, "launch", deleted_meanwhile)
    cloud.fleet.reconcile()
    assert names(cloud) == []
    assert set(host.launched) <= set(host.terminated)
    assert len(host.launched) == 1


def test_an_instance_without_its_group_ends(aws: Client, cloud: Cloud, host: Host) -> None:
    """A process that was killed between both can leave an instance; the next round ends it."""
    _, subnet = stacks.network(aws)
    made = stacks.group(aws, stacks.template(aws), 1, subnet)
    cloud.fleet.reconcile()
    cloud.store.remove(cloud.store.find(made.token, made.id))
    cloud.fleet.reconcile()
    assert names(cloud) == []
    assert host.terminated == ["i-00000000000000001"]


def test_reserved_nodes_are_numbered_before_spot_ones(aws: Client, cloud: Cloud, host: Host) -> None:
    """Numbers follow the order reserved, block, on-demand, spot, whichever group was created first."""
    _, subnet = stacks.network(aws)
    launch = stacks.template(aws)
    stacks.group(aws, launch, 1, subnet, "spot", mixedInstancesPolicy=stacks.spot(launch))
    stacks.group(aws, launch, 1, subnet, "plain")
    stacks.group(aws, launch, 1, subnet, "reserved", **stacks.RESERVED)
    cloud.fleet.reconcile()
    kinds = {one["name"]: one["kind"] for one in cloud.fleet.instances().values()}
    assert kinds == {"gpu-1": "reserved", "gpu-2": "on_demand", "gpu-3": "spot"}


def test_a_new_template_version_rolls_the_group(aws: Client, cloud: Cloud, host: Host) -> None:
    """With an instance refresh the group replaces its instances within its minimum of healthy ones; without it, none."""
    _, subnet = stacks.network(aws)
    launch = stacks.template(aws)
    refresh = {"strategy": "Rolling", "preferences": {"minHealthyPercentage": 50}}
    rolled = stacks.group(aws, launch, 4, subnet, "rolled", instanceRefresh=refresh)
    still = stacks.group(aws, launch, 1, subnet, "still")
    cloud.fleet.reconcile()
    launch = aws.update(launch, {"userData": "YQ=="})
    for made in (rolled, still):
        aws.update(made, {"launchTemplate": {"id": launch.id, "version": "2"}})
    seen = []
    for _ in range(12):
        cloud.fleet.reconcile()
        seen.append(len(cloud.fleet.members("us-east-1", "rolled")))
    versions = [one["template_version"] for one in cloud.fleet.members("us-east-1", "rolled")]
    assert versions == [2, 2, 2, 2]
    assert min(seen) == 2
    assert [one["template_version"] for one in cloud.fleet.members("us-east-1", "still")] == [1]


@pytest.mark.parametrize(
    ("word", "kind", "said"),
    [
        ("spot", "spot", "There is no Spot capacity available that matches your request."),
        (
            "gpu",
            "on_demand",
            "We currently do not have sufficient p4d.24xlarge capacity in the Availability Zone you requested (us-east-1e).",
        ),
    ],
)
def test_missing_capacity_is_reported_in_ec2s_words(
    tmp_path: Path, cloud: Cloud, aws: Client, word: str, kind: str, said: str
) -> None:
    """A group without capacity stays, launches nothing, and its activities have the reason."""
    cloud.faults._take(f"cloud:no-capacity:{word}")
    _, subnet = stacks.network(aws)
    launch = stacks.template(aws)
    stacks.group(aws, launch, 2, subnet, **({"mixedInstancesPolicy": stacks.spot(launch)} if kind == "spot" else {}))
    cloud.fleet.reconcile()
    assert names(cloud) == []
    (activity,) = cloud.fleet.activities("us-east-1", "gpu")
    assert activity["status"] == "Failed"
    assert "InsufficientInstanceCapacity" in activity["message"]
    assert said in activity["message"]


def test_a_group_that_waits_for_capacity_fails_without_it(cloud: Cloud, aws: Client) -> None:
    """The provider waits by default. A rehearsal fails at once with the message of the timeout, and the group exists."""
    cloud.faults._take("cloud:no-capacity:gpu")
    _, subnet = stacks.network(aws)
    with pytest.raises(grpc.RpcError, match="want at least 2 healthy instance"):
        stacks.group(aws, stacks.template(aws), 2, subnet, waitForCapacityTimeout="10m")
    assert [one.id for one in cloud.store.list("aws:autoscaling/group:Group")] == ["gpu"]


def test_a_reservation_holds_no_more_than_its_size(cloud: Cloud, aws: Client, host: Host) -> None:
    """The third instance in a reservation of two is not launched."""
    cloud.store.put("external", "cr-0123456789abcdef0", {"count": 2})
    _, subnet = stacks.network(aws)
    stacks.group(aws, stacks.template(aws), 3, subnet, **stacks.RESERVED)
    cloud.fleet.reconcile()
    assert names(cloud) == ["gpu-1", "gpu-2"]
    assert "ReservationCapacityExceeded" in cloud.fleet.activities("us-east-1", "gpu")[0]["message"]


def test_a_group_without_its_template_is_rejected(cloud: Cloud, aws: Client) -> None:
    """A template or version that does not exist is rejected in the words of Auto Scaling."""
    _, subnet = stacks.network(aws)
    with pytest.raises(grpc.RpcError, match="does not exist"):
        stacks.group(aws, stacks.template(aws), 1, subnet, version="9")
    assert cloud.store.list("aws:autoscaling/group:Group") == []


def test_the_name_of_an_image_tells_its_content(cloud: Cloud, aws: Client, host: Host) -> None:
    """An image from a public parameter or a name of AWS's GPU images contains the driver; a plain Ubuntu does not."""
    _, subnet = stacks.network(aws)
    for number, name in enumerate(
        (
            "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id",
            "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id",
        )
    ):
        image = aws.invoke("aws:ssm/getParameter:getParameter", name=name)["insecureValue"]
        stacks.group(aws, stacks.template(aws, f"template{number}", imageId=image), 1, subnet, f"g{number}")
    named = [{"name": "name", "values": ["Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04) 20261006"]}]
    image = aws.invoke("aws:ec2/getAmi:getAmi", owners=["amazon"], filters=named)["id"]
    stacks.group(aws, stacks.template(aws, "template2", imageId=image), 1, subnet, "g2")
    cloud.fleet.reconcile()
    assert [(one.os, one.prebuilt) for one in host.launched.values()] == [
        ("ubuntu-22.04", True),
        ("ubuntu-24.04", False),
        ("ubuntu-24.04", True),
    ]


def _schedule(aws: Client, name: str, start: str, count: int) -> None:
    """Schedule a one-time action that sets only the desired capacity of the group `gpu`."""
    inputs = {
        "scheduledActionName": name,
        "autoscalingGroupName": "gpu",
        "startTime": start,
        "desiredCapacity": count,
        "minSize": -1,
        "maxSize": -1,
    }
    aws.create(schedules.SCHEDULE, inputs, name)


def test_a_scheduled_action_changes_its_group_once(
    aws: Client, cloud: Cloud, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A due action changes the sizes of its group and is then deleted; a later one waits until it is due or run by hand."""
    _, subnet = stacks.network(aws)
    stacks.group(aws, stacks.template(aws), 0, subnet)
    _schedule(aws, "start", "2098-01-01T00:00:00Z", 2)
    _schedule(aws, "end", "2099-01-01T00:00:00Z", 0)
    cloud.fleet.reconcile()
    assert names(cloud) == []
    monkeypatch.setattr(schedules, "_now", lambda: datetime(2098, 6, 1, tzinfo=UTC).timestamp())
    cloud.fleet.reconcile()
    assert names(cloud) == ["gpu-1", "gpu-2"]
    assert aws.read("aws:autoscaling/group:Group", "gpu").outputs["desiredCapacity"] == 2
    assert [one.plain["scheduledActionName"] for one in cloud.store.list(schedules.SCHEDULE)] == ["end"]
    assert schedules.run(cloud.store, "end")
    cloud.fleet.reconcile()
    assert names(cloud) == []
    assert not schedules.run(cloud.store, "end")
    assert not schedules.run(cloud.store, "never")


@pytest.mark.parametrize(
    ("change", "size"), [({"healthCheckGracePeriod": 60}, 2), ({"maxSize": 1}, 1), ({"maxSize": 0}, 0)]
)
def test_an_update_sends_a_size_only_if_it_differs_from_the_state(
    aws: Client, cloud: Cloud, host: Host, change: dict[str, Any], size: int
) -> None:
    """After a scheduled action, an update whose size matches the state keeps the size of the group, or reduces it to the new maximum."""
    _, subnet = stacks.network(aws)
    made = stacks.group(aws, stacks.template(aws), 0, subnet)
    _schedule(aws, "start", "2098-01-01T00:00:00Z", 2)
    assert schedules.run(cloud.store, "start")
    updated = aws.update(made, change)
    assert updated.outputs["desiredCapacity"] == size
    cloud.fleet.reconcile()
    assert len(names(cloud)) == size
    refreshed = aws.read(made.token, made.id)
    aws.update(refreshed, {"desiredCapacity": 0})
    cloud.fleet.reconcile()
    assert not names(cloud)


def test_a_scheduled_action_in_the_past_is_rejected(aws: Client, cloud: Cloud) -> None:
    """AWS accepts no action whose start has passed."""
    _, subnet = stacks.network(aws)
    stacks.group(aws, stacks.template(aws), 0, subnet)
    with pytest.raises(grpc.RpcError, match="Given start time is in the past"):
        _schedule(aws, "start", "2020-01-01T00:00:00Z", 2)


def _roll(aws: Client, cloud: Cloud, count: int, **preferences: object) -> list[int]:
    """Update the template of a group with an instance refresh, run it, and return the versions of its instances."""
    _, subnet = stacks.network(aws)
    launch = stacks.template(aws)
    refresh = {"strategy": "Rolling", "preferences": {"minHealthyPercentage": 0, **preferences}}
    made = stacks.group(aws, launch, count, subnet, "rolled", instanceRefresh=refresh)
    cloud.fleet.reconcile()
    launch = aws.update(launch, {"userData": "YQ=="})
    aws.update(made, {"launchTemplate": {"id": launch.id, "version": "2"}})
    for _ in range(12):
        cloud.fleet.reconcile()
    return sorted(one["template_version"] for one in cloud.fleet.members("us-east-1", "rolled"))


@pytest.mark.parametrize(
    ("count", "checkpoints", "delay", "versions", "status"),
    [
        (3, [33], 0, [1, 1, 2], "Successful"),
        (3, [34], 0, [1, 2, 2], "Successful"),
        (5, [20, 100], 3600, [1, 1, 1, 1, 2], "InProgress"),
        (5, [20, 100], 0, [2, 2, 2, 2, 2], "Successful"),
        (2, [10, 40, 100], 3600, [1, 2], "InProgress"),
        (3, None, 0, [2, 2, 2], "Successful"),
    ],
)
def test_a_refresh_stops_at_its_checkpoints(
    aws: Client, cloud: Cloud, host: Host, count: int, checkpoints: list[int] | None, delay: int, versions: list[int], status: str
) -> None:  # fmt: skip
    """A refresh pauses at each checkpoint, passes several at once, and ends as successful at its last one, also below 100 %."""
    more = {"checkpointPercentages": checkpoints, "checkpointDelay": str(delay)} if checkpoints else {}
    assert _roll(aws, cloud, count, **more) == versions
    found = refreshes.newest(cloud.store, "us-east-1", "rolled")
    assert found
    assert found["status"] == status


def test_a_refresh_in_progress_rejects_another(aws: Client, cloud: Cloud, host: Host) -> None:
    """A second refresh is rejected while one is in progress; after it ended, a new one replaces the rest."""
    _roll(aws, cloud, 5, checkpointPercentages=[20, 100], checkpointDelay="3600")
    with pytest.raises(ApiRejected, match="InstanceRefreshInProgress"):
        refreshes.start_now(cloud.store, "us-east-1", "rolled", {})
    refreshes.drop(cloud.store, "us-east-1", "rolled")
    refreshes.start_now(cloud.store, "us-east-1", "rolled", {"minHealthyPercentage": 0})
    for _ in range(6):
        cloud.fleet.reconcile()
    assert {one["template_version"] for one in cloud.fleet.members("us-east-1", "rolled")} == {2}


def test_a_recorded_refusal_is_reported_for_a_number_of_attempts(aws: Client, cloud: Cloud, host: Host) -> None:
    """A group reports the recorded message of a code, and launches after the number of attempts."""
    cloud.faults = Faults(["cloud:refused:UnauthorizedOperation:gpu:2"], cloud.store)
    made = stacks.group(aws, stacks.template(aws), 1, stacks.network(aws)[1])
    for _ in range(2):
        cloud.fleet.reconcile()
    failed = [one for one in cloud.fleet.activities("", made.id) if one["status"] == "Failed"]
    assert {(one["code"], one["message"]) for one in failed} == {
        ("UnauthorizedOperation", "You are not authorized to perform this operation.")
    }
    assert (len(failed), host.launched) == (2, {})
    cloud.fleet.reconcile()
    assert len(host.launched) == 1


def test_limited_capacity_launches_some_nodes(aws: Client, cloud: Cloud, host: Host) -> None:
    """A group with capacity for one node launches one of two, and reports missing capacity for the other."""
    cloud.faults = Faults(["cloud:limited:gpu:1"], cloud.store)
    made = stacks.group(aws, stacks.template(aws), 2, stacks.network(aws)[1])
    cloud.fleet.reconcile()
    assert len(host.launched) == 1
    newest = cloud.fleet.activities("", made.id)[0]
    assert (newest["status"], newest["code"]) == ("Failed", "InsufficientInstanceCapacity")


def test_a_slow_group_launches_later_and_reports_nothing(aws: Client, cloud: Cloud, host: Host) -> None:
    """A delayed group has no activity until its first node launches."""
    cloud.faults = Faults(["cloud:slow:gpu:600"], cloud.store)
    made = stacks.group(aws, stacks.template(aws), 1, stacks.network(aws)[1])
    cloud.fleet.reconcile()
    assert (host.launched, cloud.fleet.activities("", made.id)) == ({}, [])
    cloud.faults = Faults([], cloud.store)
    cloud.fleet.reconcile()
    assert len(host.launched) == 1


def test_throttled_requests_are_counted(cloud: Cloud) -> None:
    """The first requests are throttled, and the count starts again when the faults are replaced."""
    faults = Faults(["cloud:throttled:2"], cloud.store)
    assert [faults.throttles() for _ in range(3)] == [True, True, False]
    faults.forget()
    assert faults.throttles()
    assert not Faults([], cloud.store).throttles()


def test_faults_without_an_effect_are_known(aws: Client, cloud: Cloud, host: Host) -> None:
    """A fault has an effect when it changes an answer or a launch: not for a group that has its nodes, and not in another pool."""
    made = stacks.group(aws, stacks.template(aws), 1, stacks.network(aws)[1])
    cloud.fleet.reconcile()
    texts = [
        "cloud:limited:gpu:1",
        "cloud:no-capacity:other",
        "cloud:throttled:1",
        "node:gpu-1:gpu-missing",
        "node:gpu-2:gpu-missing",
    ]
    cloud.faults = Faults(texts, cloud.store)
    cloud.fleet.reconcile()
    assert cloud.faults.without_effect() == texts
    assert cloud.faults.throttles()
    aws.update(made, {"desiredCapacity": 2, "maxSize": 2})
    cloud.fleet.reconcile()
    assert cloud.faults.without_effect() == [
        "cloud:no-capacity:other",
        "node:gpu-1:gpu-missing",
        "node:gpu-2:gpu-missing",
    ]
    cloud.faults = Faults(texts[3:], cloud.store)
    cloud.fleet.reconcile()
    assert cloud.faults.without_effect() == ["node:gpu-1:gpu-missing"]
