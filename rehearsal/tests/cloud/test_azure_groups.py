"""Scale sets launch machines, upgrade them in place, and report errors in Azure's words."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from gpuinfra.clouds.azure.handover.ports import REFUSALS, ScaleSets
from gpuinfra_rehearsal.cloud.azure import groups as azure_groups
from gpuinfra_rehearsal.cloud.azure import model
from gpuinfra_rehearsal.cloud.azure import upgrade as azure_upgrade
from gpuinfra_rehearsal.cloud.core import fleet as fleet_module
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.faults import Faults
from gpuinfra_rehearsal.nodes.node import NotRunning
from rehearsal.tests.cloud import microsoft
from rehearsal.tests.cloud.conftest import Client, Made

SCRIPT = "#!/bin/bash\necho renew\n"


class Host:
    """A node host that remembers, and runs scripts as told."""

    def __init__(self) -> None:
        self.launched: list[str] = []
        self.terminated: list[str] = []
        self.ran: list[tuple[str, str]] = []
        self.down: set[str] = set()

    def launch(self, instance: Any) -> None:
        self.launched.append(instance.id)

    def terminate(self, id: str) -> None:
        self.terminated.append(id)

    def run(self, id: str, argv: list[str], limit: float) -> tuple[int, str]:
        if id in self.down:
            raise NotRunning(id)
        self.ran.append((id, argv[2]))
        return 0, "done"


@pytest.fixture(autouse=True)
def health(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What machines answer: Healthy, unless a test says otherwise. Nothing waits."""
    said: dict[str, str] = {}
    monkeypatch.setattr(fleet_module, "_SETTLE_S", 0)
    monkeypatch.setattr(fleet_module, "_RETRY_S", 0)
    monkeypatch.setattr(azure_upgrade, "_ASK_S", 0)
    monkeypatch.setattr(azure_upgrade, "_answer", lambda cloud, id: said.get(id, "Healthy"))
    return said


@pytest.fixture
def host(cloud: Cloud) -> Host:
    """A node host that remembers, in the cloud's fleet."""
    cloud.fleet.host = Host()
    return cloud.fleet.host


@pytest.fixture
def subnet(azure: Client) -> Made:
    """A subnet for machines."""
    return microsoft.subnet(azure)


def running(cloud: Cloud) -> dict[str, dict[str, Any]]:
    """Machines by name."""
    return {one["name"]: one for one in cloud.fleet.instances().values() if one["state"] == "running"}


def settle(cloud: Cloud, rounds: int = 3) -> None:
    """Some rounds of the fleet, and the agents' threads."""
    for _ in range(rounds):
        cloud.fleet.reconcile()
        limit = time.monotonic() + 300
        while azure_upgrade._running and time.monotonic() < limit:
            time.sleep(0.01)


def wanted(cloud: Cloud) -> dict[str, bool]:
    """Machine -> whether it has the wanted model."""
    group = cloud.store.list(model.GROUP)[0]
    wanted_model = model.model_hash(group.inputs)
    return {name: one["model"] == wanted_model for name, one in running(cloud).items()}


def test_a_scale_set_launches_machines_of_its_model(azure: Client, cloud: Cloud, host: Host, subnet: Made) -> None:
    """Machine type, image and tags come from the model; a second round launches none."""
    microsoft.scale_set(azure, microsoft.profile(subnet), zones=["3"])
    settle(cloud)
    assert list(running(cloud)) == ["gpu-1", "gpu-2"]
    first = running(cloud)["gpu-1"]
    assert (first["machine"], first["os"], first["prebuilt"], first["zone"]) == (
        microsoft.MACHINE,
        "ubuntu-22.04",
        True,
        "3",
    )
    assert (first["cluster"], first["pool"], first["kind"], first["host_name"]) == (
        "train",
        "gpu",
        "on_demand",
        "train000000",
    )
    assert host.launched == [first["id"], running(cloud)["gpu-2"]["id"]]


def test_a_set_grows_shrinks_and_replaces_lost_machines(azure: Client, cloud: Cloud, host: Host, subnet: Made) -> None:
    """The newest machine leaves first. Numbers of machines are never used twice."""
    made = microsoft.scale_set(azure, microsoft.profile(subnet))
    settle(cloud)
    made = azure.update(made, {"sku": {"name": microsoft.MACHINE, "tier": "Standard", "capacity": 3}})
    settle(cloud)
    assert list(running(cloud)) == ["gpu-1", "gpu-2", "gpu-3"]
    assert cloud.fleet.lose(running(cloud)["gpu-1"]["id"])
    settle(cloud)
    assert {name: one["index"] for name, one in running(cloud).items()} == {"gpu-2": 1, "gpu-3": 2, "gpu-4": 3}
    azure.update(made, {"sku": {"name": microsoft.MACHINE, "tier": "Standard", "capacity": 2}})
    settle(cloud)
    assert sorted(running(cloud)) == ["gpu-2", "gpu-3"]


def test_the_agent_runs_each_script_once_on_each_machine(azure: Client, cloud: Cloud, host: Host, subnet: Made) -> None:
    """Including the first one; a machine that is not up yet runs it later."""
    host.down = {"00000000-0000-4a00-8000-000000000002"}
    microsoft.scale_set(azure, microsoft.profile(subnet, script=SCRIPT))
    settle(cloud)
    assert host.ran == [("00000000-0000-4a00-8000-000000000001", SCRIPT)]
    host.down = set()
    settle(cloud)
    assert sorted(host.ran) == [(f"00000000-0000-4a00-8000-00000000000{n}", SCRIPT) for n in (1, 2)]


def test_a_new_script_rolls_in_batches_in_place(azure: Client, cloud: Cloud, host: Host, health: dict[str, str], subnet: Made) -> None:  # fmt: skip
    """A batch waits until the machines of the batch before it are healthy; no machine gets a new disk or new custom data."""
    made = microsoft.scale_set(azure, microsoft.profile(subnet, script=SCRIPT), 4)
    settle(cloud)
    ids = [one["id"] for one in running(cloud).values()]
    health.update(dict.fromkeys(ids, "Unknown"))
    azure.update(made, {"virtualMachineProfile": microsoft.profile(subnet, custom_data="new", script=SCRIPT + "# 2")})
    settle(cloud, 5)
    assert list(wanted(cloud).values()) == [True, True, False, False]
    assert [id for id, script in host.ran if script.endswith("# 2")] == ids[:2] or sorted(
        id for id, script in host.ran if script.endswith("# 2")
    ) == ids[:2]
    health[ids[0]] = "Healthy"
    settle(cloud, 3)
    assert list(wanted(cloud).values()) == [True, True, False, False]
    health[ids[1]] = "Healthy"
    settle(cloud, 3)
    assert list(wanted(cloud).values()) == [True] * 4
    assert host.terminated == []
    assert {one["custom_data"] for one in running(cloud).values()} == {microsoft.encoded(microsoft.CUSTOM_DATA)}


def test_a_roll_ignores_health_of_the_old_model(
    azure: Client, cloud: Cloud, host: Host, health: dict[str, str], subnet: Made
) -> None:
    """A machine reports healthy until its new script runs; the next batch waits for the end of the script."""
    policy = {"mode": "Rolling", "rollingUpgradePolicy": {"maxBatchInstancePercent": 25}}
    made = microsoft.scale_set(azure, microsoft.profile(subnet, script=SCRIPT), 4, upgradePolicy=policy)
    settle(cloud)
    ids = [one["id"] for one in running(cloud).values()]
    health.update(dict.fromkeys(ids, "Healthy"))
    host.down = {ids[0]}
    azure.update(made, {"virtualMachineProfile": microsoft.profile(subnet, script=SCRIPT + "# 2")})
    settle(cloud, 6)
    assert list(wanted(cloud).values()) == [True, False, False, False]
    host.down = set()
    settle(cloud, 12)
    assert list(wanted(cloud).values()) == [True] * 4


def test_an_unhealthy_canary_stops_the_upgrade(
    azure: Client, cloud: Cloud, host: Host, health: dict[str, str], subnet: Made
) -> None:
    """The other machines keep their model, and the set shows the reason in Azure's words until it gets another model."""
    policy = {
        "mode": "Rolling",
        "rollingUpgradePolicy": {"maxBatchInstancePercent": 25, "maxUnhealthyUpgradedInstancePercent": 20},
    }
    made = microsoft.scale_set(azure, microsoft.profile(subnet, script=SCRIPT), 4, upgradePolicy=policy)
    settle(cloud)
    first = running(cloud)["gpu-1"]["id"]
    health[first] = "Unhealthy"
    made = azure.update(made, {"virtualMachineProfile": microsoft.profile(subnet, script=SCRIPT + "# bad")})
    settle(cloud, 6)
    assert list(wanted(cloud).values()) == [True, False, False, False]
    ((code, text, _),) = azure_groups.problems(cloud, cloud.store.list(model.GROUP)[0])
    assert code == "MaxUnhealthyUpgradedInstancePercentExceededInRollingUpgrade"
    assert "1 of 1 upgraded instances are unhealthy" in text
    health[first] = "Healthy"
    azure.update(made, {"virtualMachineProfile": microsoft.profile(subnet, script=SCRIPT + "# mended")})
    settle(cloud, 12)
    assert list(wanted(cloud).values()) == [True] * 4
    assert azure_groups.problems(cloud, cloud.store.list(model.GROUP)[0]) == []


def test_another_image_gives_machines_a_new_disk(azure: Client, cloud: Cloud, host: Host, subnet: Made) -> None:
    """They keep their ids and boot for the first time with the current custom data."""
    made = microsoft.scale_set(azure, microsoft.profile(subnet))
    settle(cloud)
    model = microsoft.profile(subnet, custom_data="new")
    model["storageProfile"]["imageReference"]["version"] = "22.04.2026020200"
    azure.update(made, {"virtualMachineProfile": model})
    settle(cloud, 6)
    ids = [one["id"] for one in running(cloud).values()]
    assert (host.terminated, host.launched) == (ids, ids + ids)
    assert {one["custom_data"] for one in running(cloud).values()} == {microsoft.encoded("new")}


def test_a_new_disk_survives_a_kill(
    azure: Client, cloud: Cloud, host: Host, subnet: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine whose new disk was recorded and not made gets it in the next rehearsal, once."""
    made = microsoft.scale_set(azure, microsoft.profile(subnet))
    settle(cloud)
    monkeypatch.setattr(cloud.fleet, "reimage", lambda id: None)
    model = microsoft.profile(subnet)
    model["storageProfile"]["imageReference"]["version"] = "22.04.2026020200"
    azure.update(made, {"virtualMachineProfile": model})
    settle(cloud)
    waiting = [id for id, one in cloud.fleet.instances().items() if one.get("new_disk")]
    assert waiting != []
    for ended in (waiting, []):
        again = fleet_module.Fleet(cloud, host)
        monkeypatch.setattr(again, "_run", lambda: None)
        monkeypatch.setattr(host, "ssh_ports", SimpleNamespace(), raising=False)
        host.terminated.clear()
        again.start()
        assert host.terminated == ended
        assert set(host.launched) >= set(ended)


@pytest.mark.parametrize(("mode", "count"), [("Manual", 0), ("Automatic", 3)])
def test_manual_and_automatic_modes_change_none_or_all(
    azure: Client, cloud: Cloud, host: Host, subnet: Made, mode: str, count: int
) -> None:
    """As Azure documents them."""
    made = microsoft.scale_set(azure, microsoft.profile(subnet), 3, upgradePolicy={"mode": mode})
    settle(cloud)
    azure.update(made, {"virtualMachineProfile": microsoft.profile(subnet, userData="YQ==")})
    settle(cloud, 1)
    assert sum(wanted(cloud).values()) == count


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({}, "AllocationFailed"),
        ({"zones": ["3"]}, "ZonalAllocationFailed"),
    ],
)
def test_a_creation_without_capacity_fails_and_keeps_the_set(azure: Client, cloud: Cloud, subnet: Made, more: dict[str, Any], code: str) -> None:  # fmt: skip
    """The error has Azure's words, which the handover classifies as missing capacity."""
    cloud.faults = Faults(["cloud:no-capacity:gpu"], cloud.store)
    with pytest.raises(grpc.RpcError) as caught:
        microsoft.scale_set(azure, microsoft.profile(subnet), **more)
    assert f'Code="{code}"' in str(caught.value)
    assert REFUSALS.of(str(caught.value)).cause == "stock-out"
    assert len(cloud.store.list(model.GROUP)) == 1


def test_an_evicted_spot_machine_is_gone(azure: Client, cloud: Cloud, host: Host, subnet: Made) -> None:
    """Without capacity the set reports it, and the handover classifies it as missing capacity."""
    made = microsoft.scale_set(azure, microsoft.profile(subnet, priority="Spot", evictionPolicy="Delete"))
    settle(cloud)
    assert {one["kind"] for one in running(cloud).values()} == {"spot"}
    cloud.faults = Faults(["cloud:no-capacity:spot"], cloud.store)
    assert cloud.fleet.terminate(running(cloud)["gpu-1"]["id"], "the Spot machine was evicted")
    settle(cloud)
    assert list(running(cloud)) == ["gpu-2"]
    ((code, text, _),) = azure_groups.problems(cloud, cloud.store.list(model.GROUP)[0])
    assert code == "SkuNotAvailable"
    assert made.id in text
    assert REFUSALS.of(f"{code}: {text}").cause == "stock-out"


def test_a_reservation_group_holds_no_more_than_its_size(azure: Client, cloud: Cloud, host: Host, subnet: Made) -> None:
    """The third machine in a group of two is rejected; a group of unknown size is large enough."""
    group = "/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/corp/providers/Microsoft.Compute/capacityReservationGroups/a"
    named = {"capacityReservation": {"capacityReservationGroup": {"id": group}}}
    made = microsoft.scale_set(azure, microsoft.profile(subnet, **named), singlePlacementGroup=False)
    settle(cloud)
    assert {one["kind"] for one in running(cloud).values()} == {"reserved"}
    cloud.store.put("external", group, {"count": 2})
    with pytest.raises(grpc.RpcError, match="it reserves 2"):
        azure.update(made, {"sku": {"name": microsoft.MACHINE, "tier": "Standard", "capacity": 3}})
    settle(cloud)
    assert len(running(cloud)) == 2


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"sku": {"name": microsoft.MACHINE, "capacity": 101}}, "with a single placement group is above 100"),
        ({"orchestrationMode": "Flexible"}, "cannot be true with Flexible"),
        ({"virtualMachineProfile": {}}, "a health probe or health extension was not provided"),
    ],
)
def test_invalid_scale_sets_are_rejected(
    azure: Client, cloud: Cloud, subnet: Made, more: dict[str, Any], words: str
) -> None:
    """Before a machine is launched."""
    with pytest.raises(grpc.RpcError, match=words):
        microsoft.scale_set(azure, microsoft.profile(subnet), **more)
    assert cloud.store.list(model.GROUP) == []


def test_referenced_resources_have_to_exist(azure: Client, subnet: Made) -> None:
    """A subnet and an identity that do not exist are not found; those of other subscriptions are believed."""
    gone = Made(subnet.token, "", subnet.id + "x", {}, {})
    with pytest.raises(grpc.RpcError, match="private-0x' was not found"):
        microsoft.scale_set(azure, microsoft.profile(gone))
    nobody = Made(
        "",
        "",
        subnet.id.replace(
            "Microsoft.Network/virtualNetworks/net/subnets", "Microsoft.ManagedIdentity/userAssignedIdentities"
        ),
        {},
        {},
    )
    with pytest.raises(
        grpc.RpcError, match=r"Microsoft.ManagedIdentity/userAssignedIdentities/private-0' was not found"
    ):
        microsoft.scale_set(azure, microsoft.profile(subnet), identity=nobody)
    theirs = Made(
        "",
        "",
        subnet.id.replace("00000000-0000-0000-0000-000000000000", "00000000-0000-4000-8000-000000000001"),
        {},
        {},
    )
    microsoft.scale_set(azure, microsoft.profile(theirs))


def test_custom_data_and_scripts_are_validated(azure: Client, subnet: Made) -> None:
    """Custom data above 65,535 bytes and a script that is not base64 are rejected before the creation."""
    inputs = {
        **microsoft.WHERE,
        "vmScaleSetName": "gpu",
        "virtualMachineProfile": microsoft.profile(subnet, custom_data="x" * 65536),
    }
    assert "customData is limited to 65535 bytes before it is encoded" in azure.failures(microsoft.SET, inputs)[0]
    model = microsoft.profile(subnet, script="x")
    model["extensionProfile"]["extensions"][1]["settings"]["script"] = "not base64"
    assert (
        "script must be encoded in base64"
        in azure.failures(microsoft.SET, {**inputs, "virtualMachineProfile": model})[0]
    )


def test_deleting_a_resource_group_deletes_its_content(azure: Client, cloud: Cloud, host: Host, subnet: Made) -> None:
    """Azure also deletes the machines of scale sets in the group."""
    group = microsoft.group(azure)
    microsoft.scale_set(azure, microsoft.profile(subnet))
    settle(cloud)
    azure.delete(group)
    assert running(cloud) == {}
    assert cloud.store.list() == []
    assert len(host.terminated) == 2


def test_groups_of_another_kind_are_refused_by_the_handover(cloud: Cloud) -> None:
    """A group that is not a scale set is rejected before a request is made."""
    from gpuinfra.clouds.azure.rest import Rest
    from gpuinfra.handover.ports import GroupExpected, PortUnavailable

    with pytest.raises(PortUnavailable, match="'asg-1' is not the ID of a scale set"):
        ScaleSets(Rest()).members([GroupExpected(name="g", group="asg-1", count=1)])


def test_a_taken_name_is_reported_first(azure: Client, cloud: Cloud, subnet: Made) -> None:
    """Azure's provider looks up the id before it sends a creation."""
    inputs = {
        "amlFilesystemName": "scratch", "resourceGroupName": "rg", "location": "southcentralus", "filesystemSubnet": subnet.id,
        "sku": {"name": "AMLFS-Durable-Premium-250"}, "storageCapacityTiB": 8, "zones": ["1"],
        "maintenanceWindow": {"dayOfWeek": "Sunday", "timeOfDayUTC": "03:00"},
    }  # fmt: skip
    azure.create("azure-native:storagecache:AmlFilesystem", inputs, "scratch")
    with pytest.raises(grpc.RpcError, match="cannot create already existing resource '/subscriptions/"):
        azure.create("azure-native:storagecache:AmlFilesystem", inputs, "scratch")
    with pytest.raises(grpc.RpcError, match="is used by the file system scratch"):
        azure.create("azure-native:storagecache:AmlFilesystem", {**inputs, "amlFilesystemName": "other"}, "other")
