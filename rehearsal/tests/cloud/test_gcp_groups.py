"""Managed instance groups launch, keep, replace and end instances."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from gpuinfra_rehearsal.cloud.core import fleet as fleet_module
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.faults import Faults
from gpuinfra_rehearsal.cloud.gcp import groups as gcp_groups
from rehearsal.tests.cloud import google
from rehearsal.tests.cloud.conftest import Client
from rehearsal.tests.cloud.test_groups import Host, names

FLEX = {"provisioningModel": "FLEX_START", "automaticRestart": False, "maxRunDuration": {"seconds": 3600}}
SPOT = {"provisioningModel": "SPOT", "preemptible": True, "automaticRestart": False}


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "_SETTLE_S", 0)
    monkeypatch.setattr(fleet_module, "_RETRY_S", 0)


@pytest.fixture
def host(cloud: Cloud) -> Host:
    """A node host that only remembers, in the cloud's fleet."""
    cloud.fleet.host = Host()
    return cloud.fleet.host


def running(cloud: Cloud) -> list[dict[str, Any]]:
    """Who runs, in launch order."""
    return [one for one in cloud.fleet.instances().values() if one["state"] == "running"]


def settled(cloud: Cloud, passes: int = 12) -> list[list[str]]:
    """Who ran after each pass."""
    seen = []
    for _ in range(passes):
        cloud.fleet.reconcile()
        seen.append(names(cloud))
    return seen


def test_a_group_launches_its_instances(gcp: Client, cloud: Cloud, host: Host) -> None:
    """Instances have the template's machine type and names in launch order, and a second round launches none."""
    google.group(gcp, google.template(gcp))
    settled(cloud, 2)
    assert names(cloud) == ["gpu-1", "gpu-2"]
    one = host.launched[running(cloud)[0]["id"]]
    assert (one.machine, one.os, one.prebuilt, one.cloud) == (google.MACHINE, "ubuntu-22.04", True, "gcp")  # type: ignore[attr-defined]
    assert (one.region, one.zone, one.cluster, one.pool) == ("us-central1", google.ZONE, "train", "gpu")  # type: ignore[attr-defined]
    assert all(id.isdigit() and len(id) == 19 for id in host.launched)


def test_a_lost_machine_is_replaced_under_a_new_number(gcp: Client, cloud: Cloud, host: Host) -> None:
    """The group repairs itself, and no label is given twice."""
    google.group(gcp, google.template(gcp))
    settled(cloud, 2)
    lost = running(cloud)[0]["id"]
    assert cloud.fleet.lose(lost)
    settled(cloud, 2)
    assert names(cloud) == ["gpu-2", "gpu-3"]
    assert lost in host.terminated
    assert "recreateInstance" in [one["cause"] for one in cloud.fleet.activities("", google.path())][1]


def test_a_new_template_rolls_one_by_one_ending_first(gcp: Client, cloud: Cloud, host: Host) -> None:
    """Without surge there are one or two machines at any time, and in the end all have the new template."""
    made = google.group(gcp, google.template(gcp))
    settled(cloud, 2)
    second = google.template(gcp, "gpu-v2", machineType="a3-ultragpu-8g")
    gcp.update(made, {"versions": google.versions(second)})
    seen = settled(cloud)
    assert {len(one) for one in seen} == {1, 2}
    assert {one["template_name"] for one in running(cloud)} == {"gpu-v2"}
    assert names(cloud) == ["gpu-3", "gpu-4"]


def test_a_surge_launches_new_machines_first(gcp: Client, cloud: Cloud, host: Host) -> None:
    """With a surge of one there are never fewer than two."""
    policy = {"type": "PROACTIVE", "minimalAction": "REPLACE", "maxSurgeFixed": 1, "maxUnavailableFixed": 0}
    made = google.group(gcp, google.template(gcp), updatePolicy=policy)
    settled(cloud, 2)
    gcp.update(made, {"versions": google.versions(google.template(gcp, "gpu-v2"))})
    seen = settled(cloud)
    assert {len(one) for one in seen} == {2, 3}
    assert {one["template_name"] for one in running(cloud)} == {"gpu-v2"}


def test_a_canary_has_the_size_of_its_version(gcp: Client, cloud: Cloud, host: Host) -> None:
    """A second version with a size of one gets one machine; without it, all return to the first."""
    first = google.template(gcp)
    made = google.group(gcp, first, count=3)
    settled(cloud, 2)
    second = google.template(gcp, "gpu-v2")
    canary = {"instanceTemplate": second.outputs["selfLink"], "name": "canary", "targetSize": {"fixed": 1}}
    made = gcp.update(made, {"versions": [*google.versions(first), canary]})
    settled(cloud)
    assert sorted(one["template_name"] for one in running(cloud)) == ["gpu-v1", "gpu-v1", "gpu-v2"]
    gcp.update(made, {"versions": google.versions(first)})
    settled(cloud)
    assert {one["template_name"] for one in running(cloud)} == {"gpu-v1"}


def test_an_opportunistic_group_replaces_no_machine(gcp: Client, cloud: Cloud, host: Host) -> None:
    """Machines of the old template stay until another cause ends them."""
    made = google.group(gcp, google.template(gcp), updatePolicy={"type": "OPPORTUNISTIC", "minimalAction": "REPLACE"})
    settled(cloud, 2)
    gcp.update(made, {"versions": google.versions(google.template(gcp, "gpu-v2"))})
    settled(cloud, 4)
    assert names(cloud) == ["gpu-1", "gpu-2"]
    cloud.fleet.lose(running(cloud)[0]["id"])
    settled(cloud, 2)
    assert sorted(one["template_name"] for one in running(cloud)) == ["gpu-v1", "gpu-v2"]


def test_a_group_grows_and_shrinks(gcp: Client, cloud: Cloud, host: Host) -> None:
    """The newest leave first."""
    made = google.group(gcp, google.template(gcp), count=2)
    settled(cloud, 2)
    made = gcp.update(made, {"targetSize": 4})
    settled(cloud, 2)
    assert names(cloud) == ["gpu-1", "gpu-2", "gpu-3", "gpu-4"]
    gcp.update(made, {"targetSize": 1})
    settled(cloud, 3)
    assert names(cloud) == ["gpu-1"]


def test_a_deleted_group_ends_its_machines_and_resets_numbers(gcp: Client, cloud: Cloud, host: Host) -> None:
    """A new pool of that name starts at 1."""
    first = google.template(gcp)
    gcp.delete(google.group(gcp, first))
    made = google.group(gcp, first)
    settled(cloud, 2)
    gcp.delete(made)
    assert names(cloud) == []
    google.group(gcp, first)
    settled(cloud, 2)
    assert names(cloud) == ["gpu-1", "gpu-2"]


def test_a_preempted_machine_gets_notice_and_is_replaced(
    gcp: Client, cloud: Cloud, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends after its notice, and the group launches another one. Only spot machines are preempted."""
    google.group(gcp, google.template(gcp, scheduling=SPOT))
    google.group(gcp, google.template(gcp, "other-v1"), 1, "other")
    settled(cloud, 2)
    spot = [one for one in running(cloud) if one["kind"] == "spot"]
    assert gcp_groups.preempt(cloud.store, spot[0]["id"])
    assert not gcp_groups.preempt(cloud.store, next(one["id"] for one in running(cloud) if one["kind"] != "spot"))
    settled(cloud, 2)
    assert spot[0]["id"] not in host.terminated
    monkeypatch.setattr(gcp_groups, "NOTICE_S", 0)
    settled(cloud, 3)
    assert spot[0]["id"] in host.terminated
    assert len([one for one in running(cloud) if one["kind"] == "spot"]) == 2
    assert any("compute.instances.preempted" in one["cause"] for one in cloud.fleet.activities("", google.path()))


@pytest.mark.parametrize(
    ("scheduling", "word"),
    [({}, "on_demand"), (SPOT, "spot"), ({"provisioningModel": "RESERVATION_BOUND"}, "reserved")],
)
def test_missing_capacity_is_reported_in_googles_words(
    gcp: Client, cloud: Cloud, host: Host, scheduling: dict[str, Any], word: str
) -> None:
    """No machine is launched, and the group's errors have Compute Engine's code."""
    cloud.faults = Faults([f"cloud:no-capacity:{word}"], cloud.store)
    google.group(gcp, google.template(gcp, scheduling=scheduling))
    settled(cloud, 2)
    assert names(cloud) == []
    failed = cloud.fleet.activities("", google.path())[0]
    assert (failed["status"], failed["code"]) == ("Failed", "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS")
    assert (
        f"The zone 'projects/standin-project/zones/{google.ZONE}' does not have enough resources" in failed["message"]
    )


def test_a_reservation_holds_no_more_than_its_size(gcp: Client, cloud: Cloud, host: Host) -> None:
    """The third instance in a reservation of two is not launched."""
    cloud.store.put("external", "block-7", {"count": 2})
    key = "compute.googleapis.com/reservation-name"
    affinity = {"type": "SPECIFIC_RESERVATION", "specificReservation": {"key": key, "values": ["block-7"]}}
    google.group(gcp, google.template(gcp, reservationAffinity=affinity), count=3)
    settled(cloud, 2)
    assert names(cloud) == ["gpu-1", "gpu-2"]
    assert "reservation 'block-7'" in cloud.fleet.activities("", google.path())[0]["message"]


def test_a_resize_request_is_served_completely_and_shown_by_a_refresh(gcp: Client, cloud: Cloud, host: Host) -> None:
    """A flex-start group starts empty and grows by the accepted size; a refresh reads the new size."""
    made = google.group(
        gcp, google.template(gcp, scheduling=FLEX), 0, instanceLifecyclePolicy={"defaultActionOnFailure": "DO_NOTHING"}
    )
    inputs = {"name": "window-1", "instanceGroupManager": "gpu", "zone": google.ZONE, "resizeBy": 2}
    asked = gcp.create("gcp:compute/resizeRequest:ResizeRequest", inputs, "window-1")
    assert asked.id == f"{google.path()}/resizeRequests/window-1"
    assert gcp.read(asked.token, asked.id).outputs["state"] == "ACCEPTED"
    settled(cloud, 3)
    assert names(cloud) == ["gpu-1", "gpu-2"]
    assert gcp.read(asked.token, asked.id).outputs["state"] == "SUCCEEDED"
    assert gcp.read(made.token, made.id).outputs["targetSize"] == 2
    gcp.delete(asked)
    settled(cloud, 2)
    assert names(cloud) == ["gpu-1", "gpu-2"], "machines of a request that was served stay"


def test_a_resize_request_waits_for_capacity(gcp: Client, cloud: Cloud, host: Host) -> None:
    """It stays accepted without machines, and deleting it cancels it."""
    cloud.faults = Faults(["cloud:no-capacity:flex"], cloud.store)
    google.group(
        gcp, google.template(gcp, scheduling=FLEX), 0, instanceLifecyclePolicy={"defaultActionOnFailure": "DO_NOTHING"}
    )
    inputs = {"name": "window-1", "instanceGroupManager": "gpu", "zone": google.ZONE, "resizeBy": 2}
    asked = gcp.create("gcp:compute/resizeRequest:ResizeRequest", inputs, "window-1")
    settled(cloud, 2)
    assert names(cloud) == []
    assert gcp.read(asked.token, asked.id).outputs["state"] == "ACCEPTED"
    gcp.delete(asked)
    cloud.faults = Faults([], cloud.store)
    settled(cloud, 2)
    assert names(cloud) == []


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (
            {"type": "PROACTIVE", "minimalAction": "REPLACE", "replacementMethod": "RECREATE", "maxSurgeFixed": 1},
            "maxSurge must be equal to 0",
        ),
        (
            {"type": "PROACTIVE", "minimalAction": "REPLACE", "maxSurgeFixed": 0, "maxUnavailableFixed": 0},
            "cannot both be equal to 0",
        ),
    ],
)
def test_an_update_policy_that_can_replace_no_machine_is_rejected(
    gcp: Client, policy: dict[str, Any], text: str
) -> None:
    """Google rejects it at the creation of the group."""
    with pytest.raises(grpc.RpcError, match=text):
        google.group(gcp, google.template(gcp), updatePolicy=policy)


def test_flex_start_needs_a_group_without_repair(gcp: Client) -> None:
    """A queued machine that ends is not replaced."""
    with pytest.raises(grpc.RpcError, match="DO_NOTHING"):
        google.group(gcp, google.template(gcp, scheduling=FLEX), 0)


def test_a_template_in_use_is_not_deleted(gcp: Client) -> None:
    """The group has to stop using it first."""
    first = google.template(gcp)
    made = google.group(gcp, first)
    with pytest.raises(grpc.RpcError, match=r"instance_template resource .* is already being used by"):
        gcp.delete(first)
    gcp.update(made, {"versions": google.versions(google.template(gcp, "gpu-v2"))})
    gcp.delete(first)


def test_a_group_of_an_absent_template_is_rejected(gcp: Client) -> None:
    """The error is Google's 404 with the path."""
    first = google.template(gcp)
    gcp.delete(first)
    with pytest.raises(grpc.RpcError, match=r"Error 404: The resource '.*instanceTemplates/gpu-v1' was not found"):
        google.group(gcp, first)


@pytest.mark.parametrize("surge", [0, 1])
def test_a_new_machine_is_healthy_before_the_next_one_is_replaced(
    gcp: Client, cloud: Cloud, host: Host, surge: int
) -> None:
    """With a health check on the group, one new machine at a time is not yet healthy, and it stays."""
    policy: dict[str, Any] = {
        "type": "PROACTIVE",
        "minimalAction": "REPLACE",
        "maxSurgeFixed": surge,
        "maxUnavailableFixed": 1 - surge,
    }
    if not surge:
        policy["replacementMethod"] = "RECREATE"
    check = gcp.create("gcp:compute/healthCheck:HealthCheck", {"name": "verified", "httpHealthCheck": {"port": 8467}})
    health = {"healthCheck": check.outputs["selfLink"], "initialDelaySec": 3600}
    made = google.group(gcp, google.template(gcp), count=3, updatePolicy=policy, autoHealingPolicies=health)
    settled(cloud, 2)
    gcp.update(made, {"versions": google.versions(google.template(gcp, "gpu-v2"))})
    for number in (4, 5, 6):
        settled(cloud, 6)
        new = [one for one in running(cloud) if one["template_name"] == "gpu-v2"]
        assert [one["name"] for one in new] == [f"gpu-{n}" for n in range(4, number + 1)]
        assert len(running(cloud)) == 3 + surge
        with cloud.store.change():
            cloud.store.put("instance", new[-1]["id"], {**new[-1], "healthy": True})
    settled(cloud, 6)
    assert names(cloud) == ["gpu-4", "gpu-5", "gpu-6"]
