"""The machine types available to a declaration: those in the cloud's catalog and those that the declaration defines."""

from __future__ import annotations

from collections.abc import Iterator

from gpuinfra.catalog.records import MachineType
from gpuinfra.clouds import profile_of
from gpuinfra.plan.zones import Zoning, choose
from gpuinfra.spec.capacity import Capacity
from gpuinfra.spec.machines import described
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.pool import Pool


def machines_of(spec: ClusterSpec) -> dict[str, MachineType]:
    """Return the machine types by name. A definition never overrides a catalog record."""
    known = dict(profile_of(spec.cloud).machines)
    for record in spec.machines:
        base = known.get(record.like)
        if base is not None and record.name not in known:
            known[record.name] = described(record, base)
    return known


def pools_of(spec: ClusterSpec) -> Iterator[tuple[str, Pool, MachineType]]:
    """Yield the path, pool, and machine type of each pool. Pools with an unknown machine type are skipped."""
    machines = machines_of(spec)
    for index, pool in enumerate(spec.pools):
        if pool.machine in machines:
            yield f"pools[{index}]", pool, machines[pool.machine]


def zoning_of(spec: ClusterSpec) -> Zoning:
    """Return the zone of each pool: the declared zone, or the zone that the plan chooses."""
    cloud = profile_of(spec.cloud)
    return choose(spec, machines_of(spec), cloud.first_zone(spec.where.region), cloud.opt_in_zones)


def entries_of(spec: ClusterSpec) -> Iterator[tuple[str, Pool, Capacity]]:
    """Yield the path, pool, and capacity of each capacity entry."""
    for i, pool in enumerate(spec.pools):
        for j, entry in enumerate(pool.capacity):
            yield f"pools[{i}].capacity[{j}]", pool, entry


def nearest_value(allowed: tuple[int, ...], value: int) -> int:
    """Return the allowed value closest to `value`, for a hint."""
    return min(allowed, key=lambda one: abs(one - value))
