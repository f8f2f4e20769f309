"""Which region an address, a bucket or a resource requires. Global services do not require a region."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpuinfra.clouds.gcp.regions import REGIONS, region_of
from gpuinfra_rehearsal.cloud.core import outage
from gpuinfra_rehearsal.cloud.gcp.access import BUCKET
from gpuinfra_rehearsal.cloud.gcp.errors import GoogleError

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.store import Store


def region(location: object) -> str:
    """Return the region of a zone, a region or a bucket location. Empty for a global location."""
    name = str(location or "").rpartition("/")[2].lower()
    return name if name in REGIONS else region_of(name) or ""


def of_bucket(store: Store, bucket: str) -> str:
    """Return the region of a bucket."""
    made = store.find(BUCKET, bucket)
    return region(made.plain.get("location")) if made else ""


def of_resource(store: Store, inputs: Mapping[str, Any]) -> str:
    """Return the region that a change of a resource requires. The settings and objects of a bucket require the region of the bucket."""
    for name in ("zone", "region", "location"):
        if place := region(inputs.get(name)):
            return place
    return of_bucket(store, str(inputs["bucket"]).removeprefix("b/")) if inputs.get("bucket") else ""


def refuse(store: Store, action: str, what: str) -> None:
    """Raise an error if a region has an outage. `what` is the request."""
    if action and outage.affects(store, action):
        raise GoogleError("backendError", f"{what} requires {action}, which does not respond", status=503)
