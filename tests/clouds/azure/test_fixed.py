"""What Azure cannot change is a replacement, and one that would lose data stops."""

from __future__ import annotations

import re
from typing import Any

import pytest
from azure.mgmt.compute import models as compute
from azure.mgmt.storagecache import models as storagecache

from gpuinfra.clouds.azure import fixed
from tests.clouds.azure.variants import variant
from tests.clouds.recorder import Registered
from tests.clouds.stacks import recording_of

SET = "azure-native:compute:VirtualMachineScaleSet"
LUSTRE = "azure-native:storagecache:AmlFilesystem"
PLACE = {"amlFilesystemName", "vmScaleSetName", "resourceGroupName", "location"}
"""Names and places, which the provider itself replaces for."""


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])|(?<=.)([A-Z])(?=[a-z])", r"_\1\2", name).lower()


def _members(model: Any) -> set[str]:
    """Members of a model of Microsoft's, as Python has them."""
    return set(model.__annotations__)


def _one(stack: str, type_: str) -> Registered:
    return recording_of(stack).one(type_)


def test_a_file_system_is_replaced_for_all_that_its_update_model_lacks() -> None:
    """Microsoft's own model of an update names what can be changed; every other input of ours is fixed, and nothing of it is."""
    changeable = _members(storagecache.AmlFilesystemUpdateProperties) | {"tags"}
    assert {"maintenance_window", "encryption_settings", "root_squash_settings"} <= changeable
    given = {name for name in _one("azure-ndv5", LUSTRE).inputs if name not in PLACE}
    assert {_snake(name) for name in given} >= {"sku", "zones", "hsm", "storage_capacity_ti_b", "filesystem_subnet"}
    rest = {name for name in given if _snake(name) not in changeable}
    assert {path.split(".")[0] for path in fixed.FILE_SYSTEM} == rest


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("platformFaultDomainCount", compute.VirtualMachineScaleSetUpdateProperties),
        ("virtualMachineProfile.priority", compute.VirtualMachineScaleSetUpdateVMProfile),
        ("virtualMachineProfile.evictionPolicy", compute.VirtualMachineScaleSetUpdateVMProfile),
    ],
)
def test_an_update_of_a_scale_set_has_no_word_for_what_is_fixed(path: str, model: Any) -> None:
    """Microsoft's model of an update lacks it, and has its neighbours."""
    assert path in fixed.SCALE_SET
    assert _snake(path.rsplit(".", 1)[-1]) not in _members(model)
    assert _members(model) & {"upgrade_policy", "os_profile"}


@pytest.mark.parametrize("stack", ["azure-ndv4", "azure-ndv5", "azure-existing-network"])
def test_the_engine_is_told_what_is_fixed(stack: str) -> None:
    """Every fixed path leads to an input that is there or could be, and a full fabric's set goes before its successor comes."""
    one = _one(stack, SET)
    assert one.fixed == fixed.SCALE_SET
    assert one.old_first is True
    for path in one.fixed:
        parent = one.inputs
        for step in path.split(".")[:-1]:
            parent = parent[step]
        assert path.split(".")[-1] in parent or path.split(".")[-1] in (
            "zones",
            "platformFaultDomainCount",
            "evictionPolicy",
        )


def test_scaling_tags_image_and_software_are_no_replacement() -> None:
    """What a set rolls by itself is not among what replaces it."""
    for path in (
        "sku.capacity", "tags", "virtualMachineProfile.osProfile.customData", "virtualMachineProfile.extensionProfile",
        "virtualMachineProfile.storageProfile.imageReference.version", "virtualMachineProfile.storageProfile.imageReference.sku",
    ):  # fmt: skip
        assert not any(
            path == one or path.startswith(f"{one}.") or one.startswith(f"{path}.") for one in fixed.SCALE_SET
        )


def test_sets_that_may_stand_side_by_side_are_replaced_without_a_gap() -> None:
    """Spot and on-demand nodes without a fabric: the provider decides, and a set of Pulumi's own name comes before its predecessor goes."""
    held, spot = recording_of_sets()
    assert held.old_first is True
    assert spot.old_first is None
    assert "vmScaleSetName" not in spot.inputs


def recording_of_sets() -> tuple[Registered, Registered]:
    """A reserved and a spot set of one pool."""
    recording = variant("reserved and spot without a fabric")
    return recording.one(SET, "train-gpu-reserved-0"), recording.one(SET, "train-gpu-spot-0")


@pytest.mark.parametrize("stack", ["azure-ndv4", "azure-ndv5"])
def test_what_holds_data_never_ends_for_its_successor(stack: str) -> None:
    """File systems and all that is kept: the new one comes first, finds the name taken, and nothing was lost."""
    recording = recording_of(stack)
    holding = [one for one in recording.custom if one.retained or one.type == LUSTRE]
    assert len(holding) > 25
    assert [one.name for one in holding if one.old_first is not False] == []


def test_an_address_of_another_zone_stands_beside_the_old_one() -> None:
    """Gateway and address carry their zone in the name, so that subnets move from one to the other."""
    for type_, field, name in (
        ("NatGateway", "natGatewayName", "nat-gateway-3"),
        ("PublicIPAddress", "publicIpAddressName", "nat-address-3"),
    ):
        zonal, regional = (_one(stack, f"azure-native:network:{type_}") for stack in ("azure-ndv5", "azure-ndv4"))
        assert name in zonal.inputs[field]
        assert name not in regional.inputs[field]
        assert (zonal.fixed, zonal.old_first) == (fixed.ZONAL, False)
