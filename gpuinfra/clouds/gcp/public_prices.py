"""Reads the SKUs of Compute Engine from the Cloud Billing Catalog: on-demand and spot prices of machine types.

The catalog has prices of cores, memory, GPUs and local disks, but not of machine types. The price of a machine type is the sum of its parts. A part is
named only in the description of its SKU, such as `A2 Instance Core running in Americas`.

https://docs.cloud.google.com/billing/docs/reference/rest/v1/services.skus/list
Descriptions: Cyclenerd/google-cloud-pricing-cost-calculator:build/mapping.csv@dac3128, cloudpilot-ai/karpenter-provider-gcp, Infracost
(compute_instance: `SSD backed Local Storage( in .*)?`); retrieved 2026-11-27.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import Any, TextIO

from gpuinfra.catalog.public import NotUsable, PublicFile, PublicPrice, number
from gpuinfra.catalog.records import CapacityKind, MachineType
from gpuinfra.clouds.gcp.catalog import MACHINES
from gpuinfra.clouds.gcp.regions import REGIONS

FORM = "pages of the Cloud Billing Catalog with the SKUs of Compute Engine (JSON)"
SERVICE = "services/6F81-5844-456A"
"""Compute Engine."""
LOCAL_DISK = "SSD backed Local Storage"
LOCAL_DISK_GIB = 375
"""Local disks are billed in partitions of this size."""
HOURS_PER_MONTH = 730
UNITS = {"h": 1.0, "GiBy.h": 1.0, "GBy.h": 2**30 / 1e9, "GiBy.mo": 1 / HOURS_PER_MONTH}
"""Usage unit of a SKU -> factor to the price of a core, GPU or GiB per hour."""
DESCRIPTION = re.compile(
    r"(?P<spot>Spot Preemptible )?(?P<part>.+?)(?P<attached> attached to Spot Preemptible VMs)?( (running )?in (?P<place>.+))?"
)


@dataclass(frozen=True)
class Parts:
    """How a family of machine types is billed."""

    gpus: tuple[str, ...] = ()
    """Names of the GPU in SKUs, which differ between regions."""
    series: tuple[str, ...] = ()
    """Names of the series in SKUs of cores and memory. The first name with prices in a region applies. Empty if the price of the GPU includes them."""


FAMILIES = {
    ("a2", "A100-40GB"): Parts(("Nvidia Tesla A100 GPU",), ("A2",)),
    ("a2", "A100-80GB"): Parts(("Nvidia Tesla A100 80GB GPU",), ("A2",)),
    ("a3-high", "H100"): Parts(("Nvidia H100 80GB GPU",), ("A3",)),
    ("a3-mega", "H100"): Parts(("Nvidia H100 80GB Mega GPU", "Nvidia H100 80GB Plus GPU"), ("A3Plus", "A3")),
    ("a3-ultra", "H200"): Parts(("H200 141GB GPU",), ("A3Ultra",)),
    ("a4", "B200"): Parts(("A4 Nvidia B200 (1 gpu slice)",)),
    ("g2", "L4"): Parts(("Nvidia L4 GPU",), ("G2",)),
    ("n2", ""): Parts((), ("N2",)),
}
"""Family and GPU of a machine type -> its parts. Families that are not here have no price in the catalog, or their parts are not known."""
WANTED = {
    LOCAL_DISK,
    *(name for parts in FAMILIES.values() for name in parts.gpus),
    *(f"{name} Instance {unit}" for parts in FAMILIES.values() for name in parts.series for unit in ("Core", "Ram")),
}
"""Parts of machine types. Other SKUs are for commitments, reservations, flex-start, custom machine types, and other services."""


@dataclass
class Rates:
    """Prices of parts in USD per hour, and the newest date from which one of them applies."""

    usd: dict[tuple[CapacityKind, str, str], float] = field(default_factory=dict)
    """Kind of capacity, part, region -> price."""
    newest: date = date.min

    def of(self, kind: CapacityKind, names: Iterable[str], region: str) -> float | None:
        """Return the price of the first of the names that the region has, or None."""
        return next((usd for name in names if (usd := self.usd.get((kind, name, region)))), None)


def table(file: TextIO) -> PublicFile | None:
    """The catalog is available only as JSON."""
    return None


def document(value: Any, today: date) -> PublicFile | None:
    """Read one page or a list of pages. Prices that apply after `today` are left out. Returns None if the document has a different format."""
    pages = value if isinstance(value, list) else [value]
    if not pages or not all(isinstance(page, dict) and isinstance(page.get("skus"), list) for page in pages):
        return None
    if pages[-1].get("nextPageToken"):
        what = "lacks further pages of the Cloud Billing Catalog: the last page has a nextPageToken"
        raise NotUsable(what, "download all pages and write them to one JSON list, such as with jq -s")
    rates = Rates()
    for sku in (sku for page in pages for sku in page["skus"] if isinstance(sku, dict)):
        _add(rates, sku, today)
    prices = tuple(price for machine in MACHINES.values() for price in _prices(machine, rates))
    if not prices:
        what = "does not contain the SKUs in USD of all parts of a machine type: cores, memory, GPUs and local disks"
        raise NotUsable(what, f"download all pages of {SERVICE}/skus")
    return PublicFile(f"Cloud Billing Catalog of {rates.newest}: sum of the parts", rates.newest, prices)


def _add(rates: Rates, sku: dict[str, Any], today: date) -> None:
    """Add the price of a SKU for each of its regions. If several SKUs have the same part, the highest price applies."""
    category = sku.get("category")
    usage = category.get("usageType") if isinstance(category, dict) else None
    match = DESCRIPTION.fullmatch(str(sku.get("description", "")))
    if match is None or match["part"] not in WANTED or usage not in ("OnDemand", "Preemptible"):
        return
    # SKUs of local disks on spot VMs have the usage type OnDemand, so the description decides.
    spot = match["spot"] or match["attached"] or usage == "Preemptible"
    kind = CapacityKind.SPOT if spot else CapacityKind.ON_DEMAND
    rate = _current(sku.get("pricingInfo"), today)
    if rate is None:
        return
    usd, since = rate
    rates.newest = max(rates.newest, since)
    for region in _list(sku.get("serviceRegions")):
        key = (kind, match["part"], str(region))
        rates.usd[key] = max(usd, rates.usd.get(key, 0.0))


def _current(entries: Any, today: date) -> tuple[float, date] | None:
    """Return the price per hour that applies on this day, and the date from which it applies.
    None for prices in tiers, in another currency, or by other units."""
    applicable = [(since, one) for one in _list(entries) if (since := _since(one)) and since <= today]
    if not applicable:
        return None
    since, entry = max(applicable, key=lambda one: one[0])
    try:
        expression = entry["pricingExpression"]
        (tier,) = expression["tieredRates"]
        money, factor = tier["unitPrice"], UNITS[expression["usageUnit"]]
        usd = number(int(money.get("units") or 0) + int(money.get("nanos") or 0) / 1e9)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return (usd * factor, since) if usd and money.get("currencyCode") == "USD" else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _since(entry: Any) -> date | None:
    try:
        return date.fromisoformat(str(entry["effectiveTime"])[:10])
    except (KeyError, TypeError, ValueError):
        return None


def _prices(machine: MachineType, rates: Rates) -> Iterator[PublicPrice]:
    parts = FAMILIES.get((machine.family, machine.gpu.key if machine.gpu else ""))
    if parts is None:
        return
    for region in sorted(REGIONS):
        for kind in (CapacityKind.ON_DEMAND, CapacityKind.SPOT):
            usd = [(count, rates.of(kind, names, region)) for count, names in _needed(machine, parts)]
            if all(each is not None for _, each in usd):
                yield PublicPrice(machine.name, kind, region, sum(count * (each or 0.0) for count, each in usd))


def _needed(machine: MachineType, parts: Parts) -> Iterator[tuple[float, tuple[str, ...]]]:
    """Yield the amount of each part of a machine type, and the names of the part in SKUs."""
    if parts.gpus:
        yield machine.gpus, parts.gpus
    if parts.series:
        yield machine.vcpus, tuple(f"{name} Instance Core" for name in parts.series)
        yield machine.memory_gib, tuple(f"{name} Instance Ram" for name in parts.series)
        if machine.local_disk_gb:
            yield round(machine.local_disk_gb * 1e9 / 2**30 / LOCAL_DISK_GIB) * LOCAL_DISK_GIB, (LOCAL_DISK,)
