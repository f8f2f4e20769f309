"""A second opinion on the catalogues: facts read in public sources that the records were not written from.

`python -m tests.catalog.independent` writes `docs/catalog-check.md` again; the test fails while the page is stale.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuinfra.catalog.records import MachineType
from gpuinfra.clouds import profile_of

FACTS: dict[str, Any] = json.loads(Path(__file__).with_name("independent.json").read_text(encoding="utf-8"))
PAGE = Path(__file__).parents[2] / "docs" / "catalog-check.md"
TOLERANCE = {"vcpus": 0.0, "gpus": 0.0, "memory_gib": 0.01, "usd_per_hour": 0.02}


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """One fact of one machine type, theirs beside ours."""

    cloud: str
    machine: str
    fact: str
    theirs: float
    ours: float | None
    source: str
    explained: str

    @property
    def agrees(self) -> bool:
        """True where the difference is within the fact's tolerance; a fact that we do not hold never agrees."""
        if self.ours is None:
            return False
        return abs(self.ours - self.theirs) <= TOLERANCE[self.fact] * abs(self.theirs)

    @property
    def verdict(self) -> str:
        """What the page says about the fact."""
        if self.agrees:
            return "agrees"
        return "explained below" if self.explained else "DIFFERS"


def list_price(machine: MachineType, kind: str, region: str) -> float | None:
    """The price for one hour without a term, None where the catalogue has none."""
    for price in machine.prices:
        if (price.kind, price.region, price.term) == (kind, region, ""):
            return price.usd_per_hour
    return None


def comparisons() -> Iterator[Comparison]:
    """Every fact of every row beside the record of today."""
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
    """The page as it should be."""
    found = list(comparisons())
    lines = [
        "# The catalogues, checked against sources they were not written from",
        "",
        "Written by `python -m tests.catalog.independent` from `tests/catalog/independent.json`; a test compares both with the",
        "records of today. vCPUs and GPUs have to be equal, memory within 1 %, prices within 2 %; what differs carries a reason.",
        "",
        "| cloud | machine types | prices | facts compared | agree | explained |",
        "|---|---|---|---|---|---|",
    ]
    for cloud in FACTS["clouds"]:
        here = [one for one in found if one.cloud == cloud]
        prices = [one for one in here if one.fact == "usd_per_hour"]
        agree = sum(one.agrees for one in here)
        types = len({one.machine for one in here})
        lines.append(f"| {cloud} | {types} | {len(prices)} | {len(here)} | {agree} | {len(here) - agree} |")
    lines += ["", "## Sources", "", "| name | where | version | date | what |", "|---|---|---|---|---|"]
    for name, source in FACTS["sources"].items():
        lines.append(
            f"| {name} | `{source['where']}` | {source['commit'][:12]} | {source['date']} | {source['what']} |"
        )
    for cloud in FACTS["clouds"]:
        lines += [
            "",
            f"## {cloud}",
            "",
            "| machine type | fact | theirs | ours | source | |",
            "|---|---|---|---|---|---|",
        ]
        lines += [
            f"| `{one.machine}` | {one.fact} | {one.theirs:g} | {'none' if one.ours is None else f'{one.ours:g}'} "
            f"| {one.source} | {one.verdict} |"
            for one in found
            if one.cloud == cloud
        ]
    lines += ["", "## Differences that stay", ""]
    lines += [
        f"- `{one.machine}`, {one.fact}: {one.theirs:g} there, {one.ours:g} here. {one.explained}"
        for one in found
        if not one.agrees and one.ours is not None
    ]
    lines += ["", "## Records that this check mended", ""]
    lines += [
        f"- `{one['machine']}`, {one['kind']} in {one['region']}: {one['was']:g} became {one['now']:g} USD an hour. {one['why']}"
        for one in FACTS["mended"]
    ]
    lines += ["", "## What it does not show", "", *(f"- {gap}" for gap in FACTS["gaps"]), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
