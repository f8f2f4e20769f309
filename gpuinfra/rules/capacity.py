"""Rules about capacity on all clouds: reservations, block windows, fallback candidates, and spot."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from datetime import date, datetime, timedelta

from gpuinfra.base.findings import Finding, error, info, warn
from gpuinfra.plan.machines import entries_of, pools_of
from gpuinfra.plan.profile import profile_of
from gpuinfra.plan.window import declared, is_over, moment
from gpuinfra.spec.capacity import Block, Reserved
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.rule import rules_in
from gpuinfra.spec.shown import shown

EXAMPLE_ID = "cr-0123456789abcdef0"
_DOCUMENTATION = tuple(map(ipaddress.IPv4Network, ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")))


def block_window_is_open(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The end of a block is after its start and has not passed."""
    for path, _, entry in entries_of(spec):
        if not isinstance(entry, Block):
            continue
        try:
            starts, ends = datetime.fromisoformat(entry.starts_at), datetime.fromisoformat(entry.ends_at)
        except ValueError:
            yield error(path, "has a start or end that is not a valid time", "use the format 2026-12-01T11:30:00Z")
            continue
        if ends <= starts:
            yield error(
                f"{path}.ends_at",
                f"is {entry.ends_at}, which is not after the start {entry.starts_at}",
                "set it to the end of the block",
            )
        elif ends - starts < timedelta(hours=2):
            yield error(
                f"{path}.ends_at",
                f"is {entry.ends_at}, less than two hours after the start",
                "specify a longer block; nodes are terminated 35 or 65 minutes before it ends",
            )
        elif is_over(today, ends):
            # Not an error, because `up` removes the nodes of the group, and `verify` judges their evidence.
            what = f"is {entry.ends_at}, which has passed, so the group has no nodes"
            hint = "specify a block that has not ended, or pass an earlier date to `gpuinfra plan` or `gpuinfra rehearse` with --on"
            yield warn(f"{path}.ends_at", what, hint)


def reservation_window_is_valid(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The end of a reservation is after its start and has not passed."""
    for path, _, entry in entries_of(spec):
        if not isinstance(entry, Reserved):
            continue
        try:
            starts, ends = declared(entry)
        except ValueError:
            yield error(path, "has a start or end that is not a valid time", "use the format 2026-12-01T11:30:00Z")
            continue
        if starts and ends and ends <= starts:
            what = f"is {entry.ends_at}, which is not after the start {entry.starts_at}"
            yield error(f"{path}.ends_at", what, "set it to the end of the reservation")
        elif ends and is_over(today, ends):
            what = f"is {entry.ends_at}, which has passed, so the group has no nodes"
            yield warn(f"{path}.ends_at", what, "set `id` and `ends_at` to a reservation that has not ended")


def cluster_has_not_expired(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The time at which the cluster expires has not passed, and nodes start before it."""
    if spec.expires_at is None:
        return
    try:
        expires = moment(spec.expires_at)
    except ValueError:
        what = f"is {spec.expires_at}, which is not a valid time"
        yield error("expires_at", what, "use the format 2026-12-31T18:00:00Z")
        return
    if is_over(today, expires):
        what = f"is {spec.expires_at}, which has passed, so the plan has no nodes"
        yield warn("expires_at", what, "run `pulumi destroy` to delete the cluster, or set a later time")
    for path, _, entry in entries_of(spec):
        try:
            starts, _ = declared(entry)
        except ValueError:
            continue
        if starts and starts >= expires:
            what = f"is after expires_at ({spec.expires_at}), so the nodes never start"
            yield error(f"{path}.starts_at", what, "set `expires_at` to a later time")


def cloud_changes_sizes_on_time(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The cloud starts and removes nodes at the declared times. If it does not, you run `gpuinfra up` at these times."""
    profile = profile_of(spec.cloud)
    if profile.scheduled_actions:
        return
    paths = [
        f"{path}.{name}"
        for path, _, entry in entries_of(spec)
        for name in ("starts_at", "ends_at")
        if isinstance(entry, Reserved) and getattr(entry, name)
    ]
    for path in [*paths, *(["expires_at"] if spec.expires_at else [])]:
        what = f"is a time at which {profile.title} does not change the number of nodes by itself; run `gpuinfra up` at this time"
        yield info(path, what, "`gpuinfra calendar` reports when this is due")


IDLE_HOURS = 12, 168
"""Allowed values of `idle_stop`, in hours. A node reads its counters every hour, uploads unchanged evidence every six hours,
and keeps the readings of a week."""


def idle_time_can_be_measured(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The time after which a pool is idle fits the readings of its nodes, its GPUs are whole, and its capacity is not paid or limited in advance."""
    for path, pool, machine in pools_of(spec):
        if pool.idle_stop is None:
            continue
        path, low, high = f"{path}.idle_stop", *IDLE_HOURS
        fixed = next((entry.kind for entry in pool.capacity if entry.kind in _FIXED), None)
        if machine.gpu is None:
            what = f"is set, but {pool.machine} has no GPU, and gpuinfra measures only the use of GPUs"
            yield error(path, what, "remove it, or use expires_at to remove the nodes at a time")
        elif pool.mig:
            what = "is set, but the pool uses MIG, and the energy counter of a GPU does not show that a small instance is in use"
            yield error(path, what, "remove it, or remove mig to use whole GPUs")
        elif fixed:
            yield error(path, f"is set, but the capacity is of kind {fixed}, and {_FIXED[fixed]}", "remove it")
        elif not low <= int(pool.idle_stop[:-1]) <= high:
            what = f"is {pool.idle_stop}; allowed: {low}h to {high}h, because nodes upload unchanged evidence every six hours and keep the readings of a week"
            yield error(path, what, f"set it to a time from {low}h to {high}h")
        else:
            what = f"is {pool.idle_stop}; gpuinfra removes no node by itself"
            yield info(
                path,
                what,
                "`gpuinfra calendar` reports when the pool is idle, and prints the command that removes its nodes",
            )


_FIXED = {
    "block": "a Capacity Block is paid upfront, so removed nodes save nothing",
    "flex": "flex-start nodes end after max_run_hours, and removed nodes have to wait for capacity again",
}
"""Kinds of capacity whose nodes end by themselves: kind -> why idle nodes are not removed earlier."""


def reservation_covers_pool(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A reservation covers at least the number of nodes that the entry requests."""
    for path, pool, entry in entries_of(spec):
        if isinstance(entry, Reserved) and entry.holds is not None and entry.count > entry.holds and not entry.overflow:
            yield error(
                f"{path}.count",
                f"is {entry.count}, but the reservation holds {entry.holds} x {pool.machine}",
                "reduce the count, or specify a larger reservation",
            )


def reservation_has_one_id(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A reserved entry specifies one reservation or one reservation group."""
    for path, _, entry in entries_of(spec):
        if isinstance(entry, Reserved) and (entry.id is None) == (entry.group_arn is None):
            both = "both id and group_arn" if entry.id else "neither id nor group_arn"
            yield error(path, f"has {both}", "set one of them")


def purchase_fixes_zone(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The zone of a reservation or block is declared, because its machines are in one zone. The plan does not choose a zone for it."""
    cloud = profile_of(spec.cloud)
    if not cloud.is_region(spec.where.region) or not cloud.region_of_zone(
        cloud.first_zone(spec.where.region), spec.where.region
    ):
        return  # a wrong name, or an Azure region, where reservations without a zone exist (`reservation_zone_is_named`)
    for path, pool, entry in entries_of(spec):
        if isinstance(entry, (Reserved, Block)) and not (pool.zone or spec.where.zone or getattr(entry, "zone", None)):
            what = f"is required, because {path} is {entry.kind} capacity, which is in one zone"
            yield error(
                "where.zone",
                what,
                f"set it, or {path.partition('.')[0]}.zone, to the zone of the {entry.kind} capacity",
            )
            return


def reservation_is_used_once(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A pool uses a reservation or block in one entry. Pools that share a reservation request at most the number of nodes that it holds."""
    shared: dict[str, int] = {}
    seen: dict[tuple[str, str], str] = {}
    for path, pool, entry in entries_of(spec):
        if not isinstance(entry, (Reserved, Block)) or not entry.id:
            continue
        if first := seen.get((pool.name, entry.id)):
            yield error(
                f"{path}.id",
                f"is {shown(entry.id)}, which {first} also uses",
                "use one entry with the sum of both counts",
            )
        seen.setdefault((pool.name, entry.id), path)
        shared[entry.id] = shared.get(entry.id, 0) + entry.count
        holds = entry.holds if isinstance(entry, Reserved) and not entry.overflow else None
        if holds is not None and entry.count <= holds < shared[entry.id]:
            what = f"is {entry.count}, but the pools that share {shown(entry.id)} request {shared[entry.id]} of its {holds} nodes"
            yield error(f"{path}.count", what, "reduce the counts, or specify a larger reservation")


def identifier_is_not_an_example(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """IDs of reservations and address ranges are your own and not those of the examples (RFC 5737 reserves three ranges for documentation)."""
    for path, _, entry in entries_of(spec):
        if isinstance(entry, (Reserved, Block)) and entry.id == EXAMPLE_ID:
            yield warn(
                f"{path}.id", f"is {entry.id}, the ID in the examples", "set it to the ID of your reservation or block"
            )
    access = spec.access
    for name, ranges in (("ssh_from", access.ssh_from), ("evidence_from", access.evidence_from)):
        for i, text in enumerate(ranges):
            if _is_documentation(text):
                yield warn(
                    f"access.{name}[{i}]", f"is {text}, an address range in the examples", "set it to your own range"
                )


def _is_documentation(text: str) -> bool:
    try:
        given = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return any(given.version == 4 and given.subnet_of(reserved) for reserved in _DOCUMENTATION)


def fallback_replaces_reservations(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A fallback candidate differs from the pool, and specifies the capacity that replaces reserved capacity, because a reservation cannot
    move to another zone."""
    for i, pool in enumerate(spec.pools):
        bound = any(entry.kind in ("reserved", "block") for entry in pool.capacity)
        for j, candidate in enumerate(pool.fallback):
            path = f"pools[{i}].fallback[{j}]"
            if candidate.zone is None and candidate.machine is None and candidate.capacity is None:
                yield error(path, "has no zone, machine or capacity", "set at least one of them")
            elif (
                candidate.zone in (None, pool.zone or spec.where.zone)
                and candidate.machine in (None, pool.machine)
                and candidate.capacity in (None, pool.capacity)
            ):
                yield warn(
                    path, "is the same placement as that of the pool, so it adds no alternative", "remove or change it"
                )
            elif bound and candidate.capacity is None:
                yield error(
                    path,
                    "moves a pool that has reserved capacity, but does not specify the capacity to replace it",
                    "add capacity to the candidate",
                )


def spot_price_limit_is_unset(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """No spot price limit is set. A limit causes additional interruptions and does not reduce the cost."""
    for path, _, entry in entries_of(spec):
        if entry.kind == "spot" and entry.max_price_usd is not None:
            yield info(
                f"{path}.max_price_usd",
                "is set, so the cloud reclaims nodes when the price exceeds it",
                "remove it",
            )


RULES = rules_in(vars())
