"""The subscription, its features, quotas, sizes, image versions and reservations, as preflight reads them.

Responses have the fields of the REST references of Resources (subscriptions 2022-12-01), Features (2021-07-01) and Compute (usages, skus,
versions and capacityReservations 2024-07-01), retrieved 2026-11-23. The usages of file systems have the fields of the examples in
Azure/azure-rest-api-specs (Microsoft.StorageCache 2026-01-01, AscResourceUsages_Get, and Microsoft.NetApp 2025-06-01, Usages_List), retrieved 2026-11-27.
The availability of names: CheckNameAvailabilityResult of the REST references of Storage and Key Vault, retrieved 2026-11-27.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpuinfra.clouds.azure.catalog import MACHINES
from gpuinfra_rehearsal.cloud.azure import stores
from gpuinfra_rehearsal.cloud.azure.behaviors.identity import VAULT
from gpuinfra_rehearsal.cloud.azure.errors import AzureError
from gpuinfra_rehearsal.cloud.core import offers

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud

ZONES = ("1", "2", "3")
_COMPUTE = r"/subscriptions/[^/]+/providers/Microsoft\.Compute"
_SUBSCRIPTION = re.compile(r"/subscriptions/(?P<id>[^/]+)", re.I)
_FEATURE = re.compile(
    r"/subscriptions/[^/]+/providers/Microsoft\.Features/providers/(?P<provider>[^/]+)/features/(?P<name>[^/]+)", re.I
)
_USAGES = re.compile(rf"{_COMPUTE}/locations/(?P<region>[^/]+)/usages", re.I)
_FILE_USAGES = re.compile(r"/subscriptions/[^/]+/providers/Microsoft\.(?P<service>StorageCache|NetApp)/locations/(?P<region>[^/]+)/usages", re.I)  # fmt: skip
_SKUS = re.compile(rf"{_COMPUTE}/skus", re.I)
_VERSION = re.compile(
    rf"{_COMPUTE}/locations/(?P<region>[^/]+)/publishers/[^/]+/artifacttypes/vmimage/offers/[^/]+/skus/(?P<sku>[^/]+)/versions/(?P<name>[^/]+)",
    re.I,
)
_IMAGE = re.compile(
    r"/subscriptions/.+/Microsoft\.Compute/(images/[^/]+|galleries/[^/]+/images/[^/]+/versions/[^/]+)", re.I
)
_RESERVATIONS = re.compile(r"(?P<group>/subscriptions/.+/capacityReservationGroups/[^/]+)/capacityReservations", re.I)
_NAMES = re.compile(r"/subscriptions/[^/]+/providers/Microsoft\.(Storage|KeyVault)/checkNameAvailability", re.I)
_NAMED = {"Microsoft.Storage/storageAccounts": stores.ACCOUNT, "Microsoft.KeyVault/vaults": VAULT}
"""Maps the type in the body of a request about a name to the resources with these names."""


def availability(cloud: Cloud, place: str, body: bytes) -> dict[str, Any] | None:
    """Return whether a name is free, or None if the path belongs to another request. Names of deleted resources are free in a rehearsal."""
    if not _NAMES.fullmatch(place):
        return None
    asked = json.loads(body or b"{}")
    held = cloud.store.list(_NAMED[asked["type"]])
    if all(one.id.rpartition("/")[2].lower() != asked["name"].lower() for one in held):
        return {"nameAvailable": True}
    return {"nameAvailable": False, "reason": "AlreadyExists", "message": f"The name {asked['name']} is already taken."}


def answer(cloud: Cloud, place: str, query: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the response, or None if the path belongs to another request."""
    if match := _SUBSCRIPTION.fullmatch(place):
        return {"id": place, "subscriptionId": match["id"], "state": "Enabled"}
    if match := _FEATURE.fullmatch(place):
        # The stand-in cloud creates scale sets with encryption at host, which requires the registered feature.
        name = f"{match['provider']}/{match['name']}"
        return {
            "id": place,
            "name": name,
            "type": "Microsoft.Features/providers/features",
            "properties": {"state": "Registered"},
        }
    if match := _USAGES.fullmatch(place):
        return {"value": _usages(cloud, match["region"])}
    if match := _FILE_USAGES.fullmatch(place):
        return {"value": [_file_usage(cloud, match["service"].lower(), match["region"])]}
    if _SKUS.fullmatch(place):
        region = re.search(r"location eq '([^']+)'", query.get("$filter", ""))
        return {"value": _skus(region[1] if region else "")}
    if match := _VERSION.fullmatch(place):
        arch = "Arm64" if re.search(r"arm|gb[23]00", match["sku"], re.I) else "x64"
        return {"name": match["name"], "location": match["region"], "properties": {"architecture": arch}}
    if _IMAGE.fullmatch(place) and (image := cloud.external(place)) is not None:
        return _image(place, image)
    if match := _RESERVATIONS.fullmatch(place):
        return {"value": _reservations(cloud, match["group"])}
    return None


def _usages(cloud: Cloud, region: str) -> list[dict[str, Any]]:
    names = dict.fromkeys(["cores", *(quota for machine in MACHINES.values() for quota in machine.quotas.values())])
    return [
        {"name": {"value": name, "localizedValue": name}, "unit": "Count", "currentValue": 0, "limit": offers.limit(cloud, name, region)}
        for name in names
    ]  # fmt: skip


def _file_usage(cloud: Cloud, service: str, region: str) -> dict[str, Any]:
    """Return the number of Managed Lustre file systems, or the TiB of the capacity pools of Azure NetApp Files."""
    if service == "storagecache":
        used = len(cloud.store.where("azure-native:storagecache:AmlFilesystem", location=region))
        name = "AmlFilesystem"
        return {"name": {"value": name, "localizedValue": name}, "unit": "Count", "currentValue": used, "limit": offers.limit(cloud, name, region)}  # fmt: skip
    pools = cloud.store.where("azure-native:netapp:CapacityPool", location=region)
    name, used = "totalTibsPerSubscription", sum(int(one.inputs["size"]) for one in pools) // 2**40
    return {
        "name": {"value": name, "localizedValue": name},
        "properties": {"currentValue": used, "limit": offers.limit(cloud, name, region), "unit": "Count"},
    }


def _skus(region: str) -> list[dict[str, Any]]:
    skus = []
    for name in MACHINES:
        sold = offers.zones("azure", name, region, ZONES)
        if sold is not None:
            info = [{"location": region, "zones": list(sold)}]
            skus.append({"resourceType": "virtualMachines", "name": name, "locations": [region], "locationInfo": info, "restrictions": []})  # fmt: skip
    return skus


def _image(place: str, image: Mapping[str, Any]) -> dict[str, Any]:
    """Return an existing image that the control interface describes with `regions`."""
    if not image.get("regions"):
        raise AzureError("NotSupported", f"the rehearsal does not know the regions of {place}", status=501)
    targets = [{"name": region} for region in image["regions"]]
    return {
        "id": place,
        "location": image["regions"][0],
        "properties": {"publishingProfile": {"targetRegions": targets}},
    }


def _reservations(cloud: Cloud, group: str) -> list[dict[str, Any]]:
    """Return the reservation of a group that the control interface describes with `machine`, `count` and `zone_id`."""
    reservation = cloud.store.get("external", group) or {}
    if "machine" not in reservation:
        raise AzureError("NotSupported", f"the rehearsal does not know the reservations of {group}", status=501)
    return [
        {
            "name": "reservation",
            "sku": {"name": reservation["machine"], "capacity": int(reservation.get("count") or 0)},
            "properties": {"provisioningState": "Succeeded"},
            **({"zones": [reservation["zone_id"]]} if reservation.get("zone_id") else {}),
        }
    ]
