"""Compares the price of the same nodes across kinds of capacity, with the break-even point against on-demand.

On-demand, spot, and flex nodes are billed for the hours of use. Commitments, reservations, and blocks are billed in full, even if unused.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import date

from gpuinfra.catalog.records import CapacityKind, Price
from gpuinfra.cost.model import HOURS_PER_MONTH
from gpuinfra.plan.model import Plan
from gpuinfra.plan.profile import profile_of

_BILLED_IN_FULL = (CapacityKind.RESERVED, CapacityKind.BLOCK)


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonRow:
    """The price of all nodes in a plan with one kind of capacity."""

    way: str
    """Kind of capacity and term, such as `on_demand`, `on_demand 1y`, `spot`, or `block`."""
    usd_per_hour: float
    usd_per_month: float
    billed_in_full: bool
    """True if the price does not depend on the hours of use."""
    break_even_hours: float | None
    """Hours of use per month above which this kind costs less than on-demand. None if this kind is billed by usage."""
    read: date
    source: str
    note: str


def compare(plan: Plan, today: date) -> tuple[ComparisonRow, ...]:
    """Return each kind of capacity that has a price for every machine type in the plan, with the highest monthly price first."""
    machines = profile_of(plan.cloud).machines
    nodes: Counter[str] = Counter()
    for pool in plan.pools:
        if pool.expectation["gpus"] and pool.machine in machines:
            nodes[pool.machine] += sum(group.max_count for group in pool.groups)
    priced = {machine: _ways(machines[machine].prices, plan.region) for machine in nodes}
    common = set.intersection(*(set(ways) for ways in priced.values())) if priced else set()
    hourly = {way: sum(nodes[m] * priced[m][way].usd_per_hour for m in nodes) for way in common}
    usual = hourly.get(CapacityKind.ON_DEMAND.value)
    first = next(iter(priced.values()), {})
    rows = [_row(way, usd, first[way], usual) for way, usd in hourly.items()]
    return tuple(sorted(rows, key=lambda row: (-row.usd_per_month, row.way)))


def _ways(prices: tuple[Price, ...], region: str) -> dict[str, Price]:
    """Return the newest price for each kind and term in this region."""
    newest: dict[str, Price] = {}
    for price in prices:
        if price.region not in (region, "*"):
            continue
        way = f"{price.kind.value} {price.term}".strip()
        if way not in newest or newest[way].read < price.read:
            newest[way] = price
    return newest


def break_even_share(committed_usd: float, usual_usd: float) -> float:
    """Return the share of the billed hours above which capacity that is billed in full costs less than on-demand: the ratio of the hourly prices."""
    return committed_usd / usual_usd


def _row(way: str, usd: float, fact: Price, usual: float | None) -> ComparisonRow:
    billed_in_full = bool(fact.term) or fact.kind in _BILLED_IN_FULL
    month = usd * HOURS_PER_MONTH
    return ComparisonRow(
        way=way,
        usd_per_hour=usd,
        usd_per_month=month,
        billed_in_full=billed_in_full,
        break_even_hours=HOURS_PER_MONTH * break_even_share(usd, usual) if billed_in_full and usual else None,
        read=fact.read,
        source=fact.source,
        note=fact.note,
    )
