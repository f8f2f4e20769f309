"""Reads AmazonEC2 offer files: the on-demand prices of Linux instances with shared tenancy.

https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/reading-service-price-list-file.html
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import date
from typing import Any, TextIO

from gpuinfra.catalog.public import NotUsable, PublicFile, PublicPrice, day, number
from gpuinfra.catalog.records import CapacityKind
from gpuinfra.clouds.aws.catalog import MACHINES
from gpuinfra.clouds.aws.regions import PREFIXES

FORM = "an AmazonEC2 offer file (CSV or JSON)"
OFFER = "AmazonEC2"
WANTED = {"tenancy": "Shared", "operatingSystem": "Linux", "preInstalledSw": "NA", "capacitystatus": "Used"}
"""Attributes of the prices that are used. Other prices are for Windows, dedicated hosts and unused reservations."""
COLUMNS = {
    "tenancy": "Tenancy",
    "operatingSystem": "Operating System",
    "preInstalledSw": "Pre Installed S/W",
    "capacitystatus": "CapacityStatus",
}
"""Maps a JSON attribute to its CSV column."""


def table(file: TextIO) -> PublicFile | None:
    """Read a CSV file: five lines with a name and a value, the column names, and the prices. Returns None if the file has a different format."""
    head = dict(row[:2] for row in (next(csv.reader([file.readline()]), []) for _ in range(5)) if len(row) >= 2)
    if "FormatVersion" not in head:
        return None
    if head.get("OfferCode") != OFFER:
        what = f"is the offer file of {head.get('OfferCode') or 'an unknown service'}; allowed: {OFFER}"
        raise NotUsable(what, f"download the file of {OFFER} for a Region")
    rows = csv.DictReader(file)
    missing = {"TermType", "Unit", "PricePerUnit", "Currency", "Instance Type", "Region Code", *COLUMNS.values()}
    missing -= set(rows.fieldnames or ())
    if missing:
        raise NotUsable(f"has no column {sorted(missing)[0]}", "download the file again")
    prices: list[PublicPrice] = []
    for row in rows:
        if row["TermType"] == "OnDemand" and row["Instance Type"] in MACHINES:
            facts = {name: row[column] for name, column in COLUMNS.items()}
            dimension = {"unit": row["Unit"], "pricePerUnit": {row["Currency"]: row["PricePerUnit"]}}
            prices += _price(row["Instance Type"], row["Region Code"], facts, dimension)
    return _file(head.get("Publication Date"), prices)


def document(value: Any, today: date) -> PublicFile | None:
    """Read a JSON file: `products` has attributes by SKU, and `terms` has prices by SKU. Returns None if the document has a different format."""
    if not isinstance(value, dict) or "offerCode" not in value:
        return None
    if value["offerCode"] != OFFER:
        what = f"is the offer file of {value['offerCode']}; allowed: {OFFER}"
        raise NotUsable(what, f"download the file of {OFFER} for a Region")
    return _file(value.get("publicationDate"), list(_offer(value)))


def _file(published: object, prices: list[PublicPrice]) -> PublicFile:
    read = day(published)
    return PublicFile(f"AWS price list for {OFFER} of {read}", read, tuple(prices))


def _offer(value: dict[str, Any]) -> Iterator[PublicPrice]:
    try:
        on_demand = value["terms"]["OnDemand"]
        for sku, product in value["products"].items():
            facts = product["attributes"]
            if facts.get("instanceType") in MACHINES:
                for term in on_demand.get(sku, {}).values():
                    for dimension in term["priceDimensions"].values():
                        yield from _price(facts["instanceType"], facts.get("regionCode"), facts, dimension)
    except (KeyError, AttributeError, TypeError):
        raise NotUsable("is not a complete offer file", "download the file again") from None


def _price(machine: str, region: str | None, facts: dict[str, Any], dimension: dict[str, Any]) -> Iterator[PublicPrice]:
    usd = number(dimension.get("pricePerUnit", {}).get("USD"))
    wanted = all(facts.get(name) == expected for name, expected in WANTED.items())
    if usd and wanted and region in PREFIXES and dimension.get("unit") == "Hrs":
        yield PublicPrice(machine, CapacityKind.ON_DEMAND, str(region), usd)
