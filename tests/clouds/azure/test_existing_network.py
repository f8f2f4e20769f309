"""In an existing network, the security group of the nodes lets other machines of the network in on no port."""

from __future__ import annotations

from typing import Any

import pytest

from gpuinfra.clouds.azure.components.security import LUSTRE_PORTS
from gpuinfra.plan.make import build_plan
from gpuinfra.spec import parse_spec
from tests.clouds.azure.variants import BASE, variant
from tests.clouds.azure.variants import EXISTING as NETWORK
from tests.clouds.stacks import TODAY

GUARD = "azure-native:network:NetworkSecurityGroup"
MEMBERS = "azure-native:network:ApplicationSecurityGroup"
SET = "azure-native:compute:VirtualMachineScaleSet"
EXISTING = ["existing network", "existing network with lustre", "existing DNS zone"]


def _ingress(name: str) -> list[dict[str, Any]]:
    group = next(one for one in variant(name).of(GUARD) if one.name.endswith("-nodes"))
    return [
        rule for rule in group.inputs["securityRules"] if (rule["direction"], rule["access"]) == ("Inbound", "Allow")
    ]


@pytest.mark.parametrize("name", EXISTING)
def test_the_tag_of_the_whole_network_opens_the_ports_of_lustre_only(name: str) -> None:
    """The service tag covers peered and on-premises networks, so a rule with it has the ports of the file servers."""
    for rule in _ingress(name):
        if rule.get("sourceAddressPrefix") in ("VirtualNetwork", "*"):
            assert rule.get("destinationPortRanges") == list(LUSTRE_PORTS), rule["name"]


@pytest.mark.parametrize("name", EXISTING)
def test_nodes_reach_each_other_as_members_of_one_group(name: str) -> None:
    """Each interface joins the group, and the group's members reach each other on all ports."""
    (group,) = variant(name).of(MEMBERS)
    between = [rule for rule in _ingress(name) if rule.get("sourceApplicationSecurityGroups")]
    assert [one["sourceApplicationSecurityGroups"] for one in between] == [[{"id": group.id}]]
    assert [one["destinationApplicationSecurityGroups"] for one in between] == [[{"id": group.id}]]
    for one in variant(name).of(SET):
        for card in one.inputs["virtualMachineProfile"]["networkProfile"]["networkInterfaceConfigurations"]:
            assert [ip["applicationSecurityGroups"] for ip in card["ipConfigurations"]] == [[{"id": group.id}]]


def test_a_network_of_the_stack_uses_the_ranges_of_its_subnets() -> None:
    """Without an existing network there is no such group, because the ranges are known."""
    assert variant("no storage").of(MEMBERS) == []


@pytest.mark.parametrize("order", [("netapp-0", "gpu"), ("storage-scratch-0", "gpu"), ("gpu", "netapp-0")])
def test_nodes_are_not_in_the_subnet_of_a_file_system(order: tuple[str, str]) -> None:
    """If no subnet has the name of the region, the nodes use the first one that is not for a file system."""
    subnets = {name: f"{NETWORK['id']}/subnets/{name}" for name in order}
    spec = parse_spec({**BASE, "network": {"existing": {**NETWORK, "subnets": subnets}}})
    network = build_plan(spec, TODAY).network
    assert network is not None
    assert [one.existing_id for one in network.subnets if one.role == "nodes"] == [subnets["gpu"]]
