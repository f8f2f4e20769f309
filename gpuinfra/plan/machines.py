"""The machine types available to a declaration: those in the cloud's catalog and those that the declaration defines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gpuinfra.catalog.records import MachineType
from gpuinfra.plan.profile import profile_of
from gpuinfra.plan.zones import Zoning, choose
from gpuinfra.spec.capacity import Capacity
from gpuinfra.spec.machines import described
from gpuinfra.spec.messages import listed, nearest
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.pool import Pool


def machines_of(spec: ClusterSpec) -> dict[str, MachineType]:
    """Return the machine types by name. A definition never overrides a catalog record."""
    machines = dict(profile_of(spec.cloud).machines)
    for record in spec.machines:
        base = machines.get(record.like)
        if base is not None and record.name not in machines:
            machines[record.name] = described(record, base)
    return machines


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


def similar(name: str, machines: Mapping[str, MachineType]) -> str | None:
    """Return the machine types that a wrong name probably means, as text, or None.

    They are those that contain the name, or the nearest one of the same kind: with or without GPUs. A family of GPU machines is
    recognized by the first letter of its name, such as `p` and `g` on AWS, which belongs to no family without GPUs.
    """
    word = name.lower()
    family = _family(word)
    # One or two letters are part of too many names, but `a3` and `p5` are families.
    if (family or len(word) > 2) and (holding := [one for one in machines if word in one.lower()]):
        return listed(holding, 6)
    if family is None:
        return nearest(name, list(machines))
    with_gpus = {_family(one.lower()) for one, machine in machines.items() if machine.gpu}
    same = {one: machine for one, machine in machines.items() if bool(machine.gpu) == (family in with_gpus)}
    longest = max((_shared(word, one) for one in same), default=0)
    relatives = [one for one in same if _shared(word, one) == longest]
    if near := nearest(name, relatives) or nearest(name, list(same)):
        return near
    separators = [mark for mark in "._-" if all(mark in one for one in machines)]
    if family in with_gpus or not separators or not all(mark in word for mark in separators):
        return None
    return min(same, key=lambda one: (same[one].vcpus, one), default=None)


def _family(name: str) -> str | None:
    """Return the first letter of the family in a name such as `p5.48xlarge`, `standard_nd96asr_v4` or `a3-highgpu-8g`, or None."""
    match = re.search(r"(?:^|_)([a-z])[a-z]*\d", name)
    return match[1] if match else None


def _shared(word: str, name: str) -> int:
    """Return the number of characters with which two names begin."""
    pairs = zip(word, name.lower(), strict=False)
    return next((i for i, (one, other) in enumerate(pairs) if one != other), min(len(word), len(name)))


def nearest_value(allowed: tuple[int, ...], value: int) -> int:
    """Return the allowed value closest to `value`, for a hint."""
    return min(allowed, key=lambda one: abs(one - value))
