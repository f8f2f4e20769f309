"""What the settings of a scale set amount to, and what its machines are made of.

| Azure's word | here |
| --- | --- |
| `sku.capacity` | how many machines there should be |
| the model | `virtualMachineProfile` and size; a machine remembers which one it was brought to |
| `upgradePolicy.mode` | what happens to machines of an older model: `upgrade` |
| `singlePlacementGroup` | at most 100 machines, one InfiniBand fabric |

Codes and texts of errors from https://learn.microsoft.com/azure/virtual-machines/allocation-failure and from what people
report (sheet of Azure facts, section 11); read 2026-11-21, never seen from a real subscription.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpuinfra.rehearsal.cloud.azure import upgrade
from gpuinfra.rehearsal.cloud.core import wire
from gpuinfra.rehearsal.cloud.core.errors import AzureError, CloudError
from gpuinfra.rehearsal.cloud.core.groups import Made, View

if TYPE_CHECKING:
    from gpuinfra.rehearsal.cloud.core.cloud import Cloud
    from gpuinfra.rehearsal.cloud.core.store import Resource

GROUP = "azure-native:compute:VirtualMachineScaleSet"
RESERVATION = "azure-native:compute:CapacityReservation"
SINGLE_LIMIT = 100
"""Machines of one placement group. https://learn.microsoft.com/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-placement-groups, read 2026-11-21."""


def profile_of(inputs: dict[str, Any]) -> dict[str, Any]:
    """The model of a scale set's machines."""
    return inputs.get("virtualMachineProfile") or {}


def machine_of(inputs: dict[str, Any]) -> str:
    """The machine type."""
    return str((inputs.get("sku") or {}).get("name") or "")


def desired(inputs: dict[str, Any]) -> int:
    """How many machines a scale set wants."""
    return int((inputs.get("sku") or {}).get("capacity") or 0)


def model_hash(inputs: dict[str, Any]) -> str:
    """What tells one model from another: everything that a machine is made from."""
    text = json.dumps([profile_of(inputs), machine_of(inputs)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def kind_of(inputs: dict[str, Any]) -> str:
    """reserved, on_demand or spot: what the model's settings amount to."""
    profile = profile_of(inputs)
    if profile.get("priority") in ("Spot", "Low"):
        return "spot"
    return "reserved" if reservation_group(inputs) else "on_demand"


def reservation_group(inputs: dict[str, Any]) -> str:
    """The id of the capacity reservation group that the model names; empty where it names none."""
    named = (profile_of(inputs).get("capacityReservation") or {}).get("capacityReservationGroup") or {}
    return str(named.get("id") or "")


def extension(profile: dict[str, Any], kind: str) -> dict[str, Any] | None:
    """The extension of that type, where the model has one."""
    every = (profile.get("extensionProfile") or {}).get("extensions") or []
    return next((one for one in every if one.get("type") == kind), None)


def image_of(cloud: Cloud, profile: dict[str, Any]) -> tuple[str, str, bool]:
    """(name, system, whether it brings driver and fabric) of the model's image.

    Marketplace images say it in their names: `microsoft-dsvm:ubuntu-hpc:2204:...` brings the drivers, Canonical's do not. An image of
    somebody's own is taken for a plain one, unless its name says `hpc`.
    """
    reference = (profile.get("storageProfile") or {}).get("imageReference") or {}
    parts = [str(reference.get(key) or "") for key in ("publisher", "offer", "sku", "version")]
    name = str(reference.get("id") or reference.get("communityGalleryImageId") or ":".join(parts))
    version = re.search(r"(2[024])[._-]?(04)", name)
    return name, f"ubuntu-{version[1]}.{version[2]}" if version else "ubuntu-22.04", "hpc" in name.lower()


def problems(cloud: Cloud, group: Resource) -> list[tuple[str, str, float]]:
    """(code, text, when) of what a scale set shows as failed now: its newest launch, and a rolling upgrade that stopped."""
    found = []
    newest = next(iter(cloud.fleet.activities("", group.id)), None)
    if newest and newest["status"] == "Failed":
        found.append((newest.get("code") or "AllocationFailed", newest["message"], newest["end"]))
    return found + upgrade.problems(cloud, group)


class ScaleSets:
    """Azure's groups (`GroupKind`)."""

    cloud = "azure"
    tokens = (GROUP,)

    def view(self, cloud: Cloud, group: Resource, have: Sequence[Made]) -> View:
        """What the set's inputs say."""
        inputs = wire.plain(group.inputs)
        tags = inputs.get("tags") or {}
        return View(
            cluster=str(tags.get("gpuinfra:cluster") or "cluster"),
            pool=str(tags.get("gpuinfra:pool") or group.id.rsplit("/", 1)[-1]),
            kind=kind_of(inputs),
            wanted=desired(inputs),
        )

    def shortage(self, cloud: Cloud, group: Resource, have: int, wanted: int) -> CloudError | None:
        """Why the next machine cannot be had, in Azure's words."""
        inputs = wire.plain(group.inputs)
        tags, kind, machine = inputs.get("tags") or {}, kind_of(inputs), machine_of(inputs)
        name = group.id.rsplit("/", 1)[-1]
        if cloud.faults.without_capacity(
            str(tags.get("gpuinfra:pool", "")), str(tags.get("gpuinfra:group", "")), name, kind
        ):
            if kind == "spot":
                text = (
                    f"The requested size for resource '{group.id}' is currently not available in location '{inputs.get('location')}' "
                    f"zones '{','.join(inputs.get('zones') or [])}' for subscription. Please try another size or deploy to a different location or zones."
                )
                return AzureError("SkuNotAvailable", text, status=409)
            zonal = bool(inputs.get("zones"))
            text = (
                f"Allocation failed. We do not have sufficient capacity for the requested VM size in this {'zone' if zonal else 'region'}. "
                f"({machine}) Read more about improving likelihood of allocation success at https://aka.ms/allocation-guidance"
            )
            return AzureError("ZonalAllocationFailed" if zonal else "AllocationFailed", text, status=409)
        if inputs.get("singlePlacementGroup") is not False and wanted > SINGLE_LIMIT:
            return AzureError(
                "InvalidParameter",
                f"The capacity {wanted} of a scale set with a single placement group is above {SINGLE_LIMIT}.",
            )
        held = _reserved(cloud, reservation_group(inputs), machine)
        if held is not None and wanted - have > held - _used(cloud, reservation_group(inputs), machine):
            text = f"The capacity reservation group '{reservation_group(inputs)}' has no free capacity for {machine}; it reserves {held}."
            return AzureError("AllocationFailed", text, status=409)
        return None

    def make(self, cloud: Cloud, group: Resource, name: str, have: Sequence[Made]) -> Made:
        """A machine as Azure knows it. Numbers of a set are never used twice."""
        inputs = wire.plain(group.inputs)
        tags = {key: str(value) for key, value in (inputs.get("tags") or {}).items()}
        serial = cloud.store.next("azure-vm")
        index = cloud.store.next(f"azure-vm {group.id}") - 1
        prefix = str((profile_of(inputs).get("osProfile") or {}).get("computerNamePrefix") or "vm")
        view = self.view(cloud, group, have)
        zones = inputs.get("zones") or []
        made: Made = {
            "id": f"00000000-0000-4a00-8000-{serial:012x}",
            "cloud": self.cloud,
            "name": name,
            "cluster": view.cluster,
            "pool": view.pool,
            "group": group.id,
            "group_name": tags.get("gpuinfra:group", ""),
            "region": str(inputs.get("location") or ""),
            "zone": str(zones[index % len(zones)]) if zones else "",
            "zone_id": str(zones[index % len(zones)]) if zones else "",
            "index": index,
            "host_name": f"{prefix}{_base36(index)}",
            "address": f"10.{128 + serial // 65536}.{serial // 256 % 256}.{serial % 256}",
            "kind": view.kind,
            "reservations": [reservation_group(inputs)] if reservation_group(inputs) else [],
            "identities": _identities(inputs),
            "tags": tags,
            "template": group.id,
            "template_name": group.id.rsplit("/", 1)[-1],
            "template_version": tags.get("gpuinfra:template", ""),
            "launched": time.time(),
            "state": "running",
        }
        return made | brought_to(cloud, inputs) | provisioned(cloud, inputs)

    def outdated(self, cloud: Cloud, group: Resource, have: Sequence[Made]) -> list[Made]:
        """Nobody: machines of a scale set are brought to another model where they are."""
        return []

    def tend(self, cloud: Cloud, group: Resource, have: Sequence[Made]) -> None:
        """Bring machines to the wanted model, run what extensions want, and ask how they are."""
        upgrade.tend(cloud, group, have)

    def first_to_go(self, have: Sequence[Made]) -> list[Made]:
        """The newest first, as the default scale-in policy within one zone."""
        return sorted(have, key=lambda one: -one["index"])

    def launched(self, instance: Made) -> str:
        """The activity log's name of the operation."""
        return f"Create or Update Virtual Machine Scale Set: machine {instance['index']}"

    def failed(self, shortage: CloudError) -> str:
        """The activity log's name of the operation."""
        return f"Create or Update Virtual Machine Scale Set: {shortage.code}"

    def ended(self, instance_id: str) -> str:
        """The activity log's name of the operation."""
        return f"Delete Virtual Machine in a Virtual Machine Scale Set: {instance_id}"

    def cause(self, wanted: int) -> str:
        """Why the set acts."""
        return f"the set's capacity is {wanted}"

    def lost(self) -> str:
        """What is said of a machine that went away by itself."""
        return "the machine's host failed, and the machine was deleted"


KIND = ScaleSets()


def brought_to(cloud: Cloud, inputs: dict[str, Any]) -> Made:
    """What a machine has of a model as soon as it is brought to it, without a new disk."""
    profile = profile_of(inputs)
    script = (extension(profile, "CustomScript") or {}).get("settings") or {}
    diagnostics = (profile.get("diagnosticsProfile") or {}).get("bootDiagnostics") or {}
    return {
        "model": model_hash(inputs),
        "script": str(script.get("script") or ""),
        "asked_for_health": extension(profile, "ApplicationHealthLinux") is not None,
        "console": bool(diagnostics.get("enabled")),
        "user_data": str(profile.get("userData") or ""),
    }


def provisioned(cloud: Cloud, inputs: dict[str, Any]) -> Made:
    """What a machine has of a model from the day that its disk was made: custom data is read once."""
    profile = profile_of(inputs)
    name, system, prebuilt = image_of(cloud, profile)
    return {
        "machine": machine_of(inputs),
        "image_id": name,
        "os": system,
        "prebuilt": prebuilt,
        "custom_data": str((profile.get("osProfile") or {}).get("customData") or ""),
        "disk": disk_of(inputs),
    }


def disk_of(inputs: dict[str, Any]) -> str:
    """What a machine's disk is made from: with another one it is reimaged."""
    storage = profile_of(inputs).get("storageProfile") or {}
    text = json.dumps([storage.get("imageReference"), storage.get("osDisk"), machine_of(inputs)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _identities(inputs: dict[str, Any]) -> list[str]:
    given = (inputs.get("identity") or {}).get("userAssignedIdentities") or []
    return [str(one) for one in given]


def _reserved(cloud: Cloud, group: str, machine: str) -> int | None:
    """Machines that a reservation group reserves; None where there is none, or nobody knows its size."""
    if not group:
        return None
    told = cloud.external(group) or {}
    if told.get("count") is not None:
        return int(told["count"])
    sizes = [
        int((inputs.get("sku") or {}).get("capacity") or 0)
        for one in cloud.store.list(RESERVATION)
        if one.id.lower().startswith(group.lower() + "/")
        and ((inputs := wire.plain(one.inputs)).get("sku") or {}).get("name") == machine
    ]
    return sum(sizes) if sizes else None


def _used(cloud: Cloud, group: str, machine: str) -> int:
    every = cloud.fleet.instances().values()
    return sum(
        1
        for one in every
        if one["state"] != "terminated" and group in one["reservations"] and one["machine"] == machine
    )


def _base36(number: int) -> str:
    """Azure ends host names with six digits of base 36."""
    digits = ""
    for _ in range(6):
        number, rest = divmod(number, 36)
        digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[rest] + digits
    return digits
