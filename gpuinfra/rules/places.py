"""Rules about places and machines: they exist, and the one is sold in the other."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from gpuinfra.catalog.records import CapacityKind
from gpuinfra.clouds import profile_of
from gpuinfra.clouds.machines import machines_of
from gpuinfra.clouds.profile import Rule
from gpuinfra.findings import Finding, error, warn
from gpuinfra.spec.capacity import Block
from gpuinfra.spec.messages import listed, nearest
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.shown import shown


def region_is_known(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The region exists on this cloud."""
    known = list(profile_of(spec.cloud).regions)
    if spec.where.region not in known:
        near = nearest(spec.where.region, known)
        hint = f"did you mean {near}?" if near else f"regions are {listed(known, 40)}"
        yield error(
            region_is_known,
            "where.region",
            f"is {shown(spec.where.region)}, which is not a region of {profile_of(spec.cloud).title}",
            hint,
        )


def zone_is_in_region(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Every zone belongs to the region."""
    cloud = profile_of(spec.cloud)
    if spec.where.region not in cloud.regions:
        return
    places = [("where.zone", spec.where.zone)]
    places += [(f"pools[{i}].zone", pool.zone) for i, pool in enumerate(spec.pools)]
    places += [(f"storage[{i}].zone", entry.zone) for i, entry in enumerate(spec.storage) if entry.kind == "lustre"]
    for path, zone in places:
        if zone is None:
            continue
        region = cloud.region_of_zone(zone, spec.where.region)
        if region == spec.where.region:
            continue
        known = sorted({z for machine in cloud.machines.values() for z in machine.zones.get(spec.where.region, ())})
        near = nearest(zone, known)
        first = cloud.first_zone(spec.where.region)
        # Where the cloud itself picks when none is named, its zones are numbers.
        like = first if cloud.region_of_zone(first, spec.where.region) else "1, 2 or 3; left out, the cloud picks"
        hint = f"did you mean {near}?" if near else f"zones there are written like {like}"
        # `us-east-1a` is what AWS shows beside the id; the nearest id would be another zone.
        if zone[:-1] == spec.where.region and not first.startswith(spec.where.region):
            hint = f"name it by its id, such as {first}, because letters differ between accounts; `aws ec2 describe-availability-zones` shows yours"
        what = f"is in {region}" if region else f"is no zone of {cloud.title}"
        yield error(zone_is_in_region, path, f"is {shown(zone)}, which {what}; the region is {spec.where.region}", hint)


def machine_is_known(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The machine type is in this cloud's catalogue."""
    machines = machines_of(spec)
    for i, pool in enumerate(spec.pools):
        if pool.machine not in machines:
            near = nearest(pool.machine, list(machines))
            hint = f"did you mean {near}?" if near else f"`gpuinfra catalog --cloud {spec.cloud}` lists them"
            yield error(
                machine_is_known,
                f"pools[{i}].machine",
                f"is {shown(pool.machine)}, which is not in the catalogue of {profile_of(spec.cloud).title}",
                hint,
            )
        for j, candidate in enumerate(pool.fallback):
            if candidate.machine and candidate.machine not in machines:
                near = nearest(candidate.machine, list(machines))
                hint = f"did you mean {near}?" if near else f"`gpuinfra catalog --cloud {spec.cloud}` lists them"
                yield error(
                    machine_is_known,
                    f"pools[{i}].fallback[{j}].machine",
                    f"is {shown(candidate.machine)}, which is not in the catalogue",
                    hint,
                )


def record_resembles_a_machine(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A machine that the declaration describes is new, and resembles one that is known."""
    known = profile_of(spec.cloud).machines
    for i, record in enumerate(spec.machines):
        if record.name in known:
            what = f"is {record.name}, which the catalogue has"
            yield error(record_resembles_a_machine, f"machines[{i}].name", what, "take it out of machines")
        if record.like not in known:
            near = nearest(record.like, list(known))
            hint = f"did you mean {near}?" if near else f"`gpuinfra catalog --cloud {spec.cloud}` lists them"
            yield error(
                record_resembles_a_machine,
                f"machines[{i}].like",
                f"is {shown(record.like)}, which is not in the catalogue",
                hint,
            )


def capacity_kind_exists(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The cloud sells this kind of capacity, and sells it for this machine."""
    machines = machines_of(spec)
    cloud = profile_of(spec.cloud)
    for i, pool in enumerate(spec.pools):
        machine = machines.get(pool.machine)
        for j, entry in enumerate(pool.capacity):
            path = f"pools[{i}].capacity[{j}].kind"
            kind = CapacityKind(entry.kind)
            if kind not in cloud.capacity_kinds:
                allowed = listed(sorted(k.value for k in cloud.capacity_kinds))
                yield error(
                    capacity_kind_exists,
                    path,
                    f"is {kind.value}, which {cloud.title} does not have; allowed are {allowed}",
                    "take one of those",
                )
            elif machine and kind not in machine.capacity:
                allowed = listed(sorted(k.value for k in machine.capacity))
                yield error(
                    capacity_kind_exists,
                    path,
                    f"is {kind.value}, but {machine.name} is not sold so; allowed are {allowed}",
                    "take one of those, or another machine",
                )


def zones_sell_machine(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The machine has been seen in the pool's zone."""
    machines = machines_of(spec)
    cloud = profile_of(spec.cloud)
    region = spec.where.region
    for i, pool in enumerate(spec.pools):
        machine = machines.get(pool.machine)
        if machine is None or not machine.zones or region not in cloud.regions:
            continue
        zones = machine.zones.get(region, ())
        if region not in machine.zones:
            seen = listed(sorted(machine.zones))
            yield warn(
                zones_sell_machine,
                f"pools[{i}].machine",
                f"is {machine.name}, which was not seen in {region} when the catalogue was read; it was in {seen}",
                "check the offering, or move",
            )
            continue
        zone = pool.zone or spec.where.zone
        if zone and zones and zone not in zones:
            yield warn(
                zones_sell_machine,
                f"pools[{i}].machine",
                f"is {machine.name}, which was not seen in {zone} when the catalogue was read; it was in {listed(list(zones))}",
                "check the offering, or move",
            )


def quota_covers_pool(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Nodes times vCPUs are within the quota that a person knows of; blocks do not count."""
    for i, pool in enumerate(spec.pools):
        machine = machines_of(spec).get(pool.machine)
        if machine is None or pool.quota_vcpus is None:
            continue
        counted = [entry for entry in pool.capacity if not isinstance(entry, Block)]
        need = sum(entry.count for entry in counted) * machine.vcpus
        if need > pool.quota_vcpus:
            codes = sorted(
                {machine.quotas[CapacityKind(e.kind)] for e in counted if CapacityKind(e.kind) in machine.quotas}
            )
            hint = f"ask for more ({', '.join(codes)})" if codes else "ask for more"
            yield error(
                quota_covers_pool,
                f"pools[{i}].quota_vcpus",
                f"is {pool.quota_vcpus}, but {need} vCPUs are needed",
                hint,
            )


RULES: tuple[Rule, ...] = (
    region_is_known,
    zone_is_in_region,
    machine_is_known,
    record_resembles_a_machine,
    capacity_kind_exists,
    zones_sell_machine,
    quota_covers_pool,
)
