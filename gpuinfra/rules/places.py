"""Rules about regions, zones, and machine types: they exist, and the zone offers the machine type."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date

from gpuinfra.base.findings import Finding, error, warn
from gpuinfra.catalog.gpus import GPUS
from gpuinfra.catalog.records import CapacityKind, MachineType
from gpuinfra.plan.machines import entries_of, machines_of, pools_of, similar, zoning_of
from gpuinfra.plan.profile import profile_of
from gpuinfra.spec.capacity import Block
from gpuinfra.spec.kinds import capacity_not_offered
from gpuinfra.spec.machines import described
from gpuinfra.spec.messages import listed, nearest
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.rule import rules_in
from gpuinfra.spec.shown import shown


def region_is_known(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The region exists in the cloud. If the catalog does not contain it, its zones, prices, machine types and images are unknown."""
    yield from profile_of(spec.cloud).region_findings("where.region", spec.where.region)


def zone_is_in_region(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Each zone is in the declared region."""
    cloud = profile_of(spec.cloud)
    if not cloud.is_region(spec.where.region):
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
        zones = sorted({z for machine in cloud.machines.values() for z in machine.zones.get(spec.where.region, ())})
        near = nearest(zone, zones)
        first = cloud.first_zone(spec.where.region)
        # Zones are numbers on clouds that can choose the zone.
        like = (
            first if cloud.region_of_zone(first, spec.where.region) else "1, 2 or 3; remove it to let the cloud choose"
        )
        hint = f"did you mean {near}?" if near else f"use a zone such as {like}"
        # The AWS console shows the zone name `us-east-1a` next to the ID. The nearest ID belongs to a different zone.
        if zone[:-1] == spec.where.region and not first.startswith(spec.where.region):
            hint = f"use a zone ID such as {first}, because zone letters differ between accounts; `aws ec2 describe-availability-zones` lists the IDs"
        what = f"is in {region}" if region else f"is not a valid {cloud.title} zone"
        yield error(path, f"is {shown(zone)}, which {what}; the region is {spec.where.region}", hint)


def declared_zone_is_used(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A pool or a file system is in the zone that `where.zone` declares.
    On AWS, the network has subnets and a NAT gateway in this zone, also if nothing uses them."""
    zone = spec.where.zone
    if zone is None or not spec.pools or any(entry.kind == "home" for entry in spec.storage):
        return
    used = {*zoning_of(spec).by_pool.values(), *(one.zone or zone for one in spec.storage if one.kind == "lustre")}
    if zone not in used:
        what = f"is {zone}, but no pool and no file system is in this zone"
        yield warn("where.zone", what, f"remove it, or set it to {listed(sorted(used))}")


def machine_is_known(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The machine type is in the catalog of the cloud."""
    machines = machines_of(spec)
    for i, pool in enumerate(spec.pools):
        if pool.machine not in machines:
            what = f"is {shown(pool.machine)}, which is not in the {profile_of(spec.cloud).title} catalog"
            yield error(f"pools[{i}].machine", what, _other_machine(spec, pool.machine, machines))
        for j, candidate in enumerate(pool.fallback):
            if candidate.machine and candidate.machine not in machines:
                what = f"is {shown(candidate.machine)}, which is not in the catalog"
                hint = _other_machine(spec, candidate.machine, machines)
                yield error(f"pools[{i}].fallback[{j}].machine", what, hint)


def _other_machine(spec: ClusterSpec, name: str, machines: Mapping[str, MachineType]) -> str:
    near = similar(name, machines)
    return f"did you mean {near}?" if near else f"`gpuinfra catalog --cloud {spec.cloud}` lists the machine types"


def machine_record_is_valid(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A declared machine type has a name that is not in the catalog and is based on a machine type in the catalog.
    Its GPU is in the catalog, and its architecture fits its name."""
    machines = profile_of(spec.cloud).machines
    for i, record in enumerate(spec.machines):
        if record.name in machines:
            what = f"is {record.name}, which is already in the catalog"
            yield error(f"machines[{i}].name", what, "remove it from machines")
        if record.like not in machines:
            what = f"is {shown(record.like)}, which is not in the catalog"
            yield error(f"machines[{i}].like", what, _other_machine(spec, record.like, machines))
            continue
        made = described(record, machines[record.like])
        if record.gpu and record.gpu not in GPUS:
            near = nearest(record.gpu, list(GPUS))
            hint = f"did you mean {near}?" if near else "use one of these GPUs, or remove it"
            yield error(f"machines[{i}].gpu", f"is {shown(record.gpu)}; allowed: {listed(list(GPUS), 20)}", hint)
        elif record.gpu and not made.gpus:
            yield error(
                f"machines[{i}].gpu", f"is {record.gpu}, but {record.name} has no GPUs", "set gpus, or remove it"
            )
        elif made.gpus and made.gpu is None:
            what = f"is {made.gpus}, but {record.like} has no GPUs"
            yield error(f"machines[{i}].gpus", what, "set gpu to the GPU model, or remove it")
        if record.gpu is None and made.gpus and _series(record.name) != _series(record.like):
            what = f"is {record.like}, a machine type of another series, so the plan expects {made.gpus} x {made.gpu.name if made.gpu else 'GPU'}"
            yield warn(
                f"machines[{i}].like",
                what,
                f"set gpu and gpus to those of {record.name}, or choose a machine type of its series",
            )
        if made.arch == "x86_64" and re.match(profile_of(spec.cloud).arm64_names, record.name):
            what = f"is x86_64 like that of {record.like}, but the name {record.name} is that of a machine type with ARM CPUs"
            yield error(f"machines[{i}].arch", what, "set it to arm64")


def _series(name: str) -> str:
    """Return the part of a name that machine types with the same GPU share: `g5` of `g5.xlarge`, `a3-highgpu` of `a3-highgpu-8g`, and
    `Standard_NCas_T4_v3` of `Standard_NC4as_T4_v3`."""
    return re.sub(r"^(Standard_[A-Z]+)\d+|[.].*$|-\d+g?$", r"\1", name)


def capacity_kind_is_offered(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The cloud offers this kind of capacity for the machine type."""
    machines = machines_of(spec)
    cloud = profile_of(spec.cloud)
    for path, pool, entry in entries_of(spec):
        machine, kind = machines.get(pool.machine), CapacityKind(entry.kind)
        if kind not in cloud.capacity_kinds:
            offered = (k.value for k in cloud.capacity_kinds)
            yield error(f"{path}.kind", *capacity_not_offered(kind.value, cloud.title, offered))
        elif machine and kind not in machine.capacity:
            allowed = listed(sorted(k.value for k in machine.capacity))
            what = f"is {kind.value}, which {machine.name} does not offer; allowed: {allowed}"
            yield error(f"{path}.kind", what, "use one of these kinds, or a different machine type")


def zone_offers_machine(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The catalog lists the machine type in the pool's zone, or `where.offers` contains it. In a region that is not in the catalog, machine
    types are unknown."""
    region = spec.where.region
    for path, pool, machine in pools_of(spec):
        if not machine.zones or region not in profile_of(spec.cloud).regions or machine.name in spec.where.offers:
            continue
        zones = machine.zones.get(region, ())
        zone = pool.zone or spec.where.zone
        if region not in machine.zones:
            what, other = f"in {region}; listed regions: {listed(sorted(machine.zones))}", "region"
        elif zone and zones and zone not in zones:
            what, other = f"in {zone}; listed zones: {listed(list(zones))}", "zone"
        else:
            continue
        hint = f"use a different {other}; or, if `gpuinfra plan STACK --live` finds it there, set where.offers to [{machine.name}]"
        yield error(f"{path}.machine", f"is {machine.name}, which the catalog does not list {what}", hint)


def offers_are_used(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Each machine type in `where.offers` is one of the stack, and the catalog does not list it in the zone of its pools."""
    machines, region = machines_of(spec), spec.where.region
    used = {pool.machine for pool in spec.pools} | {one.machine for pool in spec.pools for one in pool.fallback}
    zones = {spec.where.zone, *(pool.zone for pool in spec.pools)} - {None}
    if any(pool.machine not in machines for pool in spec.pools):
        return  # The machine type has its own finding.
    for i, name in enumerate(spec.where.offers):
        record = machines.get(name)
        if name not in used:
            yield error(f"where.offers[{i}]", f"is {shown(name)}, which no pool uses", "remove it")
        elif record and region in record.zones and zones <= set(record.zones[region]):
            yield warn(f"where.offers[{i}]", f"is {name}, which the catalog lists in {region}", "remove it")


def quota_covers_pool(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The pool's vCPUs do not exceed `quota_vcpus`. Nodes in blocks do not count."""
    for path, pool, machine in pools_of(spec):
        if pool.quota_vcpus is None:
            continue
        counted = [entry for entry in pool.capacity if not isinstance(entry, Block)]
        need = sum(entry.count for entry in counted) * machine.vcpus
        if need > pool.quota_vcpus:
            codes = sorted(
                {machine.quotas[CapacityKind(e.kind)] for e in counted if CapacityKind(e.kind) in machine.quotas}
            )
            hint = f"request a higher quota ({', '.join(codes)})" if codes else "request a higher quota"
            yield error(f"{path}.quota_vcpus", f"is {pool.quota_vcpus}, but the pool needs {need} vCPUs", hint)


RULES = rules_in(vars())
