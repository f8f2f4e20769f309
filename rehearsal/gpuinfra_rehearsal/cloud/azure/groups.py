"""Scale sets for the fleet.

| Azure's term | here |
| --- | --- |
| `sku.capacity` | desired number of machines |
| the model | `model.py`; each machine records the model that was last applied |
| `upgradePolicy.mode` | how machines with an older model are upgraded: `upgrade.py` |
| `singlePlacementGroup` | at most 100 machines, one InfiniBand fabric |

Error codes and texts are from https://learn.microsoft.com/azure/virtual-machines/allocation-failure and user
reports (Azure/karpenter-provider-azure#761 and #892, Azure/AKS#1444, MicrosoftDocs/azure-docs#41402), retrieved 2026-11-21;
they were never observed in a real subscription.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuinfra_rehearsal.cloud.azure import model, upgrade
from gpuinfra_rehearsal.cloud.azure.errors import AzureError
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected
from gpuinfra_rehearsal.cloud.core.groups import new_instance, reservation_room
from gpuinfra_rehearsal.cloud.core.ids import inside, last
from gpuinfra_rehearsal.cloud.core.interfaces import GroupKind, Instance, View

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud
    from gpuinfra_rehearsal.cloud.core.store import Resource, Store

RESERVATION = "azure-native:compute:CapacityReservation"


def problems(cloud: Cloud, group: Resource) -> list[tuple[str, str, float]]:
    """Return (code, message, time) of a scale set's current failures: its latest launch, and a stopped rolling upgrade."""
    problems_of_group = []
    newest = next(iter(cloud.fleet.activities("", group.id)), None)
    if newest and newest["status"] == "Failed":
        problems_of_group.append((newest.get("code") or "AllocationFailed", newest["message"], newest["end"]))
    return problems_of_group + upgrade.problems(cloud.store, group)


class ScaleSetGroups(GroupKind):
    """Azure groups, with the messages of the activity log. Machines are upgraded in place (`upgrade`)."""

    cloud = "azure"
    tokens = (model.GROUP,)
    launched = "Create or Update Virtual Machine Scale Set: machine {index}"
    failed = "Create or Update Virtual Machine Scale Set: {code}"
    ended = "Delete Virtual Machine in a Virtual Machine Scale Set: {id}"
    cause = "the set's capacity is {wanted}"
    lost = "the machine's host failed, and the machine was deleted"
    reclaimed = "the spot machine was evicted, and the machine was deleted"
    notice_s = 30.0

    def view(self, cloud: Cloud, group: Resource, have: Sequence[Instance]) -> View:
        """Return the desired state from the set's inputs. The tags contain the cluster and the pool."""
        inputs = group.plain
        tags = inputs.get("tags") or {}
        return View(
            cluster=str(tags.get("gpuinfra:cluster") or "cluster"),
            pool=str(tags.get("gpuinfra:pool") or last(group.id)),
            kind=model.kind_of(inputs),
            wanted=model.desired(inputs),
        )

    def targets(self, cloud: Cloud, group: Resource) -> tuple[str, ...]:
        inputs, tags = group.plain, group.plain.get("tags") or {}
        pool, own = str(tags.get("gpuinfra:pool", "")), str(tags.get("gpuinfra:group", ""))
        return (pool, own, last(group.id), model.kind_of(inputs), *map(str, inputs.get("zones") or []))

    def shortage(self, cloud: Cloud, group: Resource, have: int, wanted: int) -> ApiRejected | None:
        inputs = group.plain
        kind, machine, target = model.kind_of(inputs), model.machine_of(inputs), self.targets(cloud, group)
        if refused := cloud.faults.refusal(self.cloud, *target):
            return AzureError(*refused, status=409)
        if cloud.faults.without_quota(*target):
            # The text and its source are in clouds/azure/handover/refusals.json.
            text = (
                "Operation could not be completed as it results in exceeding approved Total Regional Cores quota. Additional details - "
                f"Deployment Model: Resource Manager, Location: {inputs.get('location')}, Current Limit: 0, Current Usage: 0."
            )
            return AzureError("OperationNotAllowed", text, status=409)
        if cloud.faults.without_capacity(wanted, *target):
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
        if text := model.above_single_limit(inputs, wanted):
            return AzureError("InvalidParameter", text)
        if reservation := model.reservation_group(inputs):
            room = reservation_room(cloud, reservation, _size(cloud.store, reservation, machine), machine=machine)
            if room and wanted - have > room[1]:
                text = f"The capacity reservation group '{reservation}' has no free capacity for {machine}; it reserves {room[0]}."
                return AzureError("AllocationFailed", text, status=409)
        return None

    def make(self, cloud: Cloud, group: Resource, name: str, have: Sequence[Instance]) -> Instance:
        """Build a machine as Azure reports it. Machine numbers are never reused within a set."""
        inputs = group.plain
        tags = {key: str(value) for key, value in (inputs.get("tags") or {}).items()}
        serial = cloud.store.next("azure-vm")
        index = cloud.store.next(f"azure-vm {group.id}") - 1
        prefix = str((model.profile_of(inputs).get("osProfile") or {}).get("computerNamePrefix") or "vm")
        zones = inputs.get("zones") or [""]
        zone = str(zones[index % len(zones)])
        reservation = model.reservation_group(inputs)
        return new_instance(self.cloud, group, self.view(cloud, group, have), name, serial) | {
            "id": f"00000000-0000-4a00-8000-{serial:012x}",
            "group_name": tags.get("gpuinfra:group", ""),
            "region": str(inputs.get("location") or ""),
            "zone": zone,
            "zone_id": zone,
            "index": index,
            "host_name": f"{prefix}{_base36(index)}",
            "reservations": [reservation] if reservation else [],
            "identities": model.identities(inputs),
            "tags": tags,
            **model.brought_to(inputs),
            **model.provisioned(inputs),
        }

    def tend(self, cloud: Cloud, group: Resource, have: Sequence[Instance]) -> None:
        """Run scripts, read the health and upgrade machines, as Azure does."""
        upgrade.tend(cloud, group, have)

    def first_to_go(self, have: Sequence[Instance]) -> list[Instance]:
        """Order newest first, as the default scale-in policy does within one zone."""
        return sorted(have, key=lambda one: -one["index"])


KIND = ScaleSetGroups()


def _size(store: Store, group: str, machine: str) -> int | None:
    """Return the number of machines of one type in a reservation group, or None if the rehearsal created none of
    the group's reservations."""
    held = [one.plain.get("sku") or {} for one in store.list(RESERVATION) if inside(one.id, group)]
    sizes = [int(sku.get("capacity") or 0) for sku in held if sku.get("name") == machine]
    return sum(sizes) if sizes else None


def _base36(number: int) -> str:
    """Return six base-36 digits, which Azure appends to host names."""
    digits = ""
    for _ in range(6):
        number, rest = divmod(number, 36)
        digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[rest] + digits
    return digits
