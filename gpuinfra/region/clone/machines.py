"""Finds the machine type and the zone in the second region."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuinfra.catalog.records import CapacityKind, MachineType
from gpuinfra.cost.price import node_price
from gpuinfra.plan.profile import CloudProfile

REPLACEMENTS = (CapacityKind.ON_DEMAND, CapacityKind.SPOT, CapacityKind.FLEX)
"""Kinds of capacity that do not use a reservation, in the order in which they replace one."""

SAME_MEMORY = 0.98
"""Minimum ratio at which two memory sizes count as equal: an H100 with 80 GB reports 81559 MiB, and an A100 with 80 GB 81920 MiB."""


def is_listed(machine: MachineType, region: str) -> bool:
    """Whether the catalog lists the machine type in the region, or lists no regions for it."""
    return not machine.zones or region in machine.zones


def free_kinds(machine: MachineType, cloud: CloudProfile) -> list[CapacityKind]:
    """Return the kinds of capacity that a pool can use without a reservation, in order of preference."""
    return [kind for kind in REPLACEMENTS if kind in machine.capacity and kind in cloud.capacity_kinds]


def hourly(machine: MachineType, cloud: CloudProfile, region: str, kind: CapacityKind) -> float | None:
    """Return the price of a node per hour, or None if it is unknown."""
    price, _ = node_price(machine, kind, region)
    return price.usd_per_hour if price else None


def cheapest(machine: MachineType, cloud: CloudProfile, region: str) -> tuple[float, CapacityKind] | None:
    """Return the price of a node per hour and its kind of capacity: the first kind of `free_kinds` that has its own price."""
    for kind in free_kinds(machine, cloud):
        if price := machine.price(kind, region):
            return price.usd_per_hour, kind
    return None


def equals(
    machine: MachineType, nodes: int, cloud: CloudProfile, region: str, *, fabric: bool, listed_only: bool = True
) -> list[MachineType]:
    """Return the machine types of a cloud that can replace `machine` in a region, nearest first.

    A replacement has the same architecture, at least the memory per GPU, and a number of GPUs that divides the GPUs of the pool.
    Nodes that share a fabric are replaced only by nodes with a fabric.
    """
    same = []
    total = nodes * machine.gpus
    for other in cloud.machines.values():
        if other.name == machine.name or other.arch != machine.arch or not free_kinds(other, cloud):
            continue
        if listed_only and other.gpu is not None and region not in other.zones:
            continue
        if machine.gpu is None:
            if other.gpu is None and other.vcpus >= machine.vcpus and other.memory_gib >= machine.memory_gib:
                same.append(other)
            continue
        if other.gpu is None or other.gpu.needs_imex or other.gpu.memory_mib < SAME_MEMORY * machine.gpu.memory_mib:
            continue
        if total % other.gpus or (fabric and other.fabric is None):
            continue
        same.append(other)
    return sorted(same, key=lambda other: _distance(machine, other, cloud, region))


def _distance(machine: MachineType, other: MachineType, cloud: CloudProfile, region: str) -> tuple[object, ...]:
    cheapest_price = cheapest(other, cloud, region)
    price = cheapest_price[0] if cheapest_price else None
    if machine.gpu is None or other.gpu is None:
        return (other.vcpus, other.memory_gib, price is None, price or 0, other.name)
    return (
        other.gpu.key != machine.gpu.key,
        other.gpu.arch != machine.gpu.arch,
        other.gpus != machine.gpus,
        other.gpu.memory_mib,
        price is None,
        price or 0,
        other.name,
    )


def same_gpu(machine: MachineType, other: MachineType) -> bool:
    """Whether both machine types have the same GPU."""
    return machine.gpu is not None and other.gpu is not None and machine.gpu.key == other.gpu.key


def zones_in(machines: Iterable[MachineType], cloud: CloudProfile, region: str) -> list[str]:
    """Return the zones that offer every machine type, without zones that an account must enable. Empty if the catalog lists none."""
    lists = [set(zones) - cloud.opt_in_zones for machine in machines if (zones := machine.zones.get(region))]
    return sorted(set.intersection(*lists), key=cloud.zone_number) if lists else []


def zone_for(
    old: str, machines: Iterable[MachineType], cloud: CloudProfile, region: str, taken: Mapping[str, str]
) -> tuple[str | None, str]:
    """Return the zone that replaces a zone, and the reason. None if the catalog lists no zone.

    The zone with the same number is preferred, so that a clone in the first region gets the original zone.
    """
    zones = zones_in(machines, cloud, region)
    if not zones:
        return (
            None,
            f"the catalog does not list zones in {region} for these machine types, so the plan chooses the zone",
        )
    free = [zone for zone in zones if zone not in taken.values()] or zones
    same = [zone for zone in free if cloud.zone_number(zone) == cloud.zone_number(old)]
    chosen = (same or free)[0]
    return chosen, f"zone of {region} that offers every machine type"
