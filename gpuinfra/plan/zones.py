"""Chooses the zone of each pool.

A fabric does not span zones, and traffic between zones is billed. All pools therefore share one zone unless the declaration specifies different zones.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuinfra.catalog.records import MachineType
from gpuinfra.spec.model import ClusterSpec


@dataclass(frozen=True, kw_only=True)
class Zoning:
    """The zone of each pool, and the reason for the default zone."""

    default: str
    by_pool: dict[str, str]
    why: str


def offered(machine: MachineType, region: str) -> tuple[str, ...]:
    """Return the zones of a region in which the catalog lists the machine type, or an empty result if there are none."""
    return machine.zones.get(region, ())


def choose(
    spec: ClusterSpec, machines: dict[str, MachineType], fallback: str, opt_in: frozenset[str] = frozenset()
) -> Zoning:
    """Choose a zone for each pool. `fallback` is the first zone of the region, for machine types without zones in the catalog.
    Zones in `opt_in` are used only if the declaration specifies them."""
    declared = {pool.name: pool.zone or spec.where.zone or _reservation_zone(spec, pool.name) for pool in spec.pools}
    if spec.where.zone:
        default, why = spec.where.zone, "set in where.zone"
    else:
        default, why = _common(spec, machines, fallback, opt_in, [zone for zone in declared.values() if zone])
    return Zoning(default=default, by_pool={name: zone or default for name, zone in declared.items()}, why=why)


def _reservation_zone(spec: ClusterSpec, name: str) -> str | None:
    pool = next(pool for pool in spec.pools if pool.name == name)
    zones = [entry.zone for entry in pool.capacity if entry.kind == "reserved" and entry.zone]
    return zones[0] if zones else None


def _common(
    spec: ClusterSpec, machines: dict[str, MachineType], fallback: str, opt_in: frozenset[str], declared: list[str]
) -> tuple[str, str]:
    """Return the zone for the pools that do not declare a zone, and the reason.

    It is the first zone that offers every machine type, preferably one that another pool declares.
    If no zone offers every machine type, it is the first zone that offers the machine type with the most GPUs.
    """
    region = spec.where.region
    free = [pool for pool in spec.pools if not pool.zone and not _reservation_zone(spec, pool.name)]
    if declared and not free:
        return declared[0], "the zone of the first pool"
    pools_placed = [(pool, machines[pool.machine]) for pool in free if pool.machine in machines]
    lists = [
        {zone for zone in zones if zone not in opt_in}
        for _, machine in pools_placed
        if (zones := offered(machine, region))
    ]
    if not lists:
        return (
            fallback,
            "the catalog does not list zones for these machine types, so the first zone of the region is used",
        )
    common = set.intersection(*lists)
    if shared := [zone for zone in declared if zone in common]:
        return shared[0], "the zone of another pool, which offers every machine type"
    if common:
        zone = min(common)
        return zone, f"the first of {len(common)} zones that offer every machine type in the cluster"
    largest = max(pools_placed, key=lambda pair: (pair[1].gpus * sum(e.count for e in pair[0].capacity), pair[0].name))[
        1
    ]
    zones = [zone for zone in offered(largest, region) if zone not in opt_in]
    return (min(zones) if zones else fallback), f"no zone offers every machine type; this zone offers {largest.name}"
