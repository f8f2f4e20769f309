"""AWS rules for capacity."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta

from gpuinfra.base.findings import Finding, error, info, warn
from gpuinfra.catalog.records import CapacityKind
from gpuinfra.clouds.aws import regions
from gpuinfra.plan.machines import pools_of
from gpuinfra.spec.capacity import Block, Reserved, Spot
from gpuinfra.spec.messages import listed
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.rule import rules_in

BLOCK_MOST_NODES = 64
BLOCK_MOST_DAYS = 182
BLOCK_AHEAD_DAYS = 56
RESERVATION_MOST_NODES = 1000
SPOT_LEAST_USD = 0.001


def block_is_offered_in_region(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Capacity Blocks for the machine type are available in the Region."""
    if spec.where.region not in regions.PREFIXES:
        return
    for path, pool, machine in pools_of(spec):
        for j, entry in enumerate(pool.capacity):
            if not isinstance(entry, Block) or CapacityKind.BLOCK not in machine.capacity:
                continue
            if machine.block_regions and spec.where.region not in machine.block_regions:
                what = f"is a Capacity Block of {machine.name}, which AWS does not list in {spec.where.region}"
                hint = f"use {listed(list(machine.block_regions), 20)}"
                yield warn(f"{path}.capacity[{j}]", what, hint)


def block_is_purchasable(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A Capacity Block has at most 64 nodes, lasts 1 to 14 days or up to 26 whole weeks, and starts within 8 weeks."""
    for i, pool in enumerate(spec.pools):
        for j, entry in enumerate(pool.capacity):
            if not isinstance(entry, Block):
                continue
            path = f"pools[{i}].capacity[{j}]"
            if entry.count > BLOCK_MOST_NODES:
                what = f"is {entry.count}; allowed: up to {BLOCK_MOST_NODES} nodes in one Capacity Block"
                yield error(f"{path}.count", what, "use several blocks, with one entry for each block")
            length = _length(entry)
            if length is None:
                continue
            starts, days = length
            if days > BLOCK_MOST_DAYS or (days > 14 and days % 7):
                what = f"is {days} days after the start; allowed: 1 to 14 days, or whole weeks up to {BLOCK_MOST_DAYS} days"
                yield error(f"{path}.ends_at", what, "copy the start and the end from the Capacity Block")
            if (starts.date() - today).days > BLOCK_AHEAD_DAYS:
                what = f"is {entry.starts_at}; allowed: up to {BLOCK_AHEAD_DAYS} days ahead"
                yield error(f"{path}.starts_at", what, "copy the start and the end from the Capacity Block")


def _length(entry: Block) -> tuple[datetime, int] | None:
    """Return the start and the length in days. A block ends at a fixed hour, so its last day can be shorter."""
    try:
        starts, ends = datetime.fromisoformat(entry.starts_at), datetime.fromisoformat(entry.ends_at)
    except ValueError:
        return None
    if ends <= starts:
        return None
    return starts, max(1, round((ends - starts) / timedelta(days=1)))


def reservation_is_in_zone(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The pool is in the same zone as its reservation."""
    for i, pool in enumerate(spec.pools):
        zone = pool.zone or spec.where.zone
        zones: dict[str, int] = {}
        for j, entry in enumerate(pool.capacity):
            if not isinstance(entry, Reserved) or entry.zone is None:
                continue
            zones.setdefault(entry.zone, j)
            if zone and entry.zone != zone:
                what = f"is {entry.zone}, but the pool is in {zone}"
                yield error(f"pools[{i}].capacity[{j}].zone", what, f"move the pool to {entry.zone}")
        if len(zones) > 1:
            what = f"has reservations in {listed(sorted(zones))}; allowed: one zone"
            yield error(f"pools[{i}].capacity", what, "use one pool for each zone")


def reservation_size_is_allowed(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A capacity reservation has at most 1000 instances."""
    for i, pool in enumerate(spec.pools):
        for j, entry in enumerate(pool.capacity):
            if isinstance(entry, Reserved) and entry.id and entry.count > RESERVATION_MOST_NODES:
                what = f"is {entry.count}; allowed: up to {RESERVATION_MOST_NODES} in one reservation"
                yield error(f"pools[{i}].capacity[{j}].count", what, "specify a reservation group in group_arn")


def reservation_id_is_valid(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The ID of a reservation or block is `cr-` followed by 17 hexadecimal digits. A reservation group is identified by a resource group ARN."""
    for i, pool in enumerate(spec.pools):
        for j, entry in enumerate(pool.capacity):
            path = f"pools[{i}].capacity[{j}]"
            if isinstance(entry, (Reserved, Block)) and entry.id and not _is_reservation(entry.id):
                what = "is not a reservation ID; allowed: an ID such as cr-0123456789abcdef0"
                yield error(f"{path}.id", what, "copy it from the console")
            if isinstance(entry, Reserved) and entry.group_arn and ":resource-groups:" not in entry.group_arn:
                what = "is not the ARN of a resource group; allowed: an ARN such as arn:aws:resource-groups:us-east-1:123456789012:group/name"
                yield error(f"{path}.group_arn", what, "copy it from the console")


def _is_reservation(text: str) -> bool:
    return text.startswith("cr-") and len(text) == 20 and all(ch in "0123456789abcdef" for ch in text[3:])


def pool_fills_racks(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Machine types that are sold by the rack are purchased in whole racks."""
    for path, pool, machine in pools_of(spec):
        for j, entry in enumerate(pool.capacity):
            if machine.unit_nodes and entry.count not in machine.unit_nodes:
                allowed = " or ".join(map(str, machine.unit_nodes))
                what = f"is {entry.count}; {machine.name} is offered in racks of {allowed} nodes"
                yield error(f"{path}.capacity[{j}].count", what, f"use {allowed}, with one entry for each rack")


def on_demand_is_offered(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """On-demand capacity is used only in Regions where the machine type has an on-demand price."""
    for path, pool, machine in pools_of(spec):
        if machine.name != "p5e.48xlarge":
            continue
        for j, entry in enumerate(pool.capacity):
            if entry.kind == "on_demand":
                entry_path = f"{path}.capacity[{j}].kind"
                what = f"is on_demand, but {machine.name} has no on-demand price in us-east-1"
                hint = "use a Capacity Block, a reservation or spot"
                level = error if spec.where.region == "us-east-1" else warn
                yield level(entry_path, what, hint)


def spot_price_limit_is_allowed(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The spot price limit is at least the minimum that AWS accepts."""
    for i, pool in enumerate(spec.pools):
        for j, entry in enumerate(pool.capacity):
            if isinstance(entry, Spot) and entry.max_price_usd is not None and entry.max_price_usd < SPOT_LEAST_USD:
                what = f"is {entry.max_price_usd}; allowed: {SPOT_LEAST_USD} or more"
                yield error(f"pools[{i}].capacity[{j}].max_price_usd", what, "remove it")


def overflow_depends_on_on_demand(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Overflow from a reservation requires on-demand capacity, which is rarely available for P machine types."""
    for path, pool, machine in pools_of(spec):
        for j, entry in enumerate(pool.capacity):
            if isinstance(entry, Reserved) and entry.overflow and machine.family.startswith("p"):
                what = "is true, so nodes beyond the reservation start on demand; on-demand capacity for P machine types is rarely available"
                yield info(f"{path}.capacity[{j}].overflow", what)


RULES = rules_in(vars())
