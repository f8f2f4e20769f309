"""Rules about cost: unknown prices and budget alerts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime

from gpuinfra.base.findings import Finding, error, info, warn
from gpuinfra.catalog.records import CapacityKind
from gpuinfra.cost.model import HOURS_PER_MONTH
from gpuinfra.cost.price import node_price
from gpuinfra.plan.machines import pools_of
from gpuinfra.plan.profile import profile_of
from gpuinfra.plan.window import declared, is_before, is_over
from gpuinfra.spec.capacity import Capacity
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.rule import rules_in


def price_is_known(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Every node has a known price. A budget limit that is derived from the plan does not include nodes without a known price."""
    derived = spec.budget.limit_usd_per_month is None and "foundation" in spec.made_layers
    if spec.where.region not in profile_of(spec.cloud).regions:
        return
    for pool_path, pool, machine in pools_of(spec):
        for j, entry in enumerate(pool.capacity):
            price, note = node_price(machine, CapacityKind(entry.kind), spec.where.region)
            if price is not None:
                continue
            path = f"{pool_path}.capacity[{j}]"
            if derived:
                hint = "set budget.limit_usd_per_month, because the derived limit does not include these nodes"
                yield warn(path, f"has no known price: {note}", hint)
            else:
                yield info(
                    path, f"has no known price: {note}", "add the price to a price file and pass the file with --prices"
                )


def budget_has_recipients(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The budget alert has at least one recipient."""
    if "foundation" in spec.made_layers and not spec.budget.recipients:
        what = "is empty, so no alert is sent when the budget is exceeded"
        yield warn("budget.recipients", what, "add an email address")


def budget_covers_nodes(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A declared monthly limit is at least the price of all nodes for a month, or for their run time if it is shorter."""
    limit, region = spec.budget.limit_usd_per_month, spec.where.region
    if limit is None or "foundation" not in spec.made_layers or region not in profile_of(spec.cloud).regions:
        return
    month = 0.0
    for _, pool, machine in pools_of(spec):
        for entry in pool.capacity:
            price, _ = node_price(machine, CapacityKind(entry.kind), region)
            hours = min(HOURS_PER_MONTH, spec.duration_hours or HOURS_PER_MONTH)
            if entry.kind == "block":
                hours = min(
                    hours,
                    (datetime.fromisoformat(entry.ends_at) - datetime.fromisoformat(entry.starts_at)).total_seconds()
                    / 3600,
                )
            month += entry.count * hours * (price.usd_per_hour if price else 0)
    month = round(month, 2)
    if limit < month:
        what = f"is {limit:,.0f}, but the nodes cost {month:,.0f} USD a month at the prices in the catalog"
        yield warn(
            "budget.limit_usd_per_month",
            what,
            "increase it, or remove it to derive the limit from the price of the plan",
        )


def lustre_is_used_by_nodes(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Nodes run while a Lustre file system exists. The cloud bills the file system from its creation, also while no node runs."""
    entries = [entry for pool in spec.pools for entry in pool.capacity]
    if "site" not in spec.made_layers or not entries or any(_runs(entry, today) for entry in entries):
        return
    for i, file_system in enumerate(spec.storage):
        if file_system.kind == "lustre" and not file_system.existing:
            what = "is billed from its creation, but no node runs yet or anymore"
            yield warn(f"storage[{i}]", what, "add the file system to the declaration when the nodes start")


def _runs(entry: Capacity, today: date) -> bool:
    """Return whether `up` starts nodes for an entry now. A queue starts its nodes later."""
    try:
        starts, ends = declared(entry)
    except ValueError:
        return True  # Another rule reports a time that is not valid.
    closed = bool(starts and is_before(today, starts)) or bool(ends and is_over(today, ends))
    return entry.count > 0 and entry.kind != "flex" and not closed


def budget_currency_has_rate(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The cloud accepts the currency of the budget. A budget in a currency other than USD has an exchange rate, and a budget in USD has none."""
    budget, only = spec.budget, profile_of(spec.cloud).budget_currency
    if only and budget.currency != only:
        what = f"is {budget.currency}; allowed on {profile_of(spec.cloud).title}: {only}"
        yield error("budget.currency", what, "remove budget.currency and budget.units_per_usd")
    elif budget.currency != "USD" and budget.units_per_usd is None:
        what = f"is {budget.currency}, but the limit is in USD and has no exchange rate"
        yield error("budget.currency", what, f"set budget.units_per_usd to the number of {budget.currency} per USD")
    if budget.currency == "USD" and budget.units_per_usd is not None:
        yield error(
            "budget.units_per_usd",
            f"is {budget.units_per_usd:g}, but budget.currency is USD",
            "remove it, or set budget.currency to the currency of the billing account",
        )


RULES = rules_in(vars())
