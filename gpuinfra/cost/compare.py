"""The same nodes bought in each way that has a price: hour, month, and from how many hours of use it pays.

On demand, spot and flex are paid by the hour of use; a commitment, a reservation and a block are paid used or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from gpuinfra.catalog.records import CapacityKind, Price
from gpuinfra.clouds import profile_of
from gpuinfra.cost.model import HOURS_PER_MONTH
from gpuinfra.plan.model import Plan

_ALWAYS_PAID = (CapacityKind.RESERVED, CapacityKind.BLOCK)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One way of buying every node of a plan."""

    way: str
    """`on_demand`, `on_demand 1y`, `spot`, `block`."""
    usd_per_hour: float
    usd_per_month: float
    break_even_hours: float | None
    """Hours of use a month from which it costs less than on demand; None where it is paid by use too."""
    read: date
    source: str
    note: str


def compare(plan: Plan, today: date) -> tuple[Row, ...]:
    """Every way for which all machines of the plan have a price, dearest month first."""
    machines = profile_of(plan.cloud).machines
    nodes = {
        pool.machine: sum(group.max_count for group in pool.groups)
        for pool in plan.pools
        if pool.expectation.get("gpus") and pool.machine in machines
    }
    priced = {machine: _ways(machines[machine].prices, plan.region) for machine in nodes}
    common = set.intersection(*(set(ways) for ways in priced.values())) if priced else set()
    hourly = {way: sum(nodes[m] * priced[m][way].usd_per_hour for m in nodes) for way in common}
    usual = hourly.get(CapacityKind.ON_DEMAND.value)
    first = next(iter(priced.values()), {})
    rows = [_row(way, usd, first[way], usual) for way, usd in hourly.items()]
    return tuple(sorted(rows, key=lambda row: (-row.usd_per_month, row.way)))


def _ways(prices: tuple[Price, ...], region: str) -> dict[str, Price]:
    """The newest price of each way in this region."""
    newest: dict[str, Price] = {}
    for one in prices:
        if one.region not in (region, "*"):
            continue
        way = f"{one.kind.value} {one.term}".strip()
        if way not in newest or newest[way].read < one.read:
            newest[way] = one
    return newest


def _row(way: str, usd: float, fact: Price, usual: float | None) -> Row:
    paid_always = bool(fact.term) or fact.kind in _ALWAYS_PAID
    month = usd * HOURS_PER_MONTH
    return Row(
        way=way,
        usd_per_hour=usd,
        usd_per_month=month,
        break_even_hours=month / usual if paid_always and usual else None,
        read=fact.read,
        source=fact.source,
        note=fact.note,
    )
