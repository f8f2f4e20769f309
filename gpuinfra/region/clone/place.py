"""Moves the declaration to the cloud, the region and the zones of the clone."""

from __future__ import annotations

from collections.abc import Mapping

from gpuinfra.base.findings import error
from gpuinfra.catalog.records import MachineType
from gpuinfra.plan.machines import machines_of
from gpuinfra.region.clone import machines as find
from gpuinfra.region.clone.draft import Draft
from gpuinfra.region.clone.pair import RegionPair
from gpuinfra.spec.messages import listed
from gpuinfra.spec.storage import Lustre


def set_region(pair: RegionPair, draft: Draft) -> None:
    """Set the cloud and the region."""
    if pair.across:
        draft.set(("where", "cloud"), pair.cloud, f"the second region is on {pair.there.title}")
        if getattr(pair.spec.where, "project", None):
            draft.set(("where", "project"), None, f"{pair.there.title} has no projects")
    if pair.spec.where.offers and pair.target != pair.source:
        draft.set(("where", "offers"), None, f"{pair.source} offers these machine types")
    draft.set(("where", "region"), pair.target, f"second region instead of {pair.source}")


def set_zones(pair: RegionPair, draft: Draft, machines: Mapping[str, MachineType]) -> dict[str, str]:
    """Set the zones. `machines` are the machine types of the pools. Returns zones of the stack -> zones of the clone."""
    spec = pair.spec
    zones = _asked(pair, draft, machines)
    users = _users(pair, draft, machines)
    storage = [entry.zone for entry in spec.storage if isinstance(entry, Lustre) and entry.zone]
    every: list[str] = [*([spec.where.zone] if spec.where.zone else []), *users, *storage]
    for zone in dict.fromkeys(every):
        if zone in zones:
            continue
        zone_there, why = find.zone_for(
            zone, users.get(zone) or list(machines.values()), pair.there, pair.target, zones
        )
        if zone_there is None and not machines and _has_zones(pair):
            zone_there, why = _numbered(pair, zone), f"zone of {pair.target}"
        if zone_there:
            zones[zone] = zone_there
        if zone == spec.where.zone:
            draft.set(("where", "zone"), zone_there, why)
    for index, pool in enumerate(spec.pools):
        if pool.zone:
            draft.set(("pools", index, "zone"), zones.get(pool.zone), f"{pool.zone} is in {pair.source}")
    for index, entry in enumerate(spec.storage):
        if isinstance(entry, Lustre) and entry.zone:
            draft.set(("storage", index, "zone"), zones.get(entry.zone), f"{entry.zone} is in {pair.source}")
    return zones


def _asked(pair: RegionPair, draft: Draft, machines: Mapping[str, MachineType]) -> dict[str, str]:
    """Set the zone of `--zone`, and return it for the zone of the stack."""
    wanted = pair.request.zone
    if not wanted:
        return {}
    offered = find.zones_in(machines.values(), pair.there, pair.target)
    if offered and wanted not in offered:
        what = (
            f"is {wanted}, in which the catalog does not list {listed(sorted({one.name for one in machines.values()}))}"
        )
        draft.findings.append(error("--zone", what, f"listed zones: {listed(offered)}"))
    draft.set(("where", "zone"), wanted, "set with --zone")
    return {pair.spec.where.zone: wanted} if pair.spec.where.zone else {}


def _users(pair: RegionPair, draft: Draft, machines: Mapping[str, MachineType]) -> dict[str, list[MachineType]]:
    """Return the machine types of the clone by zone of the stack."""
    spec, machines_known = pair.spec, machines_of(pair.spec)
    users: dict[str, list[MachineType]] = {}
    for pool in spec.pools:
        zone = pool.zone or spec.where.zone
        if zone:
            users.setdefault(zone, []).append(machines[pool.name])
    for name in spec.network.machines:
        if spec.where.zone and not pair.across:
            new = draft.get(("network", "machines", spec.network.machines.index(name)))
            users.setdefault(spec.where.zone, []).append(machines_known.get(new, machines_known[name]))
    return users


def _has_zones(pair: RegionPair) -> bool:
    return bool(pair.there.region_of_zone(pair.there.first_zone(pair.target), pair.target))


def _numbered(pair: RegionPair, zone: str) -> str:
    """Return the zone with the same number, for a stack without machine types, or the first zone."""
    first = pair.there.first_zone(pair.target)
    same = first[:-1] + zone[-1]
    return same if pair.there.region_of_zone(same, pair.target) == pair.target else first
