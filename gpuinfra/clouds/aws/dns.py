"""The DNS names of a cluster in a Route 53 hosted zone.

Requests and responses: the API reference of Route 53 (GetHostedZone, ListResourceRecordSets, ChangeResourceRecordSets) and the service model of botocore.
Route 53 answers queries in every Region, but the control plane, which changes records, is in us-east-1
(https://docs.aws.amazon.com/whitepapers/latest/aws-fault-isolation-boundaries/global-services.html, "Route 53 Private DNS"). Accelerated recovery of the control plane
covers only public zones (https://docs.aws.amazon.com/Route53/latest/DeveloperGuide/accelerated-recovery.html). Both retrieved 2026-11-27.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuinfra.clouds.aws.failover import Client, ask, client_of
from gpuinfra.clouds.aws.regions import partition
from gpuinfra.clouds.dns import TTL_S, Key, NameRecord

CONTROL = {"aws": "us-east-1", "aws-us-gov": "us-gov-west-1"}
"""Region of the Route 53 endpoint in each partition (https://docs.aws.amazon.com/general/latest/gr/r53.html, retrieved 2026-11-27, and `endpoints.json` of botocore)."""
NO_ZONE = frozenset({"NoSuchHostedZone"})


def connect(region: str, config: Mapping[str, object]) -> AwsDns:
    """Use the credentials from the environment, or from the profile `aws:profile`."""
    return AwsDns(client_of(config), region)


class AwsDns:
    """The requests for one stack. `gpuinfra.clouds.dns.Dns` describes the methods."""

    def __init__(self, client: Client, region: str) -> None:
        self.control_region = CONTROL[partition(region)]
        self._client = client

    def _route53(self) -> Any:
        return self._client("route53", self.control_region)

    def zone_name(self, zone: str) -> str | None:
        found = ask(self._route53().get_hosted_zone, NO_ZONE, Id=zone)
        return str(found["HostedZone"]["Name"]).removesuffix(".") if found else None

    def values(self, zone: str, keys: Iterable[Key]) -> dict[Key, tuple[str, ...]]:
        client, result = self._route53(), dict[Key, tuple[str, ...]]()
        for name, type_ in keys:
            # The list starts at this name and type, or at the next record if it does not exist.
            page = ask(client.list_resource_record_sets, HostedZoneId=zone, StartRecordName=name, StartRecordType=type_, MaxItems="1")  # fmt: skip
            for one in page["ResourceRecordSets"]:
                if (str(one["Name"]).removesuffix("."), one["Type"]) == (name, type_):
                    found = [str(value["Value"]) for value in one.get("ResourceRecords", ())]
                    result[name, type_] = tuple(sorted(value.removesuffix(".") for value in found))
        return result

    def point(self, zone: str, records: Sequence[NameRecord]) -> None:
        changes = [
            {
                "Action": "UPSERT",
                "ResourceRecordSet": {
                    "Name": one.name,
                    "Type": one.type,
                    "TTL": TTL_S,
                    "ResourceRecords": [{"Value": value} for value in one.values],
                },
            }
            for one in records
        ]
        ask(self._route53().change_resource_record_sets, HostedZoneId=zone, ChangeBatch={"Changes": changes})
