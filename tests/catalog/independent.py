"""Compares the catalogs with independent public sources, from which no record was written.

`python -m tests.catalog.independent` writes `docs/internals/catalog-check.md`; a test fails if the page is out of date.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuinfra.catalog.records import MachineType
from gpuinfra.plan.profile import profile_of

FACTS: dict[str, Any] = json.loads(Path(__file__).with_name("independent.json").read_text(encoding="utf-8"))
PAGE = Path(__file__).parents[2] / "docs" / "internals" / "catalog-check.md"
TOLERANCE = {"vcpus": 0.0, "gpus": 0.0, "memory_gib": 0.01, "usd_per_hour": 0.02}


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """One fact of one machine type in the independent source and in the catalog."""

    cloud: str
    machine: str
    fact: str
    theirs: float
    ours: float | None
    source: str
    explained: str

    @property
    def agrees(self) -> bool:
        """True if the difference is within the tolerance of the fact; False if the catalog lacks the fact."""
        if self.ours is None:
            return False
        return abs(self.ours - self.theirs) <= TOLERANCE[self.fact] * abs(self.theirs)

    @property
    def verdict(self) -> str:
        """The result for the page."""
        if self.agrees:
            return "equal"
        return "explained below" if self.explained else "DIFFERENT"


def list_price(machine: MachineType, kind: str, region: str) -> float | None:
    """The hourly price without a term, None if the catalog has none."""
    for price in machine.prices:
        if (price.kind, price.region, price.term) == (kind, region, ""):
            return price.usd_per_hour
    return None


def comparisons() -> Iterator[Comparison]:
    """Every fact of every row compared with the current record."""
    for cloud, rows in FACTS["clouds"].items():
        machines = profile_of(cloud).machines
        for row in rows:
            machine = machines[row["machine"]]
            ours: dict[str, float | None] = {
                "vcpus": machine.vcpus,
                "memory_gib": machine.memory_gib,
                "gpus": machine.gpus,
            }
            if "usd_per_hour" in row:
                ours["usd_per_hour"] = list_price(machine, "on_demand", row["region"])
            for fact, value in ours.items():
                yield Comparison(
                    cloud=cloud,
                    machine=machine.name,
                    fact=fact,
                    theirs=row[fact],
                    ours=value,
                    source=row["price_source" if fact == "usd_per_hour" else "shape_source"],
                    explained=row.get("explained", {}).get(fact, ""),
                )


def page() -> str:
    """The expected content of the page."""
    found = list(comparisons())
    lines = [
        "# Comparison of the catalogs with independent sources",
        "",
        "`python -m tests.catalog.independent` generates this page from `tests/catalog/independent.json`. A test checks that the page and the file match",
        "the current records. vCPUs and GPUs must be equal. Memory may differ by 1 %, and prices by 2 %. A larger difference requires an explanation.",
        "",
        "| cloud | machine types | prices | compared facts | equal | explained |",
        "|---|---|---|---|---|---|",
    ]
    for cloud in FACTS["clouds"]:
        here = [one for one in found if one.cloud == cloud]
        prices = [one for one in here if one.fact == "usd_per_hour"]
        agree = sum(one.agrees for one in here)
        types = len({one.machine for one in here})
        lines.append(f"| {cloud} | {types} | {len(prices)} | {len(here)} | {agree} | {len(here) - agree} |")
    lines += ["", "## Sources", "", "| name | source | version | date | content |", "|---|---|---|---|---|"]
    for name, source in FACTS["sources"].items():
        lines.append(
            f"| {name} | `{source['where']}` | {source['commit'][:12]} | {source['date']} | {source['what']} |"
        )
    lines += ["", "## Machine types", "", "| cloud | compared machine types, with their sources |", "|---|---|"]
    for cloud in FACTS["clouds"]:
        sources: dict[str, list[str]] = {}
        for one in found:
            if one.cloud == cloud and one.source not in sources.setdefault(one.machine, []):
                sources[one.machine].append(one.source)
        types = ", ".join(f"`{machine}` ({', '.join(names)})" for machine, names in sources.items())
        lines.append(f"| {cloud} | {types} |")
    lines += ["", "## Explained differences", ""]
    lines += [
        f"- `{one.machine}`, {one.fact}: {one.theirs:g} in the source, {one.ours:g} in the catalog. {one.explained}"
        for one in found
        if not one.agrees and one.ours is not None
    ]
    lines += ["", "## Records corrected by this comparison", ""]
    lines += [
        f"- `{one['machine']}`, {one['kind']} in {one['region']}: corrected from {one['was']:g} to {one['now']:g} USD per hour. {one['why']}"
        for one in FACTS["corrected"]
    ]
    lines += ["", "## Limitations", "", *(f"- {gap}" for gap in FACTS["gaps"]), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
