"""The DNS names of a cluster in a Cloud DNS managed zone.

Requests and responses: Google's discovery document of Cloud DNS (managedZones.get, resourceRecordSets.list, changes.create), revision 20261009.
A change deletes and adds record sets atomically, and a deletion must match the existing record set exactly (schema `Change` in the document).
Managed zones are global resources. `dns_name` of each file system is an address.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuinfra.clouds.gcp.api import DNS, Api
from gpuinfra.clouds.region.dns import TTL_S, Key, Mounted, NameRecord, ZoneFormat, by_address

SERVICE = "Cloud DNS"
ZONE = ZoneFormat(
    pattern=r"projects/[a-z0-9.:-]+/managedZones/[a-z]([-a-z0-9]{0,61}[a-z0-9])?",
    what="the name of a Cloud DNS managed zone such as projects/my-project/managedZones/train",
)
"""The form of the name: `ManagedZone.name` in the discovery document."""
_OUTPUT = ("kind", "signatureRrdatas")
"""Fields of a record set that are not part of a change."""


def control_plane(region: str) -> str:
    """Return the service that changes records."""
    return SERVICE


def connect(region: str, config: Mapping[str, object]) -> GcpDns:
    """Use the credentials from the environment."""
    return GcpDns(Api())


class GcpDns:
    """The requests for one stack. `gpuinfra.clouds.region.dns.Dns` describes the methods."""

    control_plane = SERVICE

    def __init__(self, api: Api) -> None:
        self._api = api

    def zone_name(self, zone: str) -> str | None:
        zone_record = self._api.ask("GET", DNS, _path(zone))
        return str(zone_record["dnsName"]).removesuffix(".") if zone_record else None

    def zone_region(self, zone: str) -> str | None:
        return None

    def values(self, zone: str, keys: Iterable[Key]) -> dict[Key, tuple[str, ...]]:
        return {key: _values(one) for key, one in self._existing(zone, keys).items()}

    def point(self, zone: str, records: Sequence[NameRecord]) -> None:
        existing = self._existing(zone, [one.key for one in records])
        wanted = {
            one.key: {"name": f"{one.name}.", "type": one.type, "ttl": TTL_S, "rrdatas": list(one.values)}
            for one in records
        }
        changed = [key for key, one in wanted.items() if existing.get(key) != one]
        if changed:
            deletions = [existing[key] for key in changed if key in existing]
            body = {"additions": [wanted[key] for key in changed], "deletions": deletions}
            self._api.sent("POST", DNS, f"{_path(zone)}/changes", body=body)

    def mounted(self, entry: Mapping[str, Any], resources: Sequence[Mapping[str, Any]]) -> Mounted | None:
        return by_address(entry)

    def _existing(self, zone: str, keys: Iterable[Key]) -> dict[Key, dict[str, Any]]:
        """Return the record sets that exist, without the fields that Cloud DNS adds."""
        record_sets = dict[Key, dict[str, Any]]()
        for name, type_ in keys:
            page = self._api.sent("GET", DNS, f"{_path(zone)}/rrsets", {"name": f"{name}.", "type": type_})
            for record_set in page.get("rrsets") or ():
                record_sets[name, type_] = {key: value for key, value in record_set.items() if key not in _OUTPUT}
        return record_sets


def _path(zone: str) -> str:
    return f"dns/v1/{zone}"


def _values(record_set: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the sorted values of a record set. A record set with a routing policy has no values of its own."""
    if "routingPolicy" in record_set:
        return ("ROUTING POLICY",)
    return tuple(sorted(str(value) for value in record_set.get("rrdatas") or ()))
