"""Zones of AWS Regions in the stand-in account.

Zone IDs are the same in all accounts, but zone names differ. Here the names are shifted by one letter, so that a
program that assumes `us-east-1a` is `use1-az1` fails in a rehearsal.
"""

from __future__ import annotations

from gpuinfra.clouds.aws.regions import PREFIXES

_ZONES = {"us-east-1": 6, "us-west-2": 4, "ap-northeast-1": 4, "ap-northeast-2": 4}
"""Regions with more than three zones.
https://docs.aws.amazon.com/global-infrastructure/latest/regions/aws-availability-zones.html, retrieved 2026-11-21."""

CONTROL_REGION = "us-east-1"
"""Region of the control planes of services that are not regional, such as IAM. Changes of bucket settings depend on it too
(https://docs.aws.amazon.com/whitepapers/latest/aws-fault-isolation-boundaries/global-services.html, retrieved 2026-11-22)."""


def zones(region: str) -> list[tuple[str, str]]:
    """Return (name, ID) of each zone: `("us-east-1b", "use1-az1")`."""
    count = _ZONES.get(region, 3)
    prefix = PREFIXES.get(region, region.replace("-", ""))
    pairs = [(f"{region}{'abcdef'[number % count]}", f"{prefix}-az{number}") for number in range(1, count + 1)]
    return sorted(pairs)


def zone_name(region: str, zone_id: str) -> str | None:
    return next((name for name, id in zones(region) if id == zone_id), None)


def zone_id(region: str, name: str) -> str | None:
    return next((id for own, id in zones(region) if own == name), None)


def offered(machine: str, region: str) -> list[tuple[str, str]]:
    """Return (name, ID) of the zones that offer a machine type. A type without a catalog record is offered in all
    zones."""
    from gpuinfra.clouds.aws.catalog import MACHINES

    record = MACHINES.get(machine)
    if record is None or not record.zones:
        return zones(region)
    sold = record.zones.get(region, ())
    return [(name, id) for name, id in zones(region) if id in sold]
