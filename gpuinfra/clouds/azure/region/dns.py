"""The DNS names of a cluster in an Azure private DNS zone.

The records contain private addresses, so a public zone would publish them. Requests and responses: the REST reference of Private DNS (Private Zones - Get,
Record Sets - Get and Create Or Update), version 2024-06-01, and the models in azure-mgmt-privatedns. Azure has no request for several record sets, so the
records change one after the other. A repeated request has no effect.

Private DNS zones are global (https://learn.microsoft.com/azure/reliability/reliability-dns-private),
but requests that change a resource are routed through the location of
its resource group, and cannot succeed while this region is unavailable
(https://learn.microsoft.com/azure/azure-resource-manager/management/overview, page dated 2024-05-31).
Both retrieved 2026-11-27.

`dns_name` of a Managed Lustre file system and of an Azure NetApp Files volume is an address. Clients mount an Azure Files share by the name of its account.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import AddressValueError, IPv4Address
from typing import Any

from gpuinfra.clouds.azure.region.failover import TIMEOUT_S, asked, asked_or
from gpuinfra.clouds.azure.region.readiness import last
from gpuinfra.clouds.azure.rest import Rest
from gpuinfra.clouds.region.dns import TTL_S, Key, Mounted, NameRecord, ZoneFormat, by_address

SERVICE = "Azure Resource Manager"
ZONE = ZoneFormat(
    pattern=r"(?i)/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Network/privateDnsZones/[^/]+",
    what="the resource ID of an Azure private DNS zone such as "
    "/subscriptions/ID/resourceGroups/dns/providers/Microsoft.Network/privateDnsZones/example.internal",
)
NAMES, GROUPS = "2024-06-01", "2021-04-01"
"""API versions."""


def control_plane(region: str) -> str:
    """Return the service that changes records."""
    return SERVICE


def connect(region: str, config: Mapping[str, object]) -> AzureDns:
    """Use the credentials from the environment."""
    return AzureDns(Rest(timeout_s=TIMEOUT_S))


class AzureDns:
    """The requests for one stack. `gpuinfra.clouds.region.dns.Dns` describes the methods."""

    control_plane = SERVICE

    def __init__(self, rest: Rest) -> None:
        self._rest = rest

    def zone_name(self, zone: str) -> str | None:
        answer = asked_or(None, lambda: self._rest.arm(zone, NAMES))
        return None if answer is None else str(answer["name"])

    def zone_region(self, zone: str) -> str | None:
        group = zone[: zone.lower().index("/providers/")]
        return str(asked(lambda: self._rest.arm(group, GROUPS))["location"])

    def values(self, zone: str, keys: Iterable[Key]) -> dict[Key, tuple[str, ...]]:
        values_of = dict[Key, tuple[str, ...]]()
        for name, type_ in keys:
            path = _path(zone, name, type_)
            record_set = asked_or(None, lambda path=path: self._rest.arm(path, NAMES))
            if record_set is not None:
                values_of[name, type_] = _values(record_set.get("properties") or {})
        return values_of

    def point(self, zone: str, records: Sequence[NameRecord]) -> None:
        for record in records:
            path, body = _path(zone, record.name, record.type), {"properties": {"ttl": TTL_S, **_records(record)}}
            asked(lambda path=path, body=body: self._rest.arm_change("PUT", path, NAMES, body))

    def mounted(self, entry: Mapping[str, Any], resources: Sequence[Mapping[str, Any]]) -> Mounted | None:
        try:
            IPv4Address(str(entry["dns_name"]))
        except AddressValueError:
            return Mounted(addresses=(), source=f"{entry['dns_name']}:{entry['mount_name']}")
        return by_address(entry)


def _path(zone: str, name: str, type_: str) -> str:
    """Return the ID of a record set. Its name is relative to the name of the zone."""
    return f"{zone}/{type_}/{name.removesuffix(f'.{last(zone)}')}"


def _records(name_record: NameRecord) -> dict[str, Any]:
    if name_record.type == "A":
        return {"aRecords": [{"ipv4Address": value} for value in name_record.values]}
    return {"txtRecords": [{"value": [value.strip('"')]} for value in name_record.values]}


def _values(properties: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the sorted values of a record set. A text record can have several parts."""
    addresses = [str(one["ipv4Address"]) for one in properties.get("aRecords") or ()]
    texts = [f'"{"".join(one["value"])}"' for one in properties.get("txtRecords") or ()]
    return tuple(sorted(addresses + texts))
