"""Reads the prices of a cloud from its file `prices.json`, and estimates prices for regions without one.

Each row has a source with a date. In `machines`, a row has the kind of capacity and USD per node per hour by region; `*` means all
regions, and two numbers are a range. In `services`, a row has USD per unit. `ratios` compare the price of one machine type between regions
and the reference region. A price that the file does not contain is estimated from the reference region, or else from the region with a price
whose ratio is nearest to 1. Such a price is marked as an estimate, with its calculation in the note.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

from gpuinfra.catalog.records import CapacityKind, MachineType, Price, ServicePrice

ANYWHERE = "*"
"""Region of a price that applies to every region."""


@dataclass(frozen=True)
class Ratio:
    """Price level of a region relative to the reference region."""

    value: float
    machine: str
    """Machine type whose prices were compared."""
    source: str
    note: str = ""
    """Reason for a ratio that is not the ratio of two listed prices."""


@dataclass(frozen=True)
class PriceTable:
    """The prices of a cloud."""

    path: Path

    @cached_property
    def _content(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
        content["sources"] = {
            name: {**one, "read": date.fromisoformat(one["read"])} for name, one in content["sources"].items()
        }
        return content

    @cached_property
    def reference(self) -> str:
        """Reference region, to whose prices the ratios apply."""
        return str(self._content["reference_region"])

    @cached_property
    def ratios(self) -> dict[str, Ratio]:
        """Region -> ratio."""
        sources = self._content["sources"]
        return {
            region: Ratio(value, row["of"], sources[row["from"]]["source"], row.get("note", ""))
            for row in self._content["ratios"]
            for region, value in row["ratio"].items()
        }

    def machines(self, records: Iterable[MachineType]) -> dict[str, MachineType]:
        """Return the records by name, with their prices."""
        priced: dict[str, MachineType] = {}
        for record in records:
            listed = tuple(self._machine(record.name))
            priced[record.name] = replace(record, prices=(*listed, *self._estimated(record, listed)))
        return priced

    def services(self, regions: frozenset[str]) -> tuple[ServicePrice, ...]:
        """Return the prices of services in these regions. Listed prices precede estimates."""
        listed = tuple(self._services())
        return (*listed, *self._estimated_services(listed, sorted(regions)))

    def _machine(self, name: str) -> Iterator[Price]:
        for row in self._content["machines"].get(name, ()):
            source = self._content["sources"][row["from"]]
            for region, usd in row["usd"].items():
                low, high = usd if isinstance(usd, list) else (None, usd)
                yield Price(
                    kind=CapacityKind(row["kind"]),
                    region=region,
                    usd_per_hour=high,
                    usd_low=low,
                    read=source["read"],
                    source=source["source"],
                    term=row.get("term", ""),
                    certain=source.get("certain", True),
                    note=row.get("note", "") if low is None else "highest price of the range",
                )

    def _estimated(self, record: MachineType, listed: tuple[Price, ...]) -> Iterator[Price]:
        """Yield an estimate for each region that offers the machine type and has no price. On-demand prices are also the basis of reservations."""
        plain = [one for one in listed if not one.term]
        kind = CapacityKind.ON_DEMAND
        if not any(one.kind is kind for one in plain):
            kind = CapacityKind.SPOT
        listed_in = {one.region: one for one in plain if one.kind is kind and one.usd_low is None}
        base = min((name for name in listed_in if name in self.ratios), key=self._distance, default=None)
        if base is None:
            return
        for region in record.zones or (() if record.gpu else self.ratios):
            if region not in listed_in and region in self.ratios:
                factor, how, source = self._from(base, region)
                yield replace(
                    listed_in[base],
                    region=region,
                    usd_per_hour=round(listed_in[base].usd_per_hour * factor, 4),
                    certain=False,
                    source=f"{listed_in[base].source}; ratio: {source}",
                    note=how,
                )

    def _services(self) -> Iterator[ServicePrice]:
        for key, service in self._content["services"].items():
            for row in service["prices"]:
                source = self._content["sources"][row["from"]]
                for region, usd in row["usd"].items():
                    yield ServicePrice(
                        key=key,
                        unit=service["unit"],
                        region=region,
                        usd=usd,
                        read=source["read"],
                        source=source["source"],
                        certain=source.get("certain", True),
                        note=row.get("note", ""),
                    )

    def _estimated_services(self, listed: tuple[ServicePrice, ...], regions: list[str]) -> Iterator[ServicePrice]:
        """Yield an estimate of each service for each region without a price."""
        services: dict[str, dict[str, ServicePrice]] = {}
        for price in listed:
            services.setdefault(price.key, {}).setdefault(price.region, price)
        for service in services.values():
            base = min((name for name in service if name in self.ratios), key=self._distance, default=None)
            if base is None or ANYWHERE in service:
                continue
            for region in regions:
                if region not in service and region in self.ratios:
                    factor, how, source = self._from(base, region)
                    yield replace(
                        service[base],
                        region=region,
                        usd=round(service[base].usd * factor, 5),
                        certain=False,
                        source=f"{service[base].source}; ratio: {source}",
                        note="; ".join(filter(None, (how, service[base].note))),
                    )

    def _distance(self, region: str) -> tuple[float, str]:
        """Return the sort key that selects the region whose price is the basis of estimates. The reference region has the ratio 1."""
        return abs(self.ratios[region].value - 1), "" if region == self.reference else region

    def _from(self, base: str, region: str) -> tuple[float, str, str]:
        """Return the factor from the price in one region to the price in another, its description, and its source."""
        ratio = self.ratios[region]
        factor = round(ratio.value / self.ratios[base].value, 4)
        how = f"estimate: price in {base} times {factor:g}, the ratio of {ratio.machine} between the regions"
        return factor, "; ".join(filter(None, (how, ratio.note))), ratio.source
