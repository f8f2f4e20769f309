"""Suggests other second regions if a clone is not possible."""

from __future__ import annotations

from gpuinfra.base.registry import CLOUDS
from gpuinfra.base.words import counted
from gpuinfra.catalog.records import MachineType
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.plan.profile import CloudProfile, profile_of
from gpuinfra.region.clone.machines import cheapest, equals
from gpuinfra.region.clone.model import Alternative

MOST = 3


def alternatives(
    machine: MachineType, nodes: int, cloud: str, source: str, wanted_cloud: str, wanted: str, *, fabric: bool
) -> tuple[Alternative, ...]:
    """Return the three best alternatives: another machine type in the region, the same machine type in other regions, and other clouds.

    Regions are sorted by price. Regions with an unknown price come last.
    """
    choices = [
        *_machines(machine, nodes, wanted_cloud, wanted, fabric=fabric)[:1],
        *_regions(machine, nodes, cloud, source, wanted),
        *_clouds(machine, nodes, cloud, fabric=fabric),
    ]
    return tuple(choices[:MOST])


def _machines(machine: MachineType, nodes: int, cloud: str, region: str, *, fabric: bool) -> list[Alternative]:
    profile = profile_of(cloud)
    if region not in profile.regions:
        return []
    alternatives_of_machines = []
    for other in equals(machine, nodes, profile, region, fabric=fabric):
        count = nodes * machine.gpus // (other.gpus or 1)
        reason = f"{other.name} is listed in {region}; the same number of GPUs with {counted(count, 'node')}"
        alternatives_of_machines.append(
            _made(profile, region, other, count, reason, f"--region {region} --machine {other.name}")
        )
    return alternatives_of_machines


def _regions(machine: MachineType, nodes: int, cloud: str, source: str, wanted: str) -> list[Alternative]:
    profile, facts = profile_of(cloud), cloud_of(cloud).second_region
    assert facts is not None
    here = facts.partition(source) if source else ""
    regions = [
        region
        for region in machine.zones
        if region not in (source, wanted) and region in profile.regions and facts.partition(region) == here
    ]
    near = source.split("-")[0]

    def rank(region: str) -> tuple[object, ...]:
        price = cheapest(machine, profile, region)
        return (price is None, price[0] if price else 0, region.split("-")[0] != near, region)

    return [
        _made(
            profile,
            region,
            machine,
            nodes,
            f"{region} lists {machine.name}",
            f"--region {region}",
        )
        for region in sorted(regions, key=rank)
    ]


def _clouds(machine: MachineType, nodes: int, cloud: str, *, fabric: bool) -> list[Alternative]:
    choices = []
    for name in CLOUDS:
        if name == cloud or cloud_of(name).second_region is None:
            continue
        profile = profile_of(name)
        for region in sorted(profile.regions):
            for other in equals(machine, nodes, profile, region, fabric=fabric)[:1]:
                count = nodes * machine.gpus // (other.gpus or 1)
                reason = f"{other.name} on {profile.title} is the nearest machine type"
                options = f"--cloud {name} --region {region}"
                choices.append(_made(profile, region, other, count, reason, options))
    return sorted(choices, key=lambda one: (one.usd_per_hour is None, one.usd_per_hour or 0, one.region))


def _made(
    profile: CloudProfile, region: str, machine: MachineType, nodes: int, reason: str, options: str
) -> Alternative:
    price = cheapest(machine, profile, region)
    if price:
        reason = f"{reason}; {price[1].value.replace('_', '-')} price"
    total = round(price[0] * nodes, 2) if price else None
    return Alternative(region=region, machine=machine.name, usd_per_hour=total, reason=reason, options=options)
