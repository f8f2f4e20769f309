"""Nodes are not reachable from outside, reach the declared destinations, and each deliberate opening is found."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.clouds.aws.reach import Out, holes, outwards
from tests.clouds.stacks import recording_of, shipped_aws_stacks
from tests.oracle.claims import group

State = list[dict[str, Any]]


def state_of(stack: str) -> State:
    """The registrations of a program in the format of an exported state."""
    return [
        {"type": one.type, "id": one.id, "inputs": copy.deepcopy(one.inputs), "outputs": {}}
        for one in recording_of(stack).custom
    ]


@pytest.mark.parametrize("stack", shipped_aws_stacks())
def test_nodes_are_not_reachable_from_outside(stack: str) -> None:
    """No route, address or rule of a shipped stack allows access to a node from outside."""
    assert holes(state_of(stack)) == []


def test_nodes_reach_each_other_the_file_system_and_the_web() -> None:
    """Nodes reach each other and Lustre by security group, and two ports on the internet."""
    state = state_of("aws-p4d")
    have = group(state)
    nodes = have["ec2_LaunchTemplate"][0]["networkInterfaces"][0]["securityGroups"][0]
    storage = have["fsx_LustreFileSystem"][0]["securityGroupIds"][0]
    assert outwards(state) == {
        Out(to=nodes, protocol="-1", ports=None),
        Out(to=storage, protocol="tcp", ports=(988, 988)),
        Out(to=storage, protocol="tcp", ports=(1018, 1023)),
        Out(to="0.0.0.0/0", protocol="tcp", ports=(80, 80)),
        Out(to="0.0.0.0/0", protocol="tcp", ports=(443, 443)),
    }


def _first(state: State, type_: str) -> dict[str, Any]:
    return next(one for one in state if one["type"] == type_)


def _add(state: State, type_: str, **inputs: Any) -> None:
    state.append({"type": type_, "id": "made-on-purpose", "inputs": inputs, "outputs": {}})


def _nodes_group(state: State) -> str:
    return _first(state, "aws:ec2/launchTemplate:LaunchTemplate")["inputs"]["networkInterfaces"][0]["securityGroups"][0]


def _route_to_internet(state: State) -> None:
    way = next(one for one in state if one["type"] == "aws:ec2/route:Route" and "natGatewayId" in one["inputs"])
    del way["inputs"]["natGatewayId"]
    way["inputs"]["gatewayId"] = _first(state, "aws:ec2/internetGateway:InternetGateway")["id"]


def _route_to_a_peer(state: State) -> None:
    table = next(one for one in state if one["type"] == "aws:ec2/route:Route" and "natGatewayId" in one["inputs"])[
        "inputs"
    ]["routeTableId"]
    _add(
        state,
        "aws:ec2/route:Route",
        routeTableId=table,
        destinationCidrBlock="10.0.0.0/8",
        vpcPeeringConnectionId="pcx-1",
    )


def _ssh_from_everywhere(state: State) -> None:
    inputs = {
        "securityGroupId": _nodes_group(state),
        "ipProtocol": "tcp",
        "fromPort": 22,
        "toPort": 22,
        "cidrIpv4": "0.0.0.0/0",
    }
    _add(state, "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", **inputs)


def _everything_over_ipv6(state: State) -> None:
    inputs = {"securityGroupId": _nodes_group(state), "ipProtocol": "-1", "cidrIpv6": "::/0"}
    _add(state, "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", **inputs)


def _an_office_network(state: State) -> None:
    inputs = {
        "securityGroupId": _nodes_group(state),
        "ipProtocol": "tcp",
        "fromPort": 22,
        "toPort": 22,
        "cidrIpv4": "203.0.113.0/24",
    }
    _add(state, "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", **inputs)


def _a_strangers_group(state: State) -> None:
    inputs = {
        "securityGroupId": _nodes_group(state),
        "ipProtocol": "-1",
        "referencedSecurityGroupId": "sg-0fedcba9876543210",
    }
    _add(state, "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", **inputs)


def _a_public_subnet(state: State) -> None:
    for one in state:
        if one["type"] == "aws:ec2/subnet:Subnet":
            one["inputs"]["mapPublicIpOnLaunch"] = True


def _a_public_interface(state: State) -> None:
    _first(state, "aws:ec2/launchTemplate:LaunchTemplate")["inputs"]["networkInterfaces"][0][
        "associatePublicIpAddress"
    ] = "true"


def _the_default_group(state: State) -> None:
    state.remove(_first(state, "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup"))


def _a_load_balancer(state: State) -> None:
    _add(state, "aws:lb/loadBalancer:LoadBalancer", internal=False)


def _a_public_bucket(state: State) -> None:
    _first(state, "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock")["inputs"]["restrictPublicBuckets"] = False


def _old_metadata(state: State) -> None:
    _first(state, "aws:ec2/launchTemplate:LaunchTemplate")["inputs"]["metadataOptions"]["httpTokens"] = "optional"


def _rules_inside_a_group(state: State) -> None:
    _first(state, "aws:ec2/securityGroup:SecurityGroup")["inputs"]["ingress"] = [
        {"protocol": "-1", "cidrBlocks": ["0.0.0.0/0"]}
    ]


HOLES: list[Callable[[State], None]] = [
    _route_to_internet,
    _route_to_a_peer,
    _ssh_from_everywhere,
    _everything_over_ipv6,
    _an_office_network,
    _a_strangers_group,
    _a_public_subnet,
    _a_public_interface,
    _the_default_group,
    _a_load_balancer,
    _a_public_bucket,
    _old_metadata,
    _rules_inside_a_group,
]


@pytest.mark.parametrize("make", HOLES, ids=lambda make: make.__name__.strip("_"))
def test_an_opening_is_found(make: Callable[[State], None]) -> None:
    """A state with one opening is reported."""
    state = state_of("aws-p4d")
    make(state)
    assert holes(state)
