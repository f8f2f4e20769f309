"""A price file with your own prices, which override the prices in the catalog.

read: 2026-11-01
source: our agreement of November
machines:
  p4d.24xlarge: {on_demand: 18.50, reserved: 12.10}
services:
  "lustre_gib_month:250": 0.19

A price applies to every region, or has a value for each region: `{us-east-1: 18.50, us-west-2: 19.20}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from gpuinfra.base.errors import SpecError
from gpuinfra.base.findings import Finding, error
from gpuinfra.catalog.records import CapacityKind, Price, ServicePrice
from gpuinfra.spec.document import read
from gpuinfra.spec.messages import nearest
from gpuinfra.spec.shown import shown

ANYWHERE = "*"
"""Key of a price that applies to every region."""


@dataclass(frozen=True, kw_only=True)
class PriceFile:
    """The content of a price file."""

    read: date
    source: str
    machines: dict[str, dict[CapacityKind, dict[str, float]]]
    """Machine type -> kind of capacity -> region -> USD per hour."""
    services: dict[str, dict[str, float]]
    """Service -> region -> USD per unit."""
    file: str = ""
    """Path of the file, for findings."""

    def unknown_machines(self, machines: Iterable[str]) -> Iterator[Finding]:
        """Yield an error for each machine type that is not one of these. Its prices have no effect, for example because its name is misspelled."""
        names = list(machines)
        for name in self.machines:
            if name not in names:
                near = nearest(name, names)
                what = (
                    "is neither in the catalog of a cloud nor in `machines` of the stack, so its prices have no effect"
                )
                hint = f"did you mean {near}?" if near else "remove it, or use a file of its own for other stacks"
                yield replace(error(f"machines.{shown(name)}", what, hint, rule="price_file"), file=self.file)

    def node(self, machine: str, kind: CapacityKind, region: str) -> Price | None:
        """Return the hourly price of a node, or None if the file does not contain a price."""
        usd = _in(self.machines.get(machine, {}).get(kind, {}), region)
        if usd is None:
            return None
        return Price(kind=kind, region=region, usd_per_hour=usd, read=self.read, source=self.source, note="your price")

    def service(self, key: str, region: str) -> ServicePrice | None:
        """Return the price of a service, or None if the file does not contain a price."""
        usd = _in(self.services.get(key, {}), region)
        if usd is None:
            return None
        return ServicePrice(key=key, unit="", region=region, usd=usd, read=self.read, source=self.source)


def _in(regions: dict[str, float], region: str) -> float | None:
    return regions.get(region, regions.get(ANYWHERE))


def load(path: Path) -> PriceFile:
    """Read a price file. Raises `SpecError` with all errors in the file."""
    document = read(path)
    findings: list[Finding] = []

    def reject(where: str, message: str, hint: str) -> None:
        findings.append(replace(error(where, message, hint, rule="price_file"), file=document.file))

    value = document.value if isinstance(document.value, dict) else {}
    fields = ["read", "source", "machines", "services"]
    for key in value:
        if key not in fields:
            near = nearest(str(key), fields)
            hint = f"did you mean {near}?" if near else "remove it"
            reject(shown(key), f"is not a known field; allowed: {', '.join(fields)}", hint)
    try:
        read_on = date.fromisoformat(str(value.get("read")))
    except ValueError:
        what = f"is {shown(value.get('read'))}; allowed: a date such as 2026-11-01"
        reject("read", what, "set the date on which you read the prices")
        read_on = date.min
    machines: dict[str, dict[CapacityKind, dict[str, float]]] = {}
    kinds = [kind.value for kind in CapacityKind]
    for name, entry in _mapping(value.get("machines"), "machines", reject).items():
        machines[name] = {}
        for kind, usd in _mapping(entry, f"machines.{name}", reject).items():
            if kind not in kinds:
                near = nearest(kind, kinds)
                reject(
                    f"machines.{name}.{kind}",
                    f"is not a kind of capacity; allowed: {', '.join(kinds)}",
                    f"did you mean {near}?" if near else "use one of these kinds",
                )
            else:
                hint = "set the price in USD per node per hour"
                machines[name][CapacityKind(kind)] = _regions(usd, f"machines.{name}.{kind}", hint, reject)
    services = {
        key: _regions(usd, f"services.{key}", "set the price in USD per unit", reject)
        for key, usd in _mapping(value.get("services"), "services", reject).items()
    }
    if findings:
        raise SpecError(findings)
    return PriceFile(
        read=read_on,
        source=str(value.get("source") or document.file),
        machines=machines,
        services=services,
        file=document.file,
    )


def _mapping(value: object, where: str, reject) -> dict[str, object]:  # type: ignore[no-untyped-def]
    if value is None:
        return {}
    if isinstance(value, dict):
        return {str(key): item for key, item in value.items()}
    reject(where, f"is {shown(value)}; allowed: a mapping", "write entries in the form name: value below this key")
    return {}


def _regions(value: object, where: str, hint: str, reject) -> dict[str, float]:  # type: ignore[no-untyped-def]
    """Return the price of each region. A single number applies to every region."""
    usd_of: dict[str, float] = {}
    by_region = isinstance(value, dict) and bool(value)
    for region, usd in value.items() if isinstance(value, dict) and value else [(ANYWHERE, value)]:
        if _is_price(usd):
            usd_of[str(region)] = float(usd)  # type: ignore[arg-type]
        else:
            allowed = "a number above 0" if by_region else "a number above 0, or one such number for each region"
            reject(f"{where}.{region}" if by_region else where, f"is {shown(usd)}; allowed: {allowed}", hint)
    return usd_of


def _is_price(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e7
