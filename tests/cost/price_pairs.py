"""Updates the table of prices in `docs/reference/prices.md` from the price data: `python -m tests.cost.price_pairs`.

The first two columns of a row, machine type and region, select the price. The other columns are generated.
"""

from __future__ import annotations

import re
from pathlib import Path

from gpuinfra.base.registry import CLOUDS
from gpuinfra.catalog.records import CapacityKind, MachineType
from gpuinfra.cost.price import node_price
from gpuinfra.plan.profile import profile_of

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "prices.md"
ROW = re.compile(r"^\| `(?P<machine>[^`]+)` \| (?P<region>[a-z0-9-]+) \|.*$", re.M)


def updated(text: str) -> str:
    """Return the page with the current prices. Raises KeyError for an unknown machine type, ValueError for a pair without a price."""
    machines = {name: one for cloud in CLOUDS for name, one in profile_of(cloud).machines.items()}
    return ROW.sub(lambda row: _row(machines[row["machine"]], row["region"]), text)


def _row(machine: MachineType, region: str) -> str:
    found, note = node_price(machine, CapacityKind.ON_DEMAND, region)
    if found is None:
        raise ValueError(f"{machine.name} has no price in {region}")
    certainty = "listed" if found.certain else "estimate"
    source = "; ".join(filter(None, (note, found.source)))
    usd = f"{found.usd_per_hour:,.4f}".rstrip("0").rstrip(".")
    return f"| `{machine.name}` | {region} | {usd} | {found.read} | {certainty} | {source} |"


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
