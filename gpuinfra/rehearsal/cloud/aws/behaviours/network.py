"""Networks: required resources, zones, and what blocks deletion."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gpuinfra.rehearsal.cloud.aws import places
from gpuinfra.rehearsal.cloud.core import ids, wire
from gpuinfra.rehearsal.cloud.core.behaviour import Behaviour, behaves
from gpuinfra.rehearsal.cloud.core.check import Failure
from gpuinfra.rehearsal.cloud.core.errors import CloudError

if TYPE_CHECKING:
    from gpuinfra.rehearsal.cloud.core.interfaces import Call, Cloud
    from gpuinfra.rehearsal.cloud.core.store import Resource, Store

VPC = "aws:ec2/vpc:Vpc"
SUBNET = "aws:ec2/subnet:Subnet"
GATEWAY = "aws:ec2/internetGateway:InternetGateway"
NAT = "aws:ec2/natGateway:NatGateway"
SECURITY = "aws:ec2/securityGroup:SecurityGroup"
ENDPOINT = "aws:ec2/vpcEndpoint:VpcEndpoint"
TABLE = "aws:ec2/routeTable:RouteTable"


def _violation(what: str, id: str, operation: str) -> CloudError:
    text = f"The {what} '{id}' has dependencies and cannot be deleted."
    return CloudError("DependencyViolation", text, f"EC2: {operation}")


def _using(store: Store, keys: dict[str, tuple[str, ...]], id: str) -> bool:
    """Whether a resource of these types refers to the id in one of these inputs."""
    for token, inputs in keys.items():
        for one in store.list(token):
            plain = one.plain
            if any(id in wire.strings(plain.get(key)) for key in inputs):
                return True
    return False


def _need(cloud: Cloud, token: str, id: Any, code: str, what: str) -> Resource | None:
    """A resource that another one needs. Raises CloudError where it does not exist; what the account held before is believed."""
    if not isinstance(id, str) or cloud.external(id) is not None:
        return None
    found = cloud.store.find(token, id)
    if found is None:
        raise CloudError(code, f"The {what} ID '{id}' does not exist", "EC2")
    return found


@behaves
class Vpc(Behaviour):
    types = (VPC,)

    def created(self, cloud: Cloud, call: Call) -> None:
        number = ids.hexa(cloud.store.next("default"), 17)
        call.outputs |= {
            "defaultSecurityGroupId": f"sg-d{number[1:]}",
            "defaultNetworkAclId": f"acl-d{number[1:]}",
            "defaultRouteTableId": f"rtb-d{number[1:]}",
            "mainRouteTableId": f"rtb-d{number[1:]}",
            "dhcpOptionsId": "dopt-" + "0" * 16 + "1",
            "enableDnsSupport": call.outputs.get("enableDnsSupport", True)
            if call.inputs.get("enableDnsSupport") is not None
            else True,
            "instanceTenancy": call.outputs.get("instanceTenancy") if call.inputs.get("instanceTenancy") else "default",
        }

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        tied = {SUBNET: ("vpcId",), GATEWAY: ("vpcId",), SECURITY: ("vpcId",), ENDPOINT: ("vpcId",), TABLE: ("vpcId",)}
        if _using(cloud.store, tied, resource.id):
            raise _violation("vpc", resource.id, "DeleteVpc")


@behaves
class Subnet(Behaviour):
    types = (SUBNET,)

    def before_create(self, cloud: Cloud, call: Call) -> None:
        plain = call.plain
        vpc = _need(cloud, VPC, plain.get("vpcId"), "InvalidVpcID.NotFound", "vpc")
        zone = plain.get("availabilityZoneId") or plain.get("availabilityZone")
        if zone and zone not in [one for pair in places.zones(call.region) for one in pair]:
            allowed = ", ".join(f"{id} ({name})" for name, id in places.zones(call.region))
            raise CloudError(
                "InvalidParameterValue",
                f"Value ({zone}) for parameter availabilityZone is invalid. Subnets can currently only be created in: {allowed}.",
                "EC2: CreateSubnet",
            )
        if vpc is None or not plain.get("cidrBlock"):
            return
        block = ipaddress.ip_network(plain["cidrBlock"])
        if not block.subnet_of(ipaddress.ip_network(str(vpc.plain["cidrBlock"]))):  # type: ignore[arg-type]
            raise CloudError("InvalidSubnet.Range", f"The CIDR '{block}' is invalid.", "EC2: CreateSubnet")
        for one in cloud.store.list(SUBNET):
            other = one.plain
            if (
                other.get("vpcId") == vpc.id
                and other.get("cidrBlock")
                and block.overlaps(ipaddress.ip_network(other["cidrBlock"]))
            ):
                raise CloudError(
                    "InvalidSubnet.Conflict", f"The CIDR '{block}' conflicts with another subnet", "EC2: CreateSubnet"
                )

    def created(self, cloud: Cloud, call: Call) -> None:
        plain = call.plain
        first = places.zones(call.region)[0]
        name = (
            plain.get("availabilityZone")
            or places.zone_name(call.region, str(plain.get("availabilityZoneId")))
            or first[0]
        )
        call.outputs |= {"availabilityZone": name, "availabilityZoneId": places.zone_id(call.region, name) or first[1]}

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        tied = {
            NAT: ("subnetId",),
            "aws:fsx/lustreFileSystem:LustreFileSystem": ("subnetIds",),
            ENDPOINT: ("subnetIds",),
        }
        busy = any(
            one["subnet"] == resource.id and one["state"] != "terminated" for one in cloud.fleet.instances().values()
        )
        if busy or _using(cloud.store, tied, resource.id):
            raise _violation("subnet", resource.id, "DeleteSubnet")


@behaves
class InternetGateway(Behaviour):
    types = (GATEWAY,)

    def before_create(self, cloud: Cloud, call: Call) -> None:
        vpc = call.plain.get("vpcId")
        _need(cloud, VPC, vpc, "InvalidVpcID.NotFound", "vpc")
        if vpc and any(one.plain.get("vpcId") == vpc for one in cloud.store.list(GATEWAY)):
            text = f"Network {vpc} already has an internet gateway attached"
            raise CloudError("Resource.AlreadyAssociated", text, "EC2: AttachInternetGateway")

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        vpc = resource.plain.get("vpcId")
        subnets = {one.id for one in cloud.store.list(SUBNET) if one.plain.get("vpcId") == vpc}
        if any(one.plain.get("subnetId") in subnets for one in cloud.store.list(NAT)):
            text = f"Network {vpc} has some mapped public address(es). Please unmap those public address(es) before detaching the gateway."
            raise CloudError("DependencyViolation", text, "EC2: DetachInternetGateway")


@behaves
class NatGateway(Behaviour):
    types = (NAT,)

    def before_create(self, cloud: Cloud, call: Call) -> None:
        plain = call.plain
        _need(cloud, SUBNET, plain.get("subnetId"), "InvalidSubnetID.NotFound", "subnet")
        address = plain.get("allocationId")
        _need(cloud, "aws:ec2/eip:Eip", address, "InvalidAllocationID.NotFound", "allocation")
        if address and any(one.plain.get("allocationId") == address for one in cloud.store.list(NAT)):
            text = f"Elastic IP address [{address}] is already associated"
            raise CloudError("Resource.AlreadyAssociated", text, "EC2: CreateNatGateway")

    def created(self, cloud: Cloud, call: Call) -> None:
        address = cloud.store.find("aws:ec2/eip:Eip", str(call.plain.get("allocationId")))
        if address:
            call.outputs["publicIp"] = address.outputs["publicIp"]


@behaves
class Eip(Behaviour):
    types = ("aws:ec2/eip:Eip",)

    def created(self, cloud: Cloud, call: Call) -> None:
        # 203.0.113.0/24 is TEST-NET-3 (RFC 5737), which is not assigned.
        address = f"203.0.113.{cloud.store.next('public address') % 254 + 1}"
        call.outputs |= {"publicIp": address, "allocationId": call.id, "domain": "vpc"}

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        if any(one.plain.get("allocationId") == resource.id for one in cloud.store.list(NAT)):
            text = f"Address with allocation id [{resource.id}] cannot be released because it is locked to your account or in use"
            raise CloudError("InvalidIPAddress.InUse", text, "EC2: ReleaseAddress")


@behaves
class SecurityGroup(Behaviour):
    types = (SECURITY,)
    unique = (("name", "vpcId"),)
    taken = CloudError("InvalidGroup.Duplicate", "The security group '{name}' already exists for this VPC", status=409)

    def check(self, cloud: Cloud, call: Call) -> Iterator[Failure]:
        if "description" not in call.inputs:
            call.inputs["description"] = "Managed by Pulumi"
            call.inputs["__defaults"] = [*call.inputs.get("__defaults", []), "description"]
        return iter(())

    def before_create(self, cloud: Cloud, call: Call) -> None:
        _need(cloud, VPC, call.plain.get("vpcId"), "InvalidVpcID.NotFound", "vpc")

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        for kind in ("Ingress", "Egress"):
            for one in cloud.store.list(f"aws:vpc/securityGroup{kind}Rule:SecurityGroup{kind}Rule"):
                plain = one.plain
                if (
                    plain.get("referencedSecurityGroupId") == resource.id
                    and plain.get("securityGroupId") != resource.id
                ):
                    raise CloudError(
                        "DependencyViolation",
                        f"resource {resource.id} has a dependent object",
                        "EC2: DeleteSecurityGroup",
                    )
        tied = {"aws:fsx/lustreFileSystem:LustreFileSystem": ("securityGroupIds",), ENDPOINT: ("securityGroupIds",)}
        busy = any(resource.id in (interface.get("securityGroups") or [])
                   for one in cloud.fleet.instances().values() if one["state"] != "terminated" for interface in one["interfaces"])  # fmt: skip
        if busy or _using(cloud.store, tied, resource.id):
            text = f"resource {resource.id} has a dependent object"
            raise CloudError("DependencyViolation", text, "EC2: DeleteSecurityGroup")

    def deleted(self, cloud: Cloud, resource: Resource) -> None:
        """A group's own rules are deleted with it."""
        for kind in ("Ingress", "Egress"):
            for one in cloud.store.list(f"aws:vpc/securityGroup{kind}Rule:SecurityGroup{kind}Rule"):
                if one.plain.get("securityGroupId") == resource.id:
                    cloud.store.remove(one)


@behaves
class SecurityGroupRule(Behaviour):
    types = (
        "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
        "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule",
    )
    taken = CloudError("InvalidPermission.Duplicate", "the specified rule already exists", status=409)

    _PEERS = ("cidrIpv4", "cidrIpv6", "prefixListId", "referencedSecurityGroupId")

    def check(self, cloud: Cloud, call: Call) -> Iterator[Failure]:
        given = [key for key in self._PEERS if call.inputs.get(key) is not None]
        if len(given) != 1:
            yield Failure(
                "cidrIpv4",
                f"exactly one of {', '.join(self._PEERS)} must be given, got {' and '.join(given) or 'none'}",
            )

    def before_create(self, cloud: Cloud, call: Call) -> None:
        _need(cloud, SECURITY, call.plain.get("securityGroupId"), "InvalidGroup.NotFound", "security group")

    def names(self, cloud: Cloud, call: Call) -> Iterator[tuple[str, str]]:
        plain = call.plain
        shape = [str(plain.get(key, "")) for key in ("ipProtocol", "fromPort", "toPort", *self._PEERS)]
        yield f"{call.token} {plain.get('securityGroupId')}", "|".join(shape)


@behaves
class Route(Behaviour):
    types = ("aws:ec2/route:Route",)
    taken = CloudError("RouteAlreadyExists", "The route identified by that destination already exists.", status=409)

    def before_create(self, cloud: Cloud, call: Call) -> None:
        _need(cloud, TABLE, call.plain.get("routeTableId"), "InvalidRouteTableID.NotFound", "routeTable")

    def created(self, cloud: Cloud, call: Call) -> None:
        call.outputs |= {"origin": "CreateRoute", "state": "active"}

    def by_import_id(self, cloud: Cloud, token: str, id: str, region: str) -> Resource | None:
        """`<route table>_<destination>`"""
        table, _, destination = id.partition("_")
        return cloud.store.find(token, f"r-{table}{destination}", region)


@behaves
class RouteTableAssociation(Behaviour):
    types = ("aws:ec2/routeTableAssociation:RouteTableAssociation",)
    unique = (("subnetId", "region"),)
    taken = CloudError(
        "Resource.AlreadyAssociated",
        "the specified association for route table conflicts with an existing association of {name}",
        status=409,
    )

    def before_create(self, cloud: Cloud, call: Call) -> None:
        _need(cloud, TABLE, call.plain.get("routeTableId"), "InvalidRouteTableID.NotFound", "routeTable")

    def by_import_id(self, cloud: Cloud, token: str, id: str, region: str) -> Resource | None:
        """`<subnet or gateway>/<route table>`"""
        one_end, _, table = id.partition("/")
        for one in cloud.store.list(token):
            plain = one.plain
            if plain.get("routeTableId") == table and one_end in (plain.get("subnetId"), plain.get("gatewayId")):
                return one
        return None


@behaves
class RouteTable(Behaviour):
    types = (TABLE,)

    def before_create(self, cloud: Cloud, call: Call) -> None:
        _need(cloud, VPC, call.plain.get("vpcId"), "InvalidVpcID.NotFound", "vpc")

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        if _using(cloud.store, {"aws:ec2/routeTableAssociation:RouteTableAssociation": ("routeTableId",)}, resource.id):
            raise _violation("routeTable", resource.id, "DeleteRouteTable")


@behaves
class VpcEndpoint(Behaviour):
    types = (ENDPOINT,)

    def before_create(self, cloud: Cloud, call: Call) -> None:
        plain = call.plain
        _need(cloud, VPC, plain.get("vpcId"), "InvalidVpcID.NotFound", "vpc")
        name = str(plain.get("serviceName") or "")
        regional = name.startswith("com.amazonaws.") and name.count(".") > 2 and ".s3-global." not in name
        if regional and not name.startswith(f"com.amazonaws.{call.region}.") and not plain.get("serviceRegion"):
            text = f"The Vpc Endpoint Service '{name}' does not exist"
            raise CloudError("InvalidServiceName", text, "EC2: CreateVpcEndpoint")

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
