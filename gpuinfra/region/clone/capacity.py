"""Sets the number of nodes and the capacity of each pool, and lists the reservations and quotas that the clone requires."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuinfra.base.findings import Finding, error, warn
from gpuinfra.base.words import counted
from gpuinfra.catalog.records import CapacityKind, MachineType
from gpuinfra.clouds.region.second_region import Manual, Quota
from gpuinfra.plan.machines import machines_of
from gpuinfra.region.clone import machines as find
from gpuinfra.region.clone.draft import Draft
from gpuinfra.region.clone.pair import RegionPair
from gpuinfra.spec.capacity import Block, Flex, Reserved
from gpuinfra.spec.document import Route
from gpuinfra.spec.messages import listed
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.pool import Pool

DEARER = 1.5
"""Ratio of the prices of a pool above which a change of its machine type is a finding."""
FLEX_HOURS = 168
"""Run time of `flex` capacity that replaces another kind."""


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """A capacity entry of the stack, with its kind and number of nodes in the clone."""

    route: Route
    path: str
    spec: Any
    raw: dict[str, Any]
    """The entry as written in the stack file."""
    machine: MachineType
    count: int

    @property
    def kind(self) -> CapacityKind:
        return CapacityKind(self.spec.kind)

    @property
    def bound(self) -> bool:
        """Whether the entry specifies a reservation, which belongs to one region."""
        return isinstance(self.spec, (Reserved, Block))


def set_capacity(pair: RegionPair, draft: Draft, machines: Mapping[str, MachineType]) -> None:
    """Set the capacity. `machines` are the machine types of the pools. Stops at the first error."""
    machines_known = machines_of(pair.spec)
    for index, pool in enumerate(pair.spec.pools):
        counts, why = _counts(pair, pool, machines_known[pool.machine], machines[pool.name])
        draft.findings += _dearer(pair, index, pool, machines_known[pool.machine], machines[pool.name], sum(counts))
        if not _set_pool(pair, draft, index, machines[pool.name], counts, why):
            return
        if pool.quota_vcpus is not None:
            why = f"this quota applies only to {pair.source}; request a quota in {pair.target}"
            draft.set(("pools", index, "quota_vcpus"), None, why)
    floor, nodes = pair.spec.handover.floor, _nodes(draft)
    if floor is not None and floor > nodes > 0:
        draft.set(("handover", "floor"), nodes, f"the clone has {counted(nodes, 'node')}")


def _set_pool(pair: RegionPair, draft: Draft, index: int, machine: MachineType, counts: list[int], why: str) -> bool:
    """Set the entries of a pool. An entry whose nodes all move to another one is removed. `why` is the reason for a change of the number of nodes.
    Returns False after an error."""
    route: Route = ("pools", index, "capacity")
    raw = draft.get(route)
    routes: list[Route] = [(*route, number) for number in range(len(counts))] if isinstance(raw, list) else [route]
    made: list[dict[str, Any]] = []
    reasons: list[list[str]] = []
    for number, (entry, count) in enumerate(zip(pair.spec.pools[index].capacity, counts, strict=True)):
        if count == 0 and entry.count > 0:
            continue
        value, reason = _replaced(
            pair,
            draft,
            _Entry(
                route=routes[number],
                path=f"pools[{index}].capacity[{number}]",
                spec=entry,
                raw=raw[number] if isinstance(raw, list) else raw,
                machine=machine,
                count=count,
            ),
        )
        if value is None:
            return False
        made.append({**value, "count": count})
        reasons.append([one for one in (reason, why if count != entry.count else "") if one])
    if len(made) < len(counts):
        draft.set(route, made, "; ".join(dict.fromkeys([why, *(one for some in reasons for one in some)])))
        return True
    for here, value, reason in zip(routes, made, map("; ".join, reasons), strict=True):
        draft.set(here, value, reason)
    return True


def _nodes(draft: Draft) -> int:
    capacity = [pool["capacity"] for pool in draft.get(("pools",)) or []]
    return sum(entry["count"] for one in capacity for entry in (one if isinstance(one, list) else [one]))


def _counts(pair: RegionPair, pool: Pool, old: MachineType, new: MachineType) -> tuple[list[int], str]:
    """Return the number of nodes of each entry: as requested, or so that the number of GPUs does not change."""
    asked = pair.request.count.get(pool.name) or pair.request.count.get("*")
    counts = [entry.count for entry in pool.capacity]
    if asked:
        return _share(counts, asked), "set with --count"
    if old.gpus == new.gpus or not new.gpus or not old.gpus:
        return counts, ""
    total = math.ceil(pool.nodes * old.gpus / new.gpus)
    gpus = counted(pool.nodes * old.gpus, "GPU")
    return _share(counts, total), f"{counted(total, 'node')} instead of {pool.nodes}, for the {gpus} of the stack"


def _replaced(pair: RegionPair, draft: Draft, entry: _Entry) -> tuple[dict[str, Any] | None, str]:
    """Return the capacity entry of the clone and the reason for its change. None if the machine type has no capacity without a reservation."""
    route, machine, raw = entry.route, entry.machine, entry.raw
    kinds = find.free_kinds(machine, pair.there)
    if entry.bound and any(pair.is_given((*route, name)) for name in ("id", "group_arn")):
        own = {"zone", "placement_group", "holds"}
        if entry.kind is CapacityKind.RESERVED:
            own |= {name for name in ("starts_at", "ends_at") if not pair.is_given((*route, name))}
        kept = {key: value for key, value in raw.items() if key not in own}
        return kept, "zone, placement group, size and times belong to the stack's reservation"
    if not entry.bound and entry.kind in kinds:
        keep = {key: value for key, value in raw.items() if not (pair.across and key in ("strategy", "max_price_usd"))}
        return keep, f"{pair.there.title} does not support these settings" if keep != raw else ""
    if entry.bound:
        _list_purchase(pair, draft, entry)
    if not kinds:
        draft.findings.append(_not_free(pair, entry))
        return None, ""
    if not pair.is_given(route):
        draft.findings += _interruptible(entry, kinds[0])
    value: dict[str, Any] = {"kind": kinds[0].value, "count": entry.count}
    if kinds[0] is CapacityKind.FLEX:
        value["max_run_hours"] = entry.spec.max_run_hours if isinstance(entry.spec, Flex) else FLEX_HOURS
    if entry.bound:
        why = f"{entry.kind.value} capacity belongs to {pair.source}; {kinds[0].value} until you reserve capacity in {pair.target}"
    else:
        why = f"{machine.name} is not sold as {entry.kind.value}; {kinds[0].value} instead"
    return value, why


def _dearer(
    pair: RegionPair, index: int, pool: Pool, old: MachineType, new: MachineType, count: int
) -> Iterator[Finding]:
    """Yield a warning if a machine type that the clone chose makes the pool much more expensive."""
    if old.name == new.name or pool.name in pair.request.machine or "*" in pair.request.machine:
        return
    kind = CapacityKind.ON_DEMAND
    before = find.hourly(old, pair.here, pair.source, kind)
    after = find.hourly(new, pair.there, pair.target, kind)
    if before and after and after * count > DEARER * before * pool.nodes:
        what = (
            f"is {new.name} instead of {old.name}: the pool costs {after * count:,.2f} USD an hour on demand in {pair.target}, "
            f"and {before * pool.nodes:,.2f} in {pair.source}"
        )
        hint = f"accept this price with --machine {pool.name}={new.name}, or use a region that offers {old.name}"
        yield warn(f"pools[{index}].machine", what, hint)


def _interruptible(entry: _Entry, kind: CapacityKind) -> Iterator[Finding]:
    """Yield a warning if reserved capacity becomes capacity that the cloud can refuse or take back, which is no capacity for a recovery."""
    if not entry.bound or kind is CapacityKind.ON_DEMAND:
        return
    ends = (
        "can end the nodes at any time"
        if kind is CapacityKind.SPOT
        else "queues the request and ends the nodes after their run time"
    )
    what = f"is {kind.value} instead of {entry.kind.value}, because {entry.machine.name} is not sold on demand; the cloud {ends}"
    hint = f"buy a reservation and set it, or accept with --set '{entry.path}={{kind: {kind.value}, count: {entry.count}}}'"
    yield warn(entry.path, what, hint)


def _list_purchase(pair: RegionPair, draft: Draft, entry: _Entry) -> None:
    """List the reservation to buy, with its price and the command."""
    machine, kind = entry.machine, entry.kind
    sold = machine.capacity & pair.there.capacity_kinds
    wanted = kind if kind in sold else CapacityKind.RESERVED
    if wanted not in sold:
        return
    each = find.hourly(machine, pair.there, pair.target, wanted)
    usd = f"{each * entry.count:,.2f} USD an hour, used or not" if each else "an unknown price"
    bills = "; the command creates the reservation, and billing starts immediately, even if no node runs"
    if wanted is CapacityKind.BLOCK:
        bills = "; the command lists offers and does not buy capacity"
    draft.manual.append(
        Manual(
            path=entry.path,
            what=f"{kind.value} capacity: {entry.count} x {machine.name} in {pair.target}",
            why=f"a reservation belongs to one zone and cannot be moved; buy {wanted.value} capacity for {usd}, "
            f"and set it with --set '{entry.path}={{kind: {wanted.value}, ...}}'{bills}",
            command=pair.facts.purchase(wanted, machine, entry.count, pair.target, draft.get(("where", "zone"))),
        )
    )


def _not_free(pair: RegionPair, entry: _Entry) -> Finding:
    path, machine, count = entry.path, entry.machine, entry.count
    allowed = listed(sorted(one.value for one in machine.capacity & pair.there.capacity_kinds))
    belongs = f"which belongs to {pair.source}, and" if entry.bound else "but"
    what = f"is {entry.kind.value}, {belongs} {machine.name} is sold only as {allowed or 'capacity that gpuinfra does not support'}"
    hint = f"buy capacity in {pair.target} and set it with --set '{path}={{kind: {allowed}, id: ID, count: {count}}}'"
    if allowed == "block":
        hint = f"buy a block in {pair.target} and set it with --set '{path}={{kind: block, id: ID, count: {count}, starts_at: TIME, ends_at: TIME}}'"
    return error(path, what, hint)


def list_quotas(pair: RegionPair, draft: Draft, cloned: ClusterSpec) -> None:
    """List the quotas that the clone requires. Machine types of one family share a quota."""
    machines_known = machines_of(cloned)
    needed: dict[str, tuple[Quota, int, list[str]]] = {}
    for pool in cloned.pools:
        for entry in pool.capacity:
            quota = pair.facts.quota(machines_known[pool.machine], CapacityKind(entry.kind))
            if quota is None:
                continue
            _, total, nodes = needed.get(quota.name, (quota, 0, []))
            user = f"{entry.count} x {pool.machine} as {entry.kind}"
            needed[quota.name] = (quota, total + entry.count * quota.per_node, [*nodes, user])
    for quota, total, nodes in needed.values():
        name = quota.name or "a quota whose code is not in the catalog"
        draft.manual.append(
            Manual(
                path="quota",
                what=f"{name} in {pair.target}",
                why=f"each region has its own quota; the quota must be at least {counted(total, quota.unit.removesuffix('s'))} for {listed(nodes)}",
                command=pair.facts.request(quota, total, pair.target, getattr(cloned.where, "project", None)),
            )
        )


def reservations(entry: object) -> Iterator[tuple[str, str]]:
    """Yield the fields of a capacity entry that identify reservations, with their values."""
    if isinstance(entry, (Reserved, Block)):
        for field in ("id", "group_arn"):
            if name := getattr(entry, field, None):
                yield field, name


def _share(counts: list[int], total: int) -> list[int]:
    """Divide a number of nodes among capacity entries in proportion to their sizes. The first entries get the remainder."""
    whole = sum(counts)
    shares = [count * total // whole for count in counts]
    rest = total - sum(shares)
    order = sorted(range(len(counts)), key=lambda index: (-(counts[index] * total % whole), index))
    for index in order[:rest]:
        shares[index] += 1
    return shares
