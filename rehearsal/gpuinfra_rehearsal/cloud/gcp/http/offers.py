"""Quotas, machine types, reservations and images, as preflight reads them.

Responses have the fields in the Compute Engine discovery documents (regions, machineTypes, reservations, images) and in the Cloud Quotas API
reference (https://docs.cloud.google.com/docs/quotas/reference/rest/v1/projects.locations.services.quotaInfos), retrieved 2026-11-23.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from gpuinfra.clouds.gcp.catalog import MACHINES
from gpuinfra.clouds.gcp.regions import REGIONS
from gpuinfra_rehearsal.cloud.core import offers
from gpuinfra_rehearsal.cloud.core.http import Request, Response, json_response
from gpuinfra_rehearsal.cloud.gcp import operator, tokens
from gpuinfra_rehearsal.cloud.gcp.errors import GoogleError
from gpuinfra_rehearsal.cloud.gcp.ids import PROJECT

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud

_REGION = re.compile(r"v1/projects/[^/]+/regions/(?P<region>[^/]+)")
_TYPE = re.compile(r"v1/projects/[^/]+/zones/(?P<zone>[^/]+)/machineTypes/(?P<machine>[^/]+)")
_TYPES = re.compile(r"v1/projects/[^/]+/aggregated/machineTypes")
_RESERVATION = re.compile(r"v1/projects/[^/]+/zones/(?P<zone>[^/]+)/reservations/(?P<name>[^/]+)")
_IMAGE = re.compile(r"v1/projects/(?P<project>[^/]+)/global/images/(?P<family>family/)?(?P<name>[^/]+)")
_QUOTA = re.compile(r"v1/projects/[^/]+/locations/global/services/(?P<service>(compute|file|lustre)\.googleapis\.com)/quotaInfos/(?P<quota>[^/]+)")  # fmt: skip


def serves(service: str, rest: str) -> bool:
    """Return whether a request is one of these read requests."""
    patterns = (_QUOTA,) if service == "cloudquotas" else (_REGION, _TYPE, _TYPES, _RESERVATION, _IMAGE) if service == "compute" else ()  # fmt: skip
    return any(pattern.fullmatch(unquote(rest)) for pattern in patterns)


def answer(cloud: Cloud, request: Request, rest: str) -> Response:
    """Handle a read request. Only the operator can send it."""
    place = unquote(rest)
    who = tokens.principal(cloud.store, request.headers.get("authorization", ""))
    if not who.is_operator or request.method != "GET":
        raise GoogleError("forbidden", f"Permission denied on '{place[:200]}' (or it may not exist)", status=403)
    if match := _QUOTA.fullmatch(place):
        return _checked(cloud, "cloudquotas.quotas.get", _infos(cloud, match["service"], match["quota"]))
    if match := _REGION.fullmatch(place):
        return _checked(cloud, "compute.regions.get", {"name": match["region"], "quotas": _metrics(cloud, match["region"])})  # fmt: skip
    if match := _TYPE.fullmatch(place):
        return _checked(cloud, "compute.machineTypes.get", _machine(match["machine"], match["zone"], place))
    if _TYPES.fullmatch(place):
        named = re.search(r"name=(\S+)", request.query.get("filter", ""))
        return _checked(cloud, "compute.machineTypes.list", {"items": _zones(named[1] if named else "")})
    if match := _RESERVATION.fullmatch(place):
        return _checked(cloud, "compute.reservations.get", _reservation(cloud, match["name"], place))
    match = _IMAGE.fullmatch(place)
    assert match is not None
    # A family has one image, whose name starts with the name of the family.
    name = f"{match['name']}-v20260101" if match["family"] else match["name"]
    permission = "compute.images.getFromFamily" if match["family"] else "compute.images.get"
    arch = "ARM64" if "arm64" in name else "X86_64"
    external = cloud.store.get("external", place.removeprefix("v1/")) or {}
    stored = {"storageLocations": external.get("regions") or ["us"]}
    return _checked(
        cloud, permission, {"name": name, "status": "READY", "architecture": arch, "diskSizeGb": "10", **stored}
    )


def _checked(cloud: Cloud, permission: str, content: dict[str, Any]) -> Response:
    cloud.operator.check(operator, operator.storage(permission, f"projects/{PROJECT}"))
    return json_response(content)


def _infos(cloud: Cloud, service: str, quota: str) -> dict[str, Any]:
    """Return the limit of each region and family, or of each place of a quota of file systems: Filestore counts by region, and Managed Lustre by zone."""
    if service != "compute.googleapis.com":
        kind = "zone" if service.startswith("lustre") else "region"
        places = (
            REGIONS
            if kind == "region"
            else sorted({zone for one in MACHINES.values() for zones in one.zones.values() for zone in zones})
        )
        return {
            "quotaId": quota,
            "service": service,
            "dimensionsInfos": [
                {"dimensions": {kind: place}, "details": {"value": str(offers.limit(cloud, quota, place))}, "applicableLocations": [place]}
                for place in places
            ],
        }  # fmt: skip
    names = dict.fromkeys(
        name for machine in MACHINES.values() for name in machine.quotas.values() if name.startswith(f"{quota} ")
    )
    entries = []
    for name in names:
        key, _, value = name.partition(" ")[2].partition("=")
        for region in REGIONS:
            details = {"value": str(offers.limit(cloud, name, region))}
            entries.append({"dimensions": {"region": region, key: value}, "details": details, "applicableLocations": [region]})  # fmt: skip
    return {"quotaId": quota, "service": service, "dimensionsInfos": entries}


def _metrics(cloud: Cloud, region: str) -> list[dict[str, Any]]:
    names = dict.fromkeys(name for machine in MACHINES.values() for name in machine.quotas.values() if " " not in name)
    return [{"metric": name, "limit": offers.limit(cloud, name, region), "usage": 0} for name in names]


def _machine(machine: str, zone: str, place: str) -> dict[str, Any]:
    if zone not in (offers.zones("gcp", machine, zone.rpartition("-")[0], (zone,)) or ()):
        raise GoogleError("notFound", f"The resource '{place.removeprefix('v1/')}' was not found", status=404)
    return {"name": machine, "zone": zone}


def _zones(machine: str) -> dict[str, Any]:
    record = MACHINES.get(machine)
    sold = [zone for zones in record.zones.values() for zone in zones] if record else []
    return {f"zones/{zone}": {"machineTypes": [{"name": machine, "zone": zone}]} for zone in sold}


def _reservation(cloud: Cloud, name: str, place: str) -> dict[str, Any]:
    """Return a reservation that the control interface describes with `machine`, `count` and, if it is not ready, `state`."""
    stored = cloud.store.get("external", name) or {}
    if "machine" not in stored:
        raise GoogleError("unsupported", f"the rehearsal does not know the machine type of {place}", status=501)
    used = sum(name in text for one in cloud.fleet.running() for text in one["reservations"])
    return {
        "name": name, "status": str(stored.get("state", "READY")), "specificReservationRequired": True,
        "specificReservation": {
            "count": str(stored.get("count") or 0), "inUseCount": str(used), "instanceProperties": {"machineType": stored["machine"]},
        },
    }  # fmt: skip
