"""The traffic that a diagram shows is the traffic that the security groups and firewall rules allow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.connections import INTERNET, NODES, Traffic
from gpuinfra.plan.make import build_plan
from gpuinfra.spec import parse_spec
from tests.clouds.recorder import Recording
from tests.clouds.stacks import TODAY, plan_of, recording_of, recording_of_spec, shipped_stacks

Token = tuple[str, str, str, str]
"""Direction as the nodes see it (`in`, `out`), the other end, the protocol, and a port, a range of ports or `all`."""
FILES, SERVICES = "file systems", "services"

DECLARED: dict[str, dict[str, Any]] = {
    "aws": {
        "name": "open",
        "where": {"cloud": "aws", "region": "us-east-1", "zone": "use1-az4"},
        "pools": [{"name": "gpu", "machine": "p4d.24xlarge", "capacity": [{"kind": "on_demand", "count": 1}]}],
        "storage": [
            {"kind": "lustre", "mount": "/scratch", "capacity_gib": 1200},
            {"kind": "home", "mount": "/home"},
            {"kind": "home", "mount": "/tools", "service": "openzfs"},
        ],
        "access": {"ingress": [{"sources": ["10.9.0.0/16"], "ports": ["8080", "9000-9100"]}]},
    },
    "azure": {
        "name": "open",
        "where": {"cloud": "azure", "region": "southcentralus"},
        "pools": [{"name": "gpu", "machine": "Standard_ND96amsr_A100_v4", "capacity": [{"kind": "on_demand", "count": 1}]}],
        "storage": [{"kind": "home", "mount": "/home"}, {"kind": "home", "mount": "/tools", "service": "netapp"}],
        "access": {
            "bastion": True,
            "ssh_from": ["10.8.0.0/16"],
            "ingress": [{"sources": ["10.9.0.0/16"], "ports": ["8080"]}],
            "evidence_from": ["203.0.113.0/24"],
        },
    },
    "gcp": {
        "name": "open",
        "where": {"cloud": "gcp", "region": "us-central1", "zone": "us-central1-a"},
        "pools": [{"name": "gpu", "machine": "a2-highgpu-8g", "capacity": [{"kind": "on_demand", "count": 1}]}],
        "storage": [{"kind": "lustre", "mount": "/scratch", "capacity_gib": 18000}, {"kind": "home", "mount": "/home", "capacity_gib": 1024}],
        "access": {"ssh_from": ["10.8.0.0/16"], "ingress": [{"sources": ["10.9.0.0/16"], "ports": ["8080"], "protocol": "udp"}]},
    },
}  # fmt: skip
"""A cluster with all kinds of declared access and several services for home directories, on each cloud."""


def shown(found: tuple[Traffic, ...]) -> set[Token]:
    """The tokens of the connections."""
    tokens: set[Token] = set()
    for one in found:
        inward = one.target == NODES
        other = _other(one.source if inward else one.target)
        directions = {"in", "out"} if one.both_ways else {"in" if inward else "out"}
        protocols = [one.protocol] if one.ports else one.protocol.split(", ")
        tokens |= {
            (direction, other, protocol, port)
            for direction in directions
            for protocol in protocols
            for port in one.ports or ("all",)
        }
    return tokens


def _other(name: str) -> str:
    if name.startswith(("lustre ", "home ")):
        return FILES
    return name if name in (NODES, INTERNET) or "/" in name else SERVICES


def aws_rules(recording: Recording) -> Iterator[Token]:
    """The rules of the nodes' security group."""
    (nodes,) = [one.id for one in recording.of("aws:ec2/securityGroup:SecurityGroup") if one.name.endswith("-nodes")]
    for direction, kind in (("in", "Ingress"), ("out", "Egress")):
        for one in recording.of(f"aws:vpc/securityGroup{kind}Rule:SecurityGroup{kind}Rule"):
            given = one.inputs
            if given["securityGroupId"] != nodes:
                continue
            peer = given.get("referencedSecurityGroupId")
            cidr = str(given.get("cidrIpv4"))
            other = NODES if peer == nodes else FILES if peer else INTERNET if cidr == "0.0.0.0/0" else cidr
            first, last = given.get("fromPort"), given.get("toPort")
            span = "all" if first is None else f"{first:g}" if first == last else f"{first:g}-{last:g}"
            yield direction, other, "all" if given["ipProtocol"] == "-1" else given["ipProtocol"], span


def gcp_rules(recording: Recording) -> Iterator[Token]:
    """The firewall rules that allow traffic. Networks for data have one rule, between the nodes."""
    subnets = {one.inputs["ipCidrRange"] for one in recording.of("gcp:compute/subnetwork:Subnetwork")}
    services = {
        f"{one.inputs['address']}/{one.inputs['prefixLength']:g}"
        for one in recording.of("gcp:compute/globalAddress:GlobalAddress")
        if one.inputs.get("purpose") == "VPC_PEERING"
    }
    for one in recording.of("gcp:compute/firewall:Firewall"):
        given = one.inputs
        direction = "in" if given["direction"] == "INGRESS" else "out"
        for other in given.get("sourceRanges") or given.get("destinationRanges") or ["accounts"]:
            place = NODES if other in subnets or other == "accounts" else FILES if other in services else other
            place = {"0.0.0.0/0": INTERNET, "199.36.153.8/30": SERVICES, "199.36.153.4/30": SERVICES}.get(place, place)
            for allow in given.get("allows") or []:
                for port in allow.get("ports") or ["all"]:
                    yield direction, place, allow["protocol"], port


def azure_rules(recording: Recording) -> Iterator[Token]:
    """The rules of the nodes' security group. Its address prefixes do not distinguish nodes from file systems in an existing network."""
    groups = recording.of("azure-native:network:NetworkSecurityGroup")
    (nodes,) = [one.inputs for one in groups if one.name.endswith("-nodes")]
    for rule in nodes["securityRules"]:
        if rule["access"] != "Allow":
            continue
        inward = rule["direction"] == "Inbound"
        end = "source" if inward else "destination"
        prefixes = rule.get(f"{end}AddressPrefixes") or [rule.get(f"{end}AddressPrefix")]
        ports = rule.get("destinationPortRanges") or [rule.get("destinationPortRange")]
        for port in ports:
            for prefix in prefixes:
                yield "in" if inward else "out", str(prefix), rule["protocol"].lower().replace("*", "all"), port.replace("*", "all")  # fmt: skip


RULES = {"aws": aws_rules, "gcp": gcp_rules}
STACKS = [name for cloud in RULES for name in shipped_stacks(cloud)]


@pytest.mark.parametrize("stack", STACKS)
def test_a_diagram_shows_the_rules_of_the_nodes(stack: str) -> None:
    """Each connection of a plan is a rule that the components create, and each rule of the nodes is a connection."""
    plan = plan_of(stack)
    found = shown(cloud_of(plan.cloud).connections(plan))
    if plan.cloud == "aws" and "site" not in plan.layers:
        assert found == set()
        return
    _compare(plan.cloud, found, recording_of(stack))


@pytest.mark.parametrize("cloud", RULES)
def test_a_diagram_shows_declared_access(cloud: str) -> None:
    """Connections that the declaration allows are shown with their networks and ports."""
    spec = parse_spec(DECLARED[cloud])
    found = shown(cloud_of(spec.cloud).connections(build_plan(spec, TODAY)))
    assert ("in", "10.9.0.0/16", "udp" if cloud == "gcp" else "tcp", "8080") in found
    _compare(cloud, found, recording_of_spec(spec))


def _compare(cloud: str, found: set[Token], recording: Recording) -> None:
    rules = set(RULES[cloud](recording))
    if cloud == "gcp" and not any(direction == "out" for direction, *_ in rules):
        # Rules in an existing network do not limit egress.
        found = {one for one in found if one[0] == "in"}
    assert found == rules


@pytest.mark.parametrize("stack", shipped_stacks("azure"))
def test_a_diagram_shows_the_ports_of_azure(stack: str) -> None:
    """On Azure, directions, protocols and ports are those of the rules in the nodes' security group."""
    plan = plan_of(stack)
    assert _ports(shown(cloud_of(plan.cloud).connections(plan))) == _ports(set(azure_rules(recording_of(stack))))


def test_a_diagram_shows_declared_access_on_azure() -> None:
    """Declared networks and their ports are shown, and those of Bastion."""
    spec = parse_spec(DECLARED["azure"])
    found = tuple(cloud_of(spec.cloud).connections(build_plan(spec, TODAY)))
    rules = set(azure_rules(recording_of_spec(spec)))
    assert _ports(shown(found)) == _ports(rules)
    assert {("in", "10.8.0.0/16", "tcp", "22"), ("in", "10.9.0.0/16", "tcp", "8080")} <= shown(found) & rules
    assert [one.label for one in found if one.source == "Bastion"] == ["TCP 22"]


def _ports(tokens: set[Token]) -> set[tuple[str, str, str]]:
    return {(direction, protocol, port) for direction, _, protocol, port in tokens}
