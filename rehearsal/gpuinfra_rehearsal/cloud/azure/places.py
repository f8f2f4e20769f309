"""The regions of resources, for the outage of a region.

A change of a resource is sent through the region of its resource group and then to the region of the resource, so it requires both.
A read requires only the region of the resource
(https://learn.microsoft.com/azure/azure-resource-manager/management/overview#resource-group-location-alignment, page dated 2024-05-31:
"all control plane operations are routed through
the resource group's location"; if the region of the group is unavailable, its resources keep working but cannot be updated).
Azure Resource Manager, Microsoft Entra ID and role assignments do not
belong to a region. Sources retrieved 2026-11-26. The errors during an outage are not recorded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.azure import ids
from gpuinfra_rehearsal.cloud.azure.errors import AzureError
from gpuinfra_rehearsal.cloud.core import outage

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.store import Store

RESOURCE_GROUP = "azure-native:resources:ResourceGroup"
_GROUP = re.compile(r"/subscriptions/[^/]+/resourceGroups/[^/]+", re.I)
_LOCATION = re.compile(r"/locations/([^/]+)", re.I)
_GLOBAL = re.compile(r"/providers/Microsoft\.Authorization/", re.I)
ANYWHERE = ("", "global")


def regions(store: Store, token: str, id: str, inputs: Mapping[str, Any], *, change: bool) -> tuple[str, ...]:
    """Return the regions that a request for a resource requires. The ID of a new resource is built from its inputs."""
    own = id or ids.new_id(token, "new", inputs)
    location = str(inputs.get("location") or "") if change and not id else ""
    return of_id(store, own, location, change=change)


def of_id(store: Store, id: str, location: str = "", *, change: bool = False) -> tuple[str, ...]:
    """Return the regions that a request for an ID requires. `location` is the region of a new resource."""
    if _GLOBAL.search(id):
        return ()
    if match := _LOCATION.search(id):
        return (_short(match[1]),)
    held = {one.id.lower(): str(one.plain.get("location") or "") for one in store.list()}
    place, own = id.lower(), location
    while not own and place:
        own, place = held.get(place, ""), place.rpartition("/")[0]
    group = _GROUP.match(id)
    of_group = held.get(group[0].lower(), "") if group and change else ""
    return tuple(dict.fromkeys(_short(one) for one in (own, of_group) if one not in ANYWHERE))


def refuse(store: Store, place: str, *, change: bool) -> None:
    """Raise AzureError if a request to Azure Resource Manager requires a region with an outage."""
    for region in of_id(store, place, change=change):
        if outage.affects(store, region):
            raise AzureError(
                "ServiceUnavailable",
                f"The request for '{place.rpartition('/providers/')[2]}' requires {region}, which does not respond.",
                status=503,
            )


def _short(location: str) -> str:
    """Return the name of a region without spaces, as in declarations."""
    return location.replace(" ", "").lower()
