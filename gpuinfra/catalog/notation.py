"""Short notations for the tables of machine types."""

from __future__ import annotations

from gpuinfra.catalog.records import NumaNode


def zones_by_region(text: str, name: str = "{zone}") -> dict[str, tuple[str, ...]]:
    """Parse `us-central1:a,b eastus2` into region -> zones. A region without a list has no zones. `name` is the pattern of a zone's name."""
    zones_of_region: dict[str, tuple[str, ...]] = {}
    for part in text.split():
        region, _, zones = part.partition(":")
        zones_of_region[region] = tuple(name.format(region=region, zone=zone) for zone in zones.split(",") if zone)
    return zones_of_region


def numa_halves(gpus: int, fabric: int) -> tuple[NumaNode, NumaNode]:
    """Return two NUMA nodes, each with half of the GPUs and half of the fabric devices, in order."""
    first = NumaNode(gpus=(*range(gpus // 2),), fabric=(*range(fabric // 2),))
    return first, NumaNode(gpus=(*range(gpus // 2, gpus),), fabric=(*range(fabric // 2, fabric),))
