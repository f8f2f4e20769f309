"""Quotas and offers of the stand-in account, which `gpuinfra ready` and `gpuinfra doctor` read.

An account's quotas are unknown, so a quota covers every request until the control interface sets it:
POST `external` `{"id": "quota:L-417A185B:us-west-2", "count": 0}`. Machine types are offered where the catalog lists them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuinfra.plan.profile import profile_of

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud

LIMIT = 1_000_000
"""The limit of a quota that was not set."""


def limit(cloud: Cloud, quota: str, region: str) -> int:
    """Return the limit of a quota in a region."""
    return int((cloud.store.get("external", f"quota:{quota}:{region}") or {}).get("count", LIMIT))


def zones(cloud: str, machine: str, region: str, every: Sequence[str]) -> Sequence[str] | None:
    """Return the zones of a region that offer a machine type, or None if the region does not offer it. `every` lists all zones of the region.

    A machine type without a record or with unknown zones is offered in every zone.
    """
    record = profile_of(cloud).machines.get(machine)
    if record is None or not record.zones:
        return every
    zones_of_machine: Sequence[str] | None = record.zones.get(region)
    return every if zones_of_machine == () else zones_of_machine


def available(cloud: Cloud, image: str, region: str) -> bool:
    """Return whether an image exists in a region. The control interface can restrict an existing image to `regions`."""
    described = cloud.external(image)
    return described is not None and region in described.get("regions", [region])
