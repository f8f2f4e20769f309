"""Reads responses from the Azure Retail Prices API: on-demand and spot prices of virtual machines with Linux.

https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any, TextIO

from gpuinfra.catalog.public import PublicFile, PublicPrice, number
from gpuinfra.catalog.records import CapacityKind
from gpuinfra.clouds.azure.catalog import MACHINES
from gpuinfra.clouds.azure.regions import REGIONS

FORM = "responses from the Azure Retail Prices API (JSON)"


def table(file: TextIO) -> PublicFile | None:
    """The API returns only JSON."""
    return None


def document(value: Any, today: date) -> PublicFile | None:
    """Read one page or a list of pages. A page has no date, so its prices get the current date. Returns None if the document has a different format."""
    pages = value if isinstance(value, list) else [value]
    if not pages or not all(isinstance(page, dict) and isinstance(page.get("Items"), list) for page in pages):
        return None
    items = [item for page in pages for item in page["Items"] if isinstance(item, dict)]
    return PublicFile(f"Azure Retail Prices API on {today}", today, tuple(_prices(items)))


def _prices(items: list[dict[str, Any]]) -> Iterator[PublicPrice]:
    """Yield the prices in order of their start dates, so that a later price of a size replaces an earlier price."""
    for item in sorted(items, key=lambda one: str(one.get("effectiveStartDate", ""))):
        name, usd = str(item.get("skuName", "")), number(item.get("retailPrice"))
        if (
            usd
            and item.get("armSkuName") in MACHINES
            and item.get("armRegionName") in REGIONS
            and item.get("type") == "Consumption"
            and item.get("currencyCode") == "USD"
            and item.get("unitOfMeasure") == "1 Hour"
            and item.get("isPrimaryMeterRegion", True)
            and "Windows" not in str(item.get("productName", ""))
            and "Low Priority" not in name
        ):
            kind = CapacityKind.SPOT if name.endswith(" Spot") else CapacityKind.ON_DEMAND
            yield PublicPrice(str(item["armSkuName"]), kind, str(item["armRegionName"]), usd)
