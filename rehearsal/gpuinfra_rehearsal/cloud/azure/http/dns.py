"""Private DNS zones that the control interface describes, and the records in them.

Requests and responses: the REST reference of Private DNS (Private Zones - Get, Record Sets - Get and Create Or Update), version 2024-06-01, retrieved
2026-11-27. The wording of the errors is not recorded.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.azure.errors import AzureError
from gpuinfra_rehearsal.cloud.core import outage

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.http import Request
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud

_RECORD = "dns-record"
_PATH = re.compile(
    r"(?P<zone>(?P<group>/subscriptions/[^/]+/resourceGroups/[^/]+)/providers/Microsoft\.Network/privateDnsZones/(?P<name>[^/]+))"
    r"(?:/(?P<type>A|TXT)/(?P<record>[^/]+))?",
    re.I,
)
_KINDS = {"A": "aRecords", "TXT": "txtRecords"}


def answer(cloud: Cloud, request: Request, place: str) -> dict[str, Any] | None:
    """Return the response, or None if the request is not about a described zone or its resource group."""
    zones = {id.lower(): one for id, one in cloud.store.all("external").items() if "domain" in one and _PATH.fullmatch(id)}  # fmt: skip
    if request.method == "GET":
        for id, zone_record in zones.items():
            if id.startswith(f"{place.lower()}/providers/"):
                return {
                    "id": place,
                    "name": place.rpartition("/")[2],
                    "location": _region(zone_record),
                    "properties": {},
                }
    at = _PATH.fullmatch(place)
    zone = zones.get(at["zone"].lower()) if at else None
    if at is None or zone is None:
        return None
    if at["record"] is None:
        if request.method != "GET":
            raise AzureError("NotSupported", "A rehearsal supports only reading a zone.", status=501)
        return {"id": place, "name": at["name"], "location": "global", "properties": {"provisioningState": "Succeeded"}}
    if request.method == "PUT":
        if outage.affects(cloud.store, _region(zone)):
            raise AzureError("ServiceUnavailable", f"The request for '{place}' requires {_region(zone)}, which does not respond.", status=503)  # fmt: skip
        return _put(cloud, at, place, json.loads(request.body or b"{}"))
    record_set: dict[str, Any] | None = cloud.store.get(_RECORD, place.lower())
    if request.method != "GET" or record_set is None:
        text = (
            f"The resource record '{at['record']}' does not exist in resource group '{at['group'].rpartition('/')[2]}'"
        )
        raise AzureError("NotFound", text, status=404)
    return record_set


def _put(cloud: Cloud, at: re.Match[str], place: str, body: dict[str, Any]) -> dict[str, Any]:
    """Create or replace a record set. Other record sets do not change."""
    properties, kind = body.get("properties") or {}, at["type"].upper()
    if not isinstance(properties.get("ttl"), int) or not properties.get(_KINDS[kind]):
        raise AzureError("BadRequest", f"The record set '{at['record']}' must have a TTL and records of the type {kind}.")  # fmt: skip
    full = {"fqdn": f"{at['record']}.{at['name']}.", "ttl": properties["ttl"], _KINDS[kind]: properties[_KINDS[kind]], "isAutoRegistered": False}  # fmt: skip
    made = {"id": place, "name": at["record"], "type": f"Microsoft.Network/privateDnsZones/{kind}", "properties": full}
    cloud.store.put(_RECORD, place.lower(), made)
    cloud.store.log("PUT", "azure-private-dns", place, "")
    return made


def _region(zone: dict[str, Any]) -> str:
    """Return the location of the resource group of a zone."""
    return str(zone.get("region") or "centralus")
