"""Network reachability in a deployed AWS state, from gateways, routes, addresses and security groups.

It reads an exported state and does not depend on the components. It lists inbound and outbound access of the network interfaces of nodes.
Inbound access from outside requires a route, an address and a security group rule. Each of them alone is reported, because one more mistake opens the network.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.oracle.claims import group

EVERYWHERE = frozenset({"0.0.0.0/0", "::/0"})


@dataclass(frozen=True, kw_only=True)
class Out:
    """A destination that nodes can send to."""

    to: str
    """A security group id, or addresses."""
    protocol: str
    ports: tuple[int, int] | None


def holes(state: Iterable[Mapping[str, Any]]) -> list[str]:
    """Settings that allow inbound access from outside, or a part of it."""
    have = group(state)
    nodes = _node_subnets(have)
    return [
        *_public_routes(have, nodes),
        *_public_addresses(have, nodes),
        *_open_rules(have),
        *_other_access(have),
        *_weak_metadata(have),
    ]


def outwards(state: Iterable[Mapping[str, Any]]) -> set[Out]:
    """Destinations that the security groups of nodes allow."""
    have = group(state)
    groups = _node_groups(have)
    found = set()
    for rule in have.get("vpc_SecurityGroupEgressRule", []):
        if rule["securityGroupId"] in groups:
            first = rule.get("fromPort")
            ports = None if first is None else (first, rule["toPort"])
            to = (
                rule.get("referencedSecurityGroupId")
                or rule.get("cidrIpv4")
                or rule.get("cidrIpv6")
                or rule.get("prefixListId")
            )
            found.add(Out(to=str(to), protocol=rule["ipProtocol"], ports=ports))
    return found


def _node_subnets(have: dict[str, list[dict[str, Any]]]) -> set[str]:
    return {subnet for one in have.get("autoscaling_Group", []) for subnet in one["vpcZoneIdentifiers"]}


def _node_groups(have: dict[str, list[dict[str, Any]]]) -> set[str]:
    templates = have.get("ec2_LaunchTemplate", [])
    return {group for one in templates for nic in one["networkInterfaces"] for group in nic["securityGroups"]}


def _public_routes(have: dict[str, list[dict[str, Any]]], nodes: set[str]) -> Iterable[str]:
    """Subnets of nodes with a route to an internet gateway or to another network."""
    tables = {one["subnetId"]: one["routeTableId"] for one in have.get("ec2_RouteTableAssociation", [])}
    gateways = {one["id"] for one in have.get("ec2_InternetGateway", [])}
    for subnet in sorted(nodes):
        for route in have.get("ec2_Route", []):
            if route["routeTableId"] != tables.get(subnet):
                continue
            if route.get("gatewayId") in gateways:
                yield f"subnet {subnet} has a route to the internet gateway"
            for peer in ("vpcPeeringConnectionId", "transitGatewayId", "networkInterfaceId", "egressOnlyGatewayId"):
                if route.get(peer):
                    yield f"subnet {subnet} has a route by {peer}"


def _public_addresses(have: dict[str, list[dict[str, Any]]], nodes: set[str]) -> Iterable[str]:
    for subnet in have.get("ec2_Subnet", []):
        if subnet["id"] in nodes and subnet.get("mapPublicIpOnLaunch") is not False:
            yield f"subnet {subnet['id']} assigns public addresses"
        if subnet["id"] in nodes and subnet.get("assignIpv6AddressOnCreation"):
            yield f"subnet {subnet['id']} assigns IPv6 addresses, which are public"
    for template in have.get("ec2_LaunchTemplate", []):
        for nic in template["networkInterfaces"]:
            if (
                nic.get("associatePublicIpAddress") == "true"
                or nic.get("ipv6AddressCount")
                or nic.get("associateCarrierIpAddress") == "true"
            ):
                yield f"template {template['id']} requests a public address"
    for one in have.get("ec2_EipAssociation", []):
        yield f"an elastic address is given to {one.get('instanceId') or one.get('networkInterfaceId')}"


def _open_rules(have: dict[str, list[dict[str, Any]]]) -> Iterable[str]:
    """Rules with addresses as source. Nodes and file systems accept security groups only."""
    endpoints = {group for one in have.get("ec2_VpcEndpoint", []) for group in one.get("securityGroupIds") or []}
    known = {one["id"] for one in have.get("ec2_SecurityGroup", [])}
    for rule in have.get("vpc_SecurityGroupIngressRule", []):
        source = rule.get("cidrIpv4") or rule.get("cidrIpv6")
        if source in EVERYWHERE:
            yield f"group {rule['securityGroupId']} allows any source"
        elif source and rule["securityGroupId"] not in endpoints:
            yield f"group {rule['securityGroupId']} allows {source}"
        other = rule.get("referencedSecurityGroupId")
        if other and other not in known:
            yield f"group {rule['securityGroupId']} allows group {other}, which is not part of this stack"
    for one in have.get("ec2_SecurityGroup", []):
        if one.get("ingress"):
            yield f"group {one['id']} has inline rules"
    for one in have.get("ec2_SecurityGroupRule", []):
        yield f"group {one.get('securityGroupId')} has a rule of type SecurityGroupRule"


def _other_access(have: dict[str, list[dict[str, Any]]]) -> Iterable[str]:
    for one in have.get("ec2_DefaultSecurityGroup", []):
        if one.get("ingress") or one.get("egress"):
            yield "the default security group has rules"
    for vpc in have.get("ec2_Vpc", []):
        if not any(one["vpcId"] == vpc["id"] for one in have.get("ec2_DefaultSecurityGroup", [])):
            yield f"the default security group of {vpc['id']} has its default rules, which allow traffic between members"
        if vpc.get("assignGeneratedIpv6CidrBlock"):
            yield f"network {vpc['id']} has public IPv6 addresses"
    for kind in ("lb_LoadBalancer", "alb_LoadBalancer", "elb_LoadBalancer", "ec2_VpnGateway", "ec2clientvpn_Endpoint"):
        for one in have.get(kind, []):
            yield f"{kind} {one['id']} leads into the network"
    for bucket in have.get("s3_Bucket", []):
        blocks = [one for one in have.get("s3_BucketPublicAccessBlock", []) if one["bucket"] == bucket["bucket"]]
        ways = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
        if not any(all(block.get(way) is True for way in ways) for block in blocks):
            yield f"bucket {bucket['bucket']} can be made public"


def _weak_metadata(have: dict[str, list[dict[str, Any]]]) -> Iterable[str]:
    for template in have.get("ec2_LaunchTemplate", []):
        if (template.get("metadataOptions") or {}).get("httpTokens") != "required":
            yield f"template {template['id']} accepts IMDSv1, which exposes the credentials of the role to request forgery"
