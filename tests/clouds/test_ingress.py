"""Connections that `access.ingress` declares are open on every cloud, and no others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.report.plan_json import plan_report
from gpuinfra.report.plan_text import text
from gpuinfra.spec import parse_spec
from tests.clouds.stacks import recording_of_spec
from tests.rules.cases import TODAY

PEER, OFFICE = "10.0.0.0/16", "192.168.7.0/24"
ENTRIES = [
    {"sources": [PEER, OFFICE], "ports": ["8080", "9000-9100"]},
    {"sources": [OFFICE], "ports": ["53"], "protocol": "udp"},
]
OPEN = {
    ("tcp", "8080", PEER),
    ("tcp", "8080", OFFICE),
    ("tcp", "9000-9100", PEER),
    ("tcp", "9000-9100", OFFICE),
    ("udp", "53", OFFICE),
}
WHERE: dict[str, tuple[dict[str, str], str]] = {
    "aws": ({"cloud": "aws", "region": "us-east-1", "zone": "use1-az4"}, "p4d.24xlarge"),
    "azure": ({"cloud": "azure", "region": "southcentralus"}, "Standard_ND96amsr_A100_v4"),
    "gcp": ({"cloud": "gcp", "region": "us-central1", "zone": "us-central1-a"}, "a2-highgpu-8g"),
}

Opened = set[tuple[str, str, str]]


def _aws(inputs: dict[str, list[dict[str, Any]]]) -> Opened:
    found: Opened = set()
    for rule in inputs["aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"]:
        if cidr := rule.get("cidrIpv4"):
            first, last = int(rule["fromPort"]), int(rule["toPort"])
            found.add((rule["ipProtocol"], str(first) if first == last else f"{first}-{last}", cidr))
    return found


def _azure(inputs: dict[str, list[dict[str, Any]]]) -> Opened:
    found: Opened = set()
    for group in inputs["azure-native:network:NetworkSecurityGroup"]:
        for rule in group["securityRules"]:
            sources = rule.get("sourceAddressPrefixes") or [rule.get("sourceAddressPrefix")]
            ports = rule.get("destinationPortRanges") or [rule.get("destinationPortRange")]
            if rule["direction"] == "Inbound" and rule["access"] == "Allow" and {*sources} & {PEER, OFFICE}:
                found |= {(rule["protocol"].lower(), one, source) for one in ports for source in sources}
    return found


def _gcp(inputs: dict[str, list[dict[str, Any]]]) -> Opened:
    found: Opened = set()
    for rule in inputs["gcp:compute/firewall:Firewall"]:
        if rule["direction"] != "INGRESS" or not {*rule.get("sourceRanges", [])} & {PEER, OFFICE}:
            continue
        for allow in rule["allows"]:
            found |= {(allow["protocol"], one, source) for one in allow["ports"] for source in rule["sourceRanges"]}
    return found


@pytest.mark.parametrize(("cloud", "opened"), [("aws", _aws), ("azure", _azure), ("gcp", _gcp)])
def test_declared_connections_are_open_and_no_others(cloud: str, opened: Any) -> None:
    """The rules of the network allow each declared protocol, port and network, and nothing else from these networks."""
    where, machine = WHERE[cloud]
    declaration: dict[str, Any] = {
        "name": "serve",
        "where": where,
        "pools": [{"name": "gpu", "machine": machine, "capacity": [{"kind": "on_demand", "count": 1}]}],
        "access": {"ingress": ENTRIES, **({"evidence_from": ["203.0.113.0/24"]} if cloud == "azure" else {})},
    }
    inputs: dict[str, list[dict[str, Any]]] = {}
    for one in recording_of_spec(parse_spec(declaration)).custom:
        inputs.setdefault(one.type, []).append(one.inputs)
    assert opened(inputs) == OPEN


@pytest.mark.parametrize(
    "network",
    [
        {},
        {"network": {"existing": {"id": "vpc-00000000000000001", "subnets": {"use1-az4": "subnet-00000000000000001"}}}},
    ],
)
def test_the_plan_lists_declared_connections(tmp_path: Path, network: dict[str, Any]) -> None:
    """The text of a plan lists the declared connections, for a network that it creates and for an existing one."""
    where, machine = WHERE["aws"]
    declaration: dict[str, Any] = {
        "name": "serve",
        "where": where,
        "pools": [{"name": "gpu", "machine": machine, "capacity": [{"kind": "on_demand", "count": 1}]}],
        "access": {"ingress": ENTRIES},
        **network,
    }
    stack = tmp_path / "Pulumi.serve.yaml"
    stack.write_text(json.dumps({"config": {"gpuinfra:cluster": declaration}}))
    assert f"tcp 8080, 9000-9100 from {PEER}, {OFFICE}; udp 53 from {OFFICE}" in text(plan_report(stack, TODAY))
