"""The monthly limit of a budget whose limit the declaration does not set."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date

from gpuinfra.cost.model import Cost
from gpuinfra.cost.price import price
from gpuinfra.plan.model import Plan


def derived_limit(plan: Plan, cost: Cost, today: date) -> float:
    """Return the monthly limit of a budget in USD: `cost` and the price of the second region plus 10 percent, rounded up to a multiple of 100."""
    month = cost.usd_per_month + _second_region(plan, today)
    return float(max(100, math.ceil(month * 1.1 / 100) * 100))


def _second_region(plan: Plan, today: date) -> float:
    """Return the monthly price of the stack in the second region before a failover. Its resources have the cluster's tag, so the budget counts them."""
    if plan.recovery is None or plan.recovery.mode == "cold":
        return 0.0
    pools = plan.pools if plan.recovery.mode == "hot" else ()
    same = replace(plan, recovery=None, pools=pools)
    there = price(replace(same, region=plan.recovery.region), today)
    return (there if there.complete else price(same, today)).usd_per_month
