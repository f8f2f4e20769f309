"""Rules about cost: unknown prices and budget alerts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from gpuinfra.catalog.records import CapacityKind
from gpuinfra.clouds import profile_of
from gpuinfra.clouds.machines import pools_of
from gpuinfra.clouds.profile import rules_in
from gpuinfra.cost.price import node_price
from gpuinfra.findings import Finding, info, warn
from gpuinfra.spec.model import ClusterSpec


def price_is_known(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Every node has a known price. A budget limit that is derived from the plan does not include nodes without a known price."""
    derived = spec.budget.limit_usd_per_month is None and "foundation" in spec.made_layers
    if spec.where.region not in profile_of(spec.cloud).regions:
        return
    for pool_path, pool, machine in pools_of(spec):
        for j, entry in enumerate(pool.capacity):
            found, note = node_price(machine, CapacityKind(entry.kind), spec.where.region)
            if found is not None:
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
        what = "is empty, so no one is notified when the budget is exceeded"
        yield warn("budget.recipients", what, "add an e-mail address")


RULES = rules_in(vars())
