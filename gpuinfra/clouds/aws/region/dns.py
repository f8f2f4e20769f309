"""The DNS names of a cluster in a Route 53 hosted zone.

Requests and responses: the API reference of Route 53 (GetHostedZone, ListResourceRecordSets, ChangeResourceRecordSets) and the service model of botocore.
Route 53 answers queries in every Region, but the control plane, which changes records, is in us-east-1
(https://docs.aws.amazon.com/whitepapers/latest/aws-fault-isolation-boundaries/global-services.html, "Route 53 Private DNS").
Accelerated recovery of the control plane
covers only public zones (https://docs.aws.amazon.com/Route53/latest/DeveloperGuide/accelerated-recovery.html). Both retrieved 2026-11-27.

Machines outside the VPC of a file system use addresses. FSx for Lustre: the address of the primary network interface, which is the first one
(https://docs.aws.amazon.com/fsx/latest/LustreGuide/mounting-on-premises.html; the provider preserves the order, `internal/service/fsx/lustre_file_system.go` in
terraform-provider-aws). The DNS name does not resolve in a peered VPC (kubernetes-sigs/aws-fsx-csi-driver issue 357). EFS: "You can't use DNS name resolution
for EFS mount points in another VPC" (https://docs.aws.amazon.com/efs/latest/ug/mount-fs-different-vpc.html).
FSx for OpenZFS with one file server has one network
interface, and its DNS name is for clients in its VPC (https://docs.aws.amazon.com/fsx/latest/OpenZFSGuide/access-within-aws.html). All retrieved 2026-11-27.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.aws.profile import OPENZFS_ROOT
from gpuinfra.clouds.aws.region.failover import Client, ask, client_of
from gpuinfra.clouds.aws.regions import partition
from gpuinfra.clouds.region.dns import TTL_S, Key, Mounted, NameRecord, ZoneFormat

CONTROL = {"aws": "us-east-1", "aws-us-gov": "us-gov-west-1"}
"""Region of the Route 53 endpoint in each partition (https://docs.aws.amazon.com/general/latest/gr/r53.html, retrieved 2026-11-27,
and `endpoints.json` of botocore)."""
ZONE = ZoneFormat(pattern=r"Z[0-9A-Z]{1,31}", what="the ID of a Route 53 hosted zone such as Z0123456789ABCDEFGHIJ")
"""Route 53 API reference, data type `ResourceId`: at most 32 characters."""
NO_ZONE = frozenset({"NoSuchHostedZone"})
LUSTRE = "aws:fsx/lustreFileSystem:LustreFileSystem"
OPENZFS = "aws:fsx/openZfsFileSystem:OpenZfsFileSystem"
HOME = "aws:efs/fileSystem:FileSystem"
MOUNT_TARGET = "aws:efs/mountTarget:MountTarget"
MOUNTED = (LUSTRE, OPENZFS, HOME)


def control_plane(region: str) -> str:
    """Return the Region of the control plane for a stack in a Region."""
    return CONTROL[partition(region)]


def connect(region: str, config: Mapping[str, object]) -> AwsDns:
    """Use the credentials from the environment, or those that the settings of the provider select."""
    return AwsDns(client_of(config), region)


class AwsDns:
    """The requests for one stack. `gpuinfra.clouds.region.dns.Dns` describes the methods."""

    def __init__(self, client: Client, region: str) -> None:
        self.control_plane = control_plane(region)
        self._client = client

    def _route53(self) -> Any:
        return self._client("route53", self.control_plane)

    def zone_name(self, zone: str) -> str | None:
        answer = ask(self._route53().get_hosted_zone, NO_ZONE, Id=zone)
        return str(answer["HostedZone"]["Name"]).removesuffix(".") if answer else None

    def zone_region(self, zone: str) -> str | None:
        # A rule reports a stack in the Region of the control plane.
        return None

    def values(self, zone: str, keys: Iterable[Key]) -> dict[Key, tuple[str, ...]]:
        client, result = self._route53(), dict[Key, tuple[str, ...]]()
        for name, type_ in keys:
            # The list starts at this name and type, or at the next record if it does not exist.
            page = ask(client.list_resource_record_sets, HostedZoneId=zone, StartRecordName=name, StartRecordType=type_, MaxItems="1")  # fmt: skip
            for resource_record_set in page["ResourceRecordSets"]:
                if (str(resource_record_set["Name"]).removesuffix("."), resource_record_set["Type"]) == (name, type_):
                    texts = [str(value["Value"]) for value in resource_record_set.get("ResourceRecords", ())]
                    if "AliasTarget" in resource_record_set:
                        texts = [f"ALIAS {resource_record_set['AliasTarget']['DNSName']}"]
                    result[name, type_] = tuple(sorted(value.removesuffix(".") for value in texts))
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

    def mounted(self, entry: Mapping[str, Any], resources: Sequence[Mapping[str, Any]]) -> Mounted | None:
        states = [(str(one.get("type")), str(one.get("id")), one.get("outputs") or {}) for one in resources]
        mounts = (one for one in states if one[0] in MOUNTED and one[2].get("dnsName") == entry["dns_name"])
        type_, id_, outputs = next(mounts, ("", "", {}))
        if not type_:
            # A replica of home directories is in the state of another stack.
            named = (str(o["fileSystemId"]) for kind, _, o in states if kind == MOUNT_TARGET and o.get("dnsName") == entry["dns_name"])  # fmt: skip
            type_, id_ = HOME, next(named, "")
        if type_ == HOME:
            targets = [made for kind, _, made in states if kind == MOUNT_TARGET and made.get("fileSystemId") == id_]
            addresses = tuple(str(one["ipAddress"]) for one in targets)
            return Mounted(addresses=addresses, source=id_) if addresses else None
        address = self._primary_address(id_, outputs)
        path = f"@tcp:/{outputs['mountName']}" if type_ == LUSTRE else f":{OPENZFS_ROOT}"
        return Mounted(addresses=(address,), source=f"{address}{path}")

    def _primary_address(self, id_: str, outputs: Mapping[str, Any]) -> str:
        """Return the address of an FSx file system for clients outside its VPC."""
        interfaces = outputs.get("networkInterfaceIds") or ()
        if not interfaces:
            raise DeploymentError(f"the state contains no network interface of {id_}; run `pulumi refresh`")
        region = str(outputs["arn"]).split(":")[3]
        client = self._client("ec2", region)
        (described,) = ask(client.describe_network_interfaces, NetworkInterfaceIds=[interfaces[0]])["NetworkInterfaces"]
        return str(described["PrivateIpAddress"])
