"""AWS: what can be bought, for how long, and together with what."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta

from gpuinfra.catalog.records import CapacityKind
from gpuinfra.clouds.aws import regions
from gpuinfra.clouds.machines import machines_of
from gpuinfra.findings import Finding, error, info, warn
from gpuinfra.spec.capacity import Block, Reserved, Spot
from gpuinfra.spec.messages import listed
from gpuinfra.spec.model import ClusterSpec

BLOCK_MOST_NODES = 64
BLOCK_MOST_DAYS = 182
BLOCK_AHEAD_DAYS = 56
RESERVATION_MOST_NODES = 1000
SPOT_LEAST_USD = 0.001


def block_is_sold(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A Capacity Block exists for this machine, in this region."""
    machines = machines_of(spec)
    if spec.where.region not in regions.PREFIXES:
        return
    for i, pool in enumerate(spec.pools):
        machine = machines.get(pool.machine)
        for j, entry in enumerate(pool.capacity):
            if not isinstance(entry, Block) or machine is None or CapacityKind.BLOCK not in machine.capacity:
                continue
            if machine.block_regions and spec.where.region not in machine.block_regions:
                what = f"is a Capacity Block of {machine.name}, which was not sold in {spec.where.region}"
                hint = f"it was sold in {listed(list(machine.block_regions), 20)}"
                yield warn(block_is_sold, f"pools[{i}].capacity[{j}]", what, hint)


def block_has_a_sold_length(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A Capacity Block is 1 to 14 days or whole weeks up to 26, of at most 64 nodes, starting within 8 weeks."""
    for i, pool in enumerate(spec.pools):
        for j, entry in enumerate(pool.capacity):
            if not isinstance(entry, Block):
                continue
            path = f"pools[{i}].capacity[{j}]"
            if entry.count > BLOCK_MOST_NODES:
                what = f"is {entry.count}; one Capacity Block has at most {BLOCK_MOST_NODES} nodes"
                yield error(
                    block_has_a_sold_length, f"{path}.count", what, "split it over several blocks, one entry each"
                )
            length = _length(entry)
            if length is None:
                continue
            starts, days = length
            if days > BLOCK_MOST_DAYS or (days > 14 and days % 7):
                what = f"is {days} days after the start; blocks are 1 to 14 days, or whole weeks up to {BLOCK_MOST_DAYS} days"
                yield error(
                    block_has_a_sold_length, f"{path}.ends_at", what, "copy start and end from the block itself"
                )
            if (starts.date() - today).days > BLOCK_AHEAD_DAYS:
                what = f"is {entry.starts_at}, more than {BLOCK_AHEAD_DAYS} days ahead; no block starts so late"
                yield error(
                    block_has_a_sold_length, f"{path}.starts_at", what, "copy start and end from the block itself"
                )


def _length(entry: Block) -> tuple[datetime, int] | None:
    """Start, and length in days: a block ends at a fixed hour, so its last day may be a short one."""
    try:
        starts, ends = datetime.fromisoformat(entry.starts_at), datetime.fromisoformat(entry.ends_at)
    except ValueError:
        return None
    if ends <= starts:
        return None
    return starts, max(1, round((ends - starts) / timedelta(days=1)))


def reservation_is_in_zone(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Nodes are in the zone of their reservation."""
    for i, pool in enumerate(spec.pools):
        zone = pool.zone or spec.where.zone
        zones: dict[str, int] = {}
        for j, entry in enumerate(pool.capacity):
            if not isinstance(entry, Reserved) or entry.zone is None:
                continue
            zones.setdefault(entry.zone, j)
            if zone and entry.zone != zone:
                what = f"is {entry.zone}, but the pool is in {zone}, and a reservation does not cross zones"
                yield error(
                    reservation_is_in_zone, f"pools[{i}].capacity[{j}].zone", what, f"let the pool be in {entry.zone}"
                )
        if len(zones) > 1:
            what = f"has reservations in {listed(sorted(zones))}; a pool is in one zone"
            yield error(reservation_is_in_zone, f"pools[{i}].capacity", what, "make one pool for each zone")


def reservation_has_a_size(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """One capacity reservation holds at most 1000 instances."""
    for i, pool in enumerate(spec.pools):
        for j, entry in enumerate(pool.capacity):
            if isinstance(entry, Reserved) and entry.id and entry.count > RESERVATION_MOST_NODES:
                what = f"is {entry.count}; one reservation holds at most {RESERVATION_MOST_NODES}"
                yield error(
                    reservation_has_a_size,
                    f"pools[{i}].capacity[{j}].count",
                    what,
                    "name a group of reservations by group_arn",
                )


def reservation_id_has_its_form(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Ids of reservations and blocks are `cr-` and 17 hexadecimal digits; a group is an ARN."""
    for i, pool in enumerate(spec.pools):
        for j, entry in enumerate(pool.capacity):
            path = f"pools[{i}].capacity[{j}]"
            if isinstance(entry, (Reserved, Block)) and entry.id and not _is_reservation(entry.id):
                what = "is no id of a capacity reservation; they are written cr-0123456789abcdef0"
                yield error(reservation_id_has_its_form, f"{path}.id", what, "copy it from the console")
            if isinstance(entry, Reserved) and entry.group_arn and ":resource-groups:" not in entry.group_arn:
                what = "is no ARN of a resource group; they are written arn:aws:resource-groups:us-east-1:123456789012:group/name"
                yield error(reservation_id_has_its_form, f"{path}.group_arn", what, "copy it from the console")


def _is_reservation(text: str) -> bool:
    return text.startswith("cr-") and len(text) == 20 and all(ch in "0123456789abcdef" for ch in text[3:])


def racks_are_whole(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A machine that is sold by the rack is bought in whole ones."""
    machines = machines_of(spec)
    for i, pool in enumerate(spec.pools):
        machine = machines.get(pool.machine)
        for j, entry in enumerate(pool.capacity):
            if machine and machine.unit_nodes and entry.count not in machine.unit_nodes:
                allowed = " or ".join(map(str, machine.unit_nodes))
                what = f"is {entry.count}; {machine.name} is sold inside a rack of {allowed} nodes"
                yield error(
                    racks_are_whole, f"pools[{i}].capacity[{j}].count", what, f"take {allowed}, one entry for each rack"
                )


def on_demand_is_sold(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A machine without an on-demand price in the region cannot be started on demand there."""
    machines = machines_of(spec)
    for i, pool in enumerate(spec.pools):
        machine = machines.get(pool.machine)
        if machine is None or machine.name != "p5e.48xlarge":
            continue
        for j, entry in enumerate(pool.capacity):
            if entry.kind == "on_demand":
                path = f"pools[{i}].capacity[{j}].kind"
                what = f"is on_demand, but {machine.name} has no on-demand price in us-east-1"
                hint = "take a Capacity Block, a reservation or spot"
                say = error if spec.where.region == "us-east-1" else warn
                yield say(on_demand_is_sold, path, what, hint)


def spot_price_is_possible(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A limit on the spot price is at least what AWS accepts."""
    for i, pool in enumerate(spec.pools):
        for j, entry in enumerate(pool.capacity):
            if isinstance(entry, Spot) and entry.max_price_usd is not None and entry.max_price_usd < SPOT_LEAST_USD:
                what = f"is {entry.max_price_usd}; AWS accepts {SPOT_LEAST_USD} and more"
                yield error(spot_price_is_possible, f"pools[{i}].capacity[{j}].max_price_usd", what, "leave it out")


def reserved_p_needs_account_team(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Reservations of P machines are made with the account team, not in the console."""
    machines = machines_of(spec)
    for i, pool in enumerate(spec.pools):
        machine = machines.get(pool.machine)
        for j, entry in enumerate(pool.capacity):
            if isinstance(entry, Reserved) and entry.overflow and machine and machine.family.startswith("p"):
                what = "is true: nodes beyond the reservation are started on demand, which P machines seldom are"
                yield info(reserved_p_needs_account_team, f"pools[{i}].capacity[{j}].overflow", what)


RULES = (
    block_is_sold,
    block_has_a_sold_length,
    reservation_is_in_zone,
    reservation_has_a_size,
    reservation_id_has_its_form,
    racks_are_whole,
    on_demand_is_sold,
    spot_price_is_possible,
    reserved_p_needs_account_team,
)
