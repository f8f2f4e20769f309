"""An existing file system is mounted, and its traffic is open on the side of the nodes only; the stack neither creates, retains nor prices it."""

from __future__ import annotations

import base64
import functools
import json
import re
from typing import Any

import pytest

from gpuinfra.cost import price
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Plan
from gpuinfra.report.plan_tables import existing_text
from gpuinfra.rules import check
from gpuinfra.spec import parse_spec
from tests.clouds.recorder import Recording
from tests.clouds.stacks import recording_of_spec
from tests.rules.cases import (
    AMLFS,
    EFS,
    FILE_SHARE,
    FILESTORE,
    FSX,
    MANAGED_LUSTRE,
    NETAPP,
    OPENZFS,
    TODAY,
    declaration,
    existing,
)

_FSX_NAME, _EFS_NAME = (f"{id}.us-east-1.amazonaws.com" for id in ("fs-0123456789abcdef0.fsx", "fs-0fedcba9876543210.efs"))  # fmt: skip
CASES: dict[str, tuple[tuple[str, dict[str, Any]], dict[str, str]]] = {
    "fsx": (existing("aws", FSX), {"kind": "lustre", "mount": "/scratch", "dns_name": _FSX_NAME, "mount_name": "a1b2c3d4"}),
    "efs": (existing("aws", EFS, kind="home", mount="/home"), {"kind": "home", "mount": "/home", "dns_name": _EFS_NAME, "mount_name": "/"}),
    "managed-lustre": (existing("gcp", MANAGED_LUSTRE), {"kind": "lustre", "mount": "/scratch", "dns_name": "10.40.0.2", "mount_name": "scratch"}),
    "filestore": (existing("gcp", FILESTORE, kind="home", mount="/home"), {"kind": "home", "mount": "/home", "dns_name": "10.41.0.2", "mount_name": "/share1"}),
    "azure-lustre": (existing("azure", AMLFS), {"kind": "lustre", "mount": "/scratch", "dns_name": "10.0.4.4", "mount_name": "lustrefs"}),
    "azure-files": (existing("azure", FILE_SHARE, kind="home", mount="/home"), {"kind": "home", "mount": "/home", "dns_name": "corphomes.file.core.windows.net", "mount_name": "/corphomes/home"}),
    "openzfs": (existing("aws", OPENZFS, kind="home", mount="/home", entry={"service": "openzfs"}), {"kind": "home", "mount": "/home", "dns_name": "fs-0abcdef9876543210.fsx.us-east-1.amazonaws.com", "mount_name": "/fsx"}),
    "netapp": (existing("azure", NETAPP, kind="home", mount="/home", entry={"service": "netapp"}), {"kind": "home", "mount": "/home", "dns_name": "10.0.4.5", "mount_name": "/corp-home"}),
}  # fmt: skip
_STORAGE = (":fsx/", ":efs/", ":lustre/", ":filestore/", ":storagecache:", ":storage:File", ":netapp:")


def _spec(name: str) -> dict[str, Any]:
    spec = declaration(CASES[name][0])
    if spec["where"]["cloud"] == "azure":
        spec["access"] = {"evidence_from": ["203.0.113.0/24"]}
    return spec


def plan_of(name: str) -> Plan:
    """The plan of a case."""
    spec = parse_spec(_spec(name))
    assert [one for one in check(spec, TODAY) if one.level == "error"] == []
    return build_plan(spec, TODAY)


@functools.cache
def recording(name: str) -> Recording:
    """The registrations of a case."""
    return recording_of_spec(_spec(name))


@pytest.mark.parametrize("name", CASES)
def test_nodes_mount_the_existing_file_system(name: str) -> None:
    """The nodes get its address and mount name, run the step that mounts it, and must pass the check of the mount."""
    kind, mount = CASES[name][1]["kind"], CASES[name][1]["mount"]
    (pool,) = plan_of(name).pools
    assert ("60-lustre" if kind == "lustre" else "62-home") in [step.id for step in pool.steps]
    assert pool.expectation.get("file_systems" if kind == "lustre" else "homes") == [mount]
    found = _node_files(name)
    for key, value in CASES[name][1].items():
        assert re.search(rf'"{key}": ?"{re.escape(value)}"', found), key


def _node_files(name: str) -> str:
    """The user data of all nodes, decoded where the cloud expects base64."""
    found = []
    for one in recording(name).custom:
        text = json.dumps(one.inputs, default=str)
        found += [
            base64.b64decode(data).decode("utf-8", "replace")
            for data in re.findall(r'"(?:userData|customData)": "([^"]+)"', text)
        ]
        metadata = one.inputs.get("metadata")
        found.append(str(metadata.get("user-data", "")) if isinstance(metadata, dict) else "")
    return "".join(found)


@pytest.mark.parametrize("name", CASES)
def test_the_stack_neither_creates_nor_retains_nor_prices_it(name: str) -> None:
    """No file system is created or retained, the plan contains no line with its price, and it says that the file system is not part of the price."""
    plan = plan_of(name)
    assert not [one for one in plan.resources if any(word in one for word in _STORAGE)]
    assert not [one for one in plan.kept if any(word in one.type for word in _STORAGE)]
    cost = price(plan, TODAY)
    assert not [line for line in cost.lines if line.kind == "storage"]
    assert cost.complete
    (one,) = plan.existing_file_systems
    assert f"{one.mount}: {one.id}, existing, billed to its owner" in cost.unknown
    assert "existing, not part of the price" in existing_text(one)


@pytest.mark.parametrize("name", CASES)
def test_the_plan_counts_the_rules_that_the_program_creates(name: str) -> None:
    """The number of resources in the plan is the number that the program registers."""
    plan, made = plan_of(name), recording(name)
    types = [one.type for one in made.custom]
    assert {type_: types.count(type_) for type_ in plan.resources} == plan.resources


def _aws_rules(name: str, direction: str, group: str) -> set[tuple[str, Any, Any]]:
    kind = f"aws:vpc/securityGroup{direction}Rule:SecurityGroup{direction}Rule"
    return {
        (one.inputs["ipProtocol"], one.inputs.get("fromPort"), one.inputs.get("toPort"))
        for one in recording(name).of(kind)
        if one.inputs.get("referencedSecurityGroupId") == group
    }


def test_aws_opens_the_ports_between_nodes_and_the_group_of_the_file_system() -> None:
    """Lustre uses its ports in both directions, and NFS from the nodes only. No rule is added to the group of the file system."""
    ports = {("tcp", 988, 988), ("tcp", 1018, 1023)}
    assert _aws_rules("fsx", "Egress", FSX["security_group"]) == ports
    assert _aws_rules("fsx", "Ingress", FSX["security_group"]) == ports
    assert _aws_rules("efs", "Egress", EFS["security_group"]) == {("tcp", 2049, 2049)}
    assert _aws_rules("efs", "Ingress", EFS["security_group"]) == set()
    assert _aws_rules("openzfs", "Egress", OPENZFS["security_group"]) == {("tcp", 111, 111), ("tcp", 2049, 2049), ("tcp", 20001, 20003)}  # fmt: skip
    assert _aws_rules("openzfs", "Ingress", OPENZFS["security_group"]) == set()
    for name in ("fsx", "efs", "openzfs"):
        for direction in ("Egress", "Ingress"):
            for one in recording(name).of(f"aws:vpc/securityGroup{direction}Rule:SecurityGroup{direction}Rule"):
                assert one.inputs["securityGroupId"] != FSX["security_group"]


def test_aws_opens_all_protocols_for_efa() -> None:
    """EFA traffic matches only a rule with all protocols that refers to a group, so the file system with EFA has that rule."""
    spec = declaration(existing("aws", {**FSX, "efa_enabled": True}, entry={"fabric": True}))
    spec["pools"][0]["machine"] = "p5.48xlarge"
    made = recording_of_spec(spec)
    for direction in ("Egress", "Ingress"):
        rules = made.of(f"aws:vpc/securityGroup{direction}Rule:SecurityGroup{direction}Rule")
        (rule,) = [one for one in rules if one.inputs.get("referencedSecurityGroupId") == FSX["security_group"]]
        assert rule.inputs["ipProtocol"] == "-1"
    assert "all traffic to and from the nodes' security group" in build_plan(parse_spec(spec), TODAY).existing_file_systems[0].owner_opens  # fmt: skip


def test_aws_file_systems_with_one_security_group_share_their_rules() -> None:
    """EC2 refuses a rule with the values of another rule, so two file systems with the same group have one set of rules."""
    spec = declaration(existing("aws", FSX))
    other = existing("aws", FSX, id="fs-0aaaaaaaaaaaaaaa0", mount="/data")[1]["storage"]
    spec["storage"] += other
    made = recording_of_spec(spec).of("aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule")
    shown = [json.dumps({key: one.inputs.get(key) for key in ("referencedSecurityGroupId", "ipProtocol", "fromPort")}) for one in made]  # fmt: skip
    assert len(shown) == len(set(shown))


def test_google_lets_the_servers_of_lustre_reach_the_nodes() -> None:
    """One rule admits port 988 from the range of the file system, to the nodes only. Filestore opens no connections, so it has none."""
    rules = [one.inputs for one in recording("managed-lustre").of("gcp:compute/firewall:Firewall")]
    (rule,) = [one for one in rules if one.get("sourceRanges") == ["10.40.0.0/24"]]
    assert rule["allows"] == [{"protocol": "tcp", "ports": ["988"]}]
    assert rule["direction"] == "INGRESS"
    assert len(rule["targetServiceAccounts"]) == 1
    without = [one.name for one in recording("filestore").of("gcp:compute/firewall:Firewall")]
    assert not [name for name in without if name.endswith("allow-lustre")]


def test_azure_opens_the_ports_of_lustre_in_the_group_of_the_nodes() -> None:
    """The group of the nodes allows Lustre in both directions inside the virtual network, and no group for file servers is created."""
    groups = recording("azure-lustre").of("azure-native:network:NetworkSecurityGroup")
    assert [one.name for one in groups if one.name.endswith("storage")] == []
    (nodes,) = [one for one in groups if one.name.endswith("-nodes")]
    rules = {one["name"]: one for one in nodes.inputs["securityRules"]}
    for direction in ("ingress", "egress"):
        rule = rules[f"allow-existing-file-systems-{direction}"]
        assert rule["destinationPortRanges"] == ["988", "1019-1023"]
        assert rule["protocol"] == "Tcp"


def test_azure_opens_the_port_of_nfs_in_the_group_of_the_nodes() -> None:
    """The group of the nodes allows NFS to the virtual network, in which the private endpoint of the share is, and from nowhere."""
    (nodes,) = [one for one in recording("azure-files").of("azure-native:network:NetworkSecurityGroup") if one.name.endswith("-nodes")]  # fmt: skip
    nfs = [one for one in nodes.inputs["securityRules"] if one.get("destinationPortRange") == "2049"]
    assert [(one["name"], one["direction"], one["protocol"], one["destinationAddressPrefix"]) for one in nfs] == [
        ("allow-homes-egress", "Outbound", "Tcp", "VirtualNetwork")
    ]


def test_azure_opens_the_ports_of_nfs_3_in_the_group_of_the_nodes() -> None:
    """The group of the nodes allows the ports of Azure NetApp Files to the virtual network, and no group for the volume is created."""
    (nodes,) = recording("netapp").of("azure-native:network:NetworkSecurityGroup")
    (rule,) = [one for one in nodes.inputs["securityRules"] if one["name"] == "allow-netapp-egress"]
    assert rule["destinationPortRanges"] == ["111", "635", "2049", "4045-4046"]
    assert (rule["direction"], rule["destinationAddressPrefix"]) == ("Outbound", "VirtualNetwork")
