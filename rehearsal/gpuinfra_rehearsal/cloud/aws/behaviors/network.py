"""Networks: required resources, zones, and dependencies that block deletion."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinfra_rehearsal.cloud.aws import places
from gpuinfra_rehearsal.cloud.aws.ids import route_id
from gpuinfra_rehearsal.cloud.core import ids, wire
from gpuinfra_rehearsal.cloud.core.behavior import Behavior, behaves
from gpuinfra_rehearsal.cloud.core.check import RejectedInput
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Call, Cloud
    from gpuinfra_rehearsal.cloud.core.store import Resource

VPC = "aws:ec2/vpc:Vpc"
SUBNET = "aws:ec2/subnet:Subnet"
GATEWAY = "aws:ec2/internetGateway:InternetGateway"
NAT = "aws:ec2/natGateway:NatGateway"
SECURITY = "aws:ec2/securityGroup:SecurityGroup"
DEFAULT_SECURITY = "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup"
ENDPOINT = "aws:ec2/vpcEndpoint:VpcEndpoint"
TABLE = "aws:ec2/routeTable:RouteTable"
ASSOCIATION = "aws:ec2/routeTableAssociation:RouteTableAssociation"
EIP = "aws:ec2/eip:Eip"
LUSTRE = "aws:fsx/lustreFileSystem:LustreFileSystem"
OPENZFS = "aws:fsx/openZfsFileSystem:OpenZfsFileSystem"
MOUNT_TARGET = "aws:efs/mountTarget:MountTarget"


RULES = (
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule",
)
_MISSING = {
    VPC: ("InvalidVpcID.NotFound", "vpc"),
    SUBNET: ("InvalidSubnetID.NotFound", "subnet"),
    EIP: ("InvalidAllocationID.NotFound", "allocation"),
    SECURITY: ("InvalidGroup.NotFound", "security group"),
    TABLE: ("InvalidRouteTableID.NotFound", "routeTable"),
}
"""Maps a type to the error code for a missing resource and EC2's name for the type."""


class Ec2(Behavior):
    """A resource that depends on others and on which others depend."""

    needs: dict[str, str] = {}
    """Maps an input to the resource type that it refers to. The resource must exist. Resources that predate the
    rehearsal are assumed to exist."""
    holders: dict[str, str] = {}
    """Maps a type to the input that refers to this resource and therefore blocks its deletion."""

    def before_create(self, cloud: Cloud, call: Call) -> None:
        for key, token in self.needs.items():
            id = call.plain.get(key)
            if isinstance(id, str) and cloud.external(id) is None and cloud.store.find(token, id) is None:
                code, what = _MISSING[token]
                raise ApiRejected(code, f"The {what} ID '{id}' does not exist", "EC2")

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        if self.is_held(cloud, resource):
            text = f"The {_MISSING[resource.type][1]} '{resource.id}' has dependencies and cannot be deleted."
            raise ApiRejected("DependencyViolation", text, f"EC2: Delete{ids.class_name(resource.type)}")

    def is_held(self, cloud: Cloud, resource: Resource) -> bool:
        """Return whether another resource refers to this one."""
        return any(
            resource.id in wire.strings(one.plain.get(key))
            for token, key in self.holders.items()
            for one in cloud.store.list(token)
        )


@behaves
class Vpc(Ec2):
    types = (VPC,)
    holders = dict.fromkeys((SUBNET, GATEWAY, SECURITY, ENDPOINT, TABLE), "vpcId")

    def created(self, cloud: Cloud, call: Call) -> None:
        number = ids.hexa(cloud.store.next("default"), 17)
        call.outputs |= {
            "defaultSecurityGroupId": f"sg-d{number[1:]}",
            "defaultNetworkAclId": f"acl-d{number[1:]}",
            "defaultRouteTableId": f"rtb-d{number[1:]}",
            "mainRouteTableId": f"rtb-d{number[1:]}",
            "dhcpOptionsId": "dopt-" + "0" * 16 + "1",
            "enableDnsSupport": call.plain.get("enableDnsSupport") is not False,
            "instanceTenancy": call.plain.get("instanceTenancy") or "default",
        }


@behaves
class DefaultSecurityGroup(Ec2):
    """The group that each VPC has. The provider only changes its rules, so a second creation is the same group."""

    types = (DEFAULT_SECURITY,)
    needs = {"vpcId": VPC}
    joins = True

    def identify(self, cloud: Cloud, call: Call) -> str | None:
        vpc = cloud.store.find(VPC, str(call.plain.get("vpcId")), call.region)
        return str(vpc.outputs["defaultSecurityGroupId"]) if vpc else None


@behaves
class Subnet(Ec2):
    types = (SUBNET,)
    needs = {"vpcId": VPC}
    holders = {
        NAT: "subnetId",
        LUSTRE: "subnetIds",
        OPENZFS: "subnetIds",
        ENDPOINT: "subnetIds",
        MOUNT_TARGET: "subnetId",
    }

    def before_create(self, cloud: Cloud, call: Call) -> None:
        super().before_create(cloud, call)
        plain = call.plain
        vpc = cloud.store.find(VPC, str(plain.get("vpcId")))
        zone = plain.get("availabilityZoneId") or plain.get("availabilityZone")
        if zone and zone not in [one for pair in places.zones(call.region) for one in pair]:
            allowed = ", ".join(f"{id} ({name})" for name, id in places.zones(call.region))
            raise ApiRejected(
                "InvalidParameterValue",
                f"Value ({zone}) for parameter availabilityZone is invalid. Subnets can currently only be created in: {allowed}.",
                "EC2: CreateSubnet",
            )
        if vpc is None or not plain.get("cidrBlock"):
            return
        block = ipaddress.ip_network(plain["cidrBlock"])
        if not block.subnet_of(ipaddress.ip_network(str(vpc.plain["cidrBlock"]))):  # type: ignore[arg-type]
            raise ApiRejected("InvalidSubnet.Range", f"The CIDR '{block}' is invalid.", "EC2: CreateSubnet")
        others = [str(one.plain.get("cidrBlock") or "") for one in cloud.store.where(SUBNET, vpcId=vpc.id)]
        if any(block.overlaps(ipaddress.ip_network(other)) for other in others if other):
            text = f"The CIDR '{block}' conflicts with another subnet"
            raise ApiRejected("InvalidSubnet.Conflict", text, "EC2: CreateSubnet")

    def created(self, cloud: Cloud, call: Call) -> None:
        plain = call.plain
        first = places.zones(call.region)[0]
        name = (
            plain.get("availabilityZone")
            or places.zone_name(call.region, str(plain.get("availabilityZoneId")))
            or first[0]
        )
        call.outputs |= {"availabilityZone": name, "availabilityZoneId": places.zone_id(call.region, name) or first[1]}

    def is_held(self, cloud: Cloud, resource: Resource) -> bool:
        here = (one for one in cloud.fleet.running() if one["cloud"] == "aws")
        return any(one["subnet"] == resource.id for one in here) or super().is_held(cloud, resource)


@behaves
class InternetGateway(Ec2):
    types = (GATEWAY,)
    needs = {"vpcId": VPC}

    def before_create(self, cloud: Cloud, call: Call) -> None:
        super().before_create(cloud, call)
        vpc = call.plain.get("vpcId")
        if vpc and cloud.store.where(GATEWAY, vpcId=vpc):
            text = f"Network {vpc} already has an internet gateway attached"
            raise ApiRejected("Resource.AlreadyAssociated", text, "EC2: AttachInternetGateway")

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        vpc = resource.plain.get("vpcId")
        subnets = {one.id for one in cloud.store.where(SUBNET, vpcId=vpc)}
        if any(one.plain.get("subnetId") in subnets for one in cloud.store.list(NAT)):
            text = f"Network {vpc} has some mapped public address(es). Please unmap those public address(es) before detaching the gateway."
            raise ApiRejected("DependencyViolation", text, "EC2: DetachInternetGateway")


@behaves
class NatGateway(Ec2):
    types = (NAT,)
    needs = {"subnetId": SUBNET, "allocationId": EIP}

    def before_create(self, cloud: Cloud, call: Call) -> None:
        super().before_create(cloud, call)
        address = call.plain.get("allocationId")
        if address and cloud.store.where(NAT, allocationId=address):
            text = f"Elastic IP address [{address}] is already associated"
            raise ApiRejected("Resource.AlreadyAssociated", text, "EC2: CreateNatGateway")

    def created(self, cloud: Cloud, call: Call) -> None:
        address = cloud.store.find(EIP, str(call.plain.get("allocationId")))
        if address:
            call.outputs["publicIp"] = address.outputs["publicIp"]


@behaves
class Eip(Behavior):
    types = (EIP,)

    def created(self, cloud: Cloud, call: Call) -> None:
        # 203.0.113.0/24 is TEST-NET-3 (RFC 5737), which is not assigned.
        address = f"203.0.113.{cloud.store.next('public address') % 254 + 1}"
        call.outputs |= {"publicIp": address, "allocationId": call.id, "domain": "vpc"}

    def read(self, cloud: Cloud, resource: Resource) -> Resource | None:
        """Return the address with its association, which exists as soon as the NAT gateway is created."""
        gateways = cloud.store.where(NAT, allocationId=resource.id)
        if not gateways:
            return resource
        gateway = gateways[0].outputs
        address = str(gateway["privateIp"])
        associated = {
            "associationId": gateway["associationId"],
            "networkInterface": gateway["networkInterfaceId"],
            "privateIp": address,
            "privateDns": f"ip-{address.replace('.', '-')}.{resource.region}.compute.internal",
        }
        return replace(resource, outputs={**resource.outputs, **associated})

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        if cloud.store.where(NAT, allocationId=resource.id):
            text = f"Address with allocation id [{resource.id}] cannot be released because it is locked to your account or in use"
            raise ApiRejected("InvalidIPAddress.InUse", text, "EC2: ReleaseAddress")


@behaves
class SecurityGroup(Ec2):
    types = (SECURITY,)
    needs = {"vpcId": VPC}
    holders = {
        LUSTRE: "securityGroupIds",
        OPENZFS: "securityGroupIds",
        ENDPOINT: "securityGroupIds",
        MOUNT_TARGET: "securityGroups",
    }
    unique = (("name", "vpcId"),)
    taken = ApiRejected("InvalidGroup.Duplicate", "The security group '{name}' already exists for this VPC", status=409)

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        rules = [one for kind in RULES for one in cloud.store.where(kind, referencedSecurityGroupId=resource.id)]
        named = any(one.plain.get("securityGroupId") != resource.id for one in rules)
        interfaces = [card for one in cloud.fleet.running() if one["cloud"] == "aws" for card in one["interfaces"]]
        busy = any(resource.id in (card.get("securityGroups") or []) for card in interfaces)
        if named or busy or self.is_held(cloud, resource):
            text = f"resource {resource.id} has a dependent object"
            raise ApiRejected("DependencyViolation", text, "EC2: DeleteSecurityGroup")

    def deleted(self, cloud: Cloud, resource: Resource) -> None:
        """Delete the group's own rules with it."""
        for kind in RULES:
            for rule in cloud.store.where(kind, securityGroupId=resource.id):
                cloud.store.remove(rule)


@behaves
class SecurityGroupRule(Ec2):
    types = RULES
    needs = {"securityGroupId": SECURITY}
    taken = ApiRejected("InvalidPermission.Duplicate", "the specified rule already exists", status=409)

    _PEERS = ("cidrIpv4", "cidrIpv6", "prefixListId", "referencedSecurityGroupId")

    def check(self, cloud: Cloud, call: Call) -> Iterator[RejectedInput]:
        given = [key for key in self._PEERS if call.inputs.get(key) is not None]
        if len(given) != 1:
            yield RejectedInput(
                "cidrIpv4",
                f"exactly one of {', '.join(self._PEERS)} must be given, got {' and '.join(given) or 'none'}",
            )

    def names(self, cloud: Cloud, call: Call) -> Iterator[tuple[str, str]]:
        plain = call.plain
        shape = [str(plain.get(key, "")) for key in ("ipProtocol", "fromPort", "toPort", *self._PEERS)]
        yield f"{call.token} {plain.get('securityGroupId')}", "|".join(shape)


@behaves
class Route(Ec2):
    types = ("aws:ec2/route:Route",)
    needs = {"routeTableId": TABLE}
    taken = ApiRejected("RouteAlreadyExists", "The route identified by that destination already exists.", status=409)

    def created(self, cloud: Cloud, call: Call) -> None:
        call.outputs |= {"origin": "CreateRoute", "state": "active"}

    def by_import_id(self, cloud: Cloud, token: str, id: str, region: str) -> Resource | None:
        """Accept the import ID `<route table>_<destination>`."""
        table, _, destination = id.partition("_")
        return cloud.store.find(token, route_id(table, destination), region)


@behaves
class RouteTableAssociation(Ec2):
    types = (ASSOCIATION,)
    needs = {"routeTableId": TABLE}
    unique = (("subnetId", "region"),)
    taken = ApiRejected(
        "Resource.AlreadyAssociated",
        "the specified association for route table conflicts with an existing association of {name}",
        status=409,
    )

    def by_import_id(self, cloud: Cloud, token: str, id: str, region: str) -> Resource | None:
        """Accept the import ID `<subnet or gateway>/<route table>`."""
        one_end, _, table = id.partition("/")
        for resource in cloud.store.list(token):
            plain = resource.plain
            if plain.get("routeTableId") == table and one_end in (plain.get("subnetId"), plain.get("gatewayId")):
                return resource
        return None


@behaves
class RouteTable(Ec2):
    types = (TABLE,)
    needs = {"vpcId": VPC}
    holders = {ASSOCIATION: "routeTableId"}


@behaves
class VpcEndpoint(Ec2):
    types = (ENDPOINT,)
    needs = {"vpcId": VPC}

    def before_create(self, cloud: Cloud, call: Call) -> None:
        super().before_create(cloud, call)
        plain = call.plain
        name = str(plain.get("serviceName") or "")
        regional = name.startswith("com.amazonaws.") and name.count(".") > 2 and ".s3-global." not in name
        if regional and not name.startswith(f"com.amazonaws.{call.region}.") and not plain.get("serviceRegion"):
            text = f"The Vpc Endpoint Service '{name}' does not exist"
            raise ApiRejected("InvalidServiceName", text, "EC2: CreateVpcEndpoint")

    def created(self, cloud: Cloud, call: Call) -> None:
        plain = call.plain
        gateway = plain.get("vpcEndpointType", "Gateway") == "Gateway"
        call.outputs |= {
            "vpcEndpointType": plain.get("vpcEndpointType", "Gateway"),
            "networkInterfaceIds": []
            if gateway
            else [f"eni-{ids.hexa(cloud.store.next('eni'), 17)}" for _ in plain.get("subnetIds") or []],
            "dnsEntries": [] if gateway else call.outputs.get("dnsEntries", []),
            "cidrBlocks": ["10.255.0.0/24"] if gateway else [],
            "prefixListId": f"pl-{ids.hexa(cloud.store.next('pl'), 17)}" if gateway else "",
            "state": "available",
        }
