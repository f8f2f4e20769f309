"""A person's own price file: what they really pay wins over any list.

read: 2026-11-01
source: our agreement of November
machines:
  p4d.24xlarge: {on_demand: 18.50, reserved: 12.10}
services:
  "lustre_gib_month:250": 0.19
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path

from gpuinfra.catalog.records import CapacityKind, Price, ServicePrice
from gpuinfra.errors import SpecError
from gpuinfra.findings import Finding, Level
from gpuinfra.spec.document import read
from gpuinfra.spec.messages import nearest
from gpuinfra.spec.shown import shown


@dataclass(frozen=True, kw_only=True)
class PriceFile:
    """Prices that a person wrote down."""

    read: date
    source: str
    machines: dict[str, dict[CapacityKind, float]]
    services: dict[str, float]

    def node(self, machine: str, kind: CapacityKind, region: str) -> Price | None:
        """Price of one node for one hour, None where the file has none."""
        usd = self.machines.get(machine, {}).get(kind)
        if usd is None:
            return None
        return Price(kind=kind, region=region, usd_per_hour=usd, read=self.read, source=self.source, note="your price")

    def service(self, key: str, region: str) -> ServicePrice | None:
        """Price of a service, None where the file has none."""
        usd = self.services.get(key)
        if usd is None:
            return None
        return ServicePrice(key=key, unit="", region=region, usd=usd, read=self.read, source=self.source)


def load(path: Path) -> PriceFile:
    """Read a price file. Raises `SpecError` with every mistake in it."""
    document = read(path)
    found: list[Finding] = []

    def refuse(where: str, message: str, hint: str) -> None:
        found.append(
            Finding(level=Level.ERROR, path=where, message=message, hint=hint, rule="price_file", file=document.file)
        )

    value = document.value if isinstance(document.value, dict) else {}
    known = ["read", "source", "machines", "services"]
    for key in value:
        if key not in known:
            near = nearest(str(key), known)
            hint = f"did you mean {near}?" if near else "take it out"
            refuse(shown(key), f"is not a field here; fields are {', '.join(known)}", hint)
    try:
        read_on = date.fromisoformat(str(value.get("read")))
    except ValueError:
        refuse(
            "read", f"is {shown(value.get('read'))}; allowed is a date such as 2026-11-01", "say when the prices held"
        )
        read_on = date.min
    machines: dict[str, dict[CapacityKind, float]] = {}
    kinds = [kind.value for kind in CapacityKind]
    for name, entry in _mapping(value.get("machines"), "machines", refuse).items():
        machines[name] = {}
        for kind, usd in _mapping(entry, f"machines.{name}", refuse).items():
            if kind not in kinds:
                near = nearest(kind, kinds)
                refuse(
                    f"machines.{name}.{kind}",
                    f"is no kind of capacity; allowed are {', '.join(kinds)}",
                    f"did you mean {near}?" if near else "take one of those",
                )
            elif _is_price(usd):
                machines[name][CapacityKind(kind)] = float(usd)  # type: ignore[arg-type]
            else:
                refuse(
                    f"machines.{name}.{kind}",
                    f"is {shown(usd)}; allowed is a number above 0",
                    "USD for one node and hour",
                )
    services: dict[str, float] = {}
    for key, usd in _mapping(value.get("services"), "services", refuse).items():
        if _is_price(usd):
            services[key] = float(usd)  # type: ignore[arg-type]
        else:
            refuse(f"services.{key}", f"is {shown(usd)}; allowed is a number above 0", "USD for one unit")
    if found:
        raise SpecError(found)
    return PriceFile(
        read=read_on, source=str(value.get("source") or document.file), machines=machines, services=services
    )


def _mapping(value: object, where: str, refuse) -> dict[str, object]:  # type: ignore[no-untyped-def]
    if value is None:
        return {}
    if isinstance(value, dict):
        return {str(key): item for key, item in value.items()}
    refuse(where, f"is {shown(value)}; allowed is a mapping", "write name: value below it")
    return {}


def _is_price(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e7
