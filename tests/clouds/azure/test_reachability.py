"""No node on Azure is reached from outside, nodes reach what is declared, and a hole made on purpose is found."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.clouds.azure.reach import Out, holes, outwards
from tests.clouds.stacks import recording_of, shipped_stacks, spec_of

State = list[dict[str, Any]]
STACKS = shipped_stacks("azure")
NETWORK = "azure-native:network:"


def state_of(stack: str) -> State:
    """What the program registers, in the shape of an exported state."""
    return [{"type": one.type, "id": one.id, "inputs": copy.deepcopy(one.inputs)} for one in recording_of(stack).custom]


def declared(stack: str) -> frozenset[str]:
    """Addresses that the declaration lets read evidence."""
    return frozenset(spec_of(stack).access.evidence_from)


@pytest.mark.parametrize("stack", STACKS)
def test_nobody_comes_in(stack: str) -> None:
    """There is no rule, no address, no route, no endpoint and no storage firewall that lets somebody in from outside."""
    assert holes(state_of(stack), declared(stack)) == []


def test_nodes_reach_each_other_the_file_system_and_the_web() -> None:
    """And nothing else: each other, file servers, the private endpoints, the metadata that Azure routes to every machine, and two ports outwards."""
    found = outwards(state_of("azure-ndv5"))
    assert {one for one in found if one.to == "Internet"} == {Out(to="Internet", protocol="Tcp", ports="80,443")}
    assert {(one.to, one.ports) for one in found if one.ports == "*"} == {("10.64.32.0/19", "*")}
    assert {one.to for one in found} - {"Internet"} <= {
        "10.64.32.0/19",
        "10.64.0.0/23",
        "10.64.30.0/23",
        "AzureCloud",
        "Storage",
        "AzureActiveDirectory",
    }


def _first(state: State, kind: str) -> dict[str, Any]:
    return next(one["inputs"] for one in state if one["type"].endswith(f":{kind}"))


def _nic(state: State) -> dict[str, Any]:
    profile = _first(state, "VirtualMachineScaleSet")["virtualMachineProfile"]["networkProfile"]
    return profile["networkInterfaceConfigurations"][0]


def _node_rules(state: State) -> list[dict[str, Any]]:
    wanted = _nic(state)["networkSecurityGroup"]["id"]
    return next(one["inputs"]["securityRules"] for one in state if one["id"] == wanted)


def _allow(priority: int, **changes: Any) -> dict[str, Any]:
    rule = {
        "name": "on-purpose", "priority": priority, "direction": "Inbound", "access": "Allow", "protocol": "Tcp", "sourceAddressPrefix": "*",
        "sourcePortRange": "*", "destinationAddressPrefix": "*", "destinationPortRange": "22",
    }  # fmt: skip
    return {**rule, **changes}


def _add(state: State, kind: str, **inputs: Any) -> None:
    state.append({"type": f"{NETWORK}{kind}", "id": "made-on-purpose", "inputs": inputs})


def _ssh_from_everywhere(state: State) -> None:
    _node_rules(state).append(_allow(200))


def _an_office(state: State) -> None:
    _node_rules(state).append(_allow(201, sourceAddressPrefix="203.0.113.0/24"))


def _internet_by_its_tag(state: State) -> None:
    _node_rules(state).append(_allow(202, sourceAddressPrefix="Internet", destinationPortRange="8000-9000"))


def _no_last_denial_and_a_peer(state: State) -> None:
    _add(state, "VirtualNetworkPeering", remoteVirtualNetwork={"id": "other"})


def _a_public_interface(state: State) -> None:
    _nic(state)["ipConfigurations"][0]["publicIPAddressConfiguration"] = {"name": "public"}


def _no_security_group(state: State) -> None:
    del _nic(state)["networkSecurityGroup"]
    for one in state:
        if one["type"].endswith(":Subnet"):
            one["inputs"].pop("networkSecurityGroup", None)


def _default_way_out(state: State) -> None:
    _first(state, "Subnet")["defaultOutboundAccess"] = True


def _a_route_to_the_internet(state: State) -> None:
    _add(state, "RouteTable", routes=[{"addressPrefix": "0.0.0.0/0", "nextHopType": "Internet"}])
    _first(state, "Subnet")["routeTable"] = {"id": "made-on-purpose"}


def _a_load_balancer(state: State) -> None:
    _add(state, "LoadBalancer", frontendIPConfigurations=[{}])


def _another_public_address(state: State) -> None:
    _add(state, "PublicIPAddress", publicIPAllocationMethod="Static")


def _an_open_account(state: State) -> None:
    account = _first(state, "StorageAccount")
    account["publicNetworkAccess"] = "Enabled"
    account["networkRuleSet"]["defaultAction"] = "Allow"


def _keys_of_an_account(state: State) -> None:
    _first(state, "StorageAccount")["allowSharedKeyAccess"] = True


def _keys_from_everywhere(state: State) -> None:
    for one in state:
        if one["type"].endswith(":StorageAccount") and one["inputs"]["allowSharedKeyAccess"]:
            one["inputs"]["publicNetworkAccess"] = "Enabled"


def _an_undeclared_address_at_an_account(state: State) -> None:
    _first(state, "StorageAccount")["networkRuleSet"]["ipRules"] = [{"iPAddressOrRange": "198.51.100.0/24"}]


def _an_open_vault(state: State) -> None:
    properties = _first(state, "Vault")["properties"]
    properties["publicNetworkAccess"] = "Enabled"
    properties["networkAcls"]["defaultAction"] = "Allow"


def _passwords(state: State) -> None:
    profile = _first(state, "VirtualMachineScaleSet")["virtualMachineProfile"]["osProfile"]
    profile["linuxConfiguration"]["disablePasswordAuthentication"] = False


HOLES: list[Callable[[State], None]] = [
    _ssh_from_everywhere, _an_office, _internet_by_its_tag, _no_last_denial_and_a_peer, _a_public_interface, _no_security_group, _default_way_out,
    _a_route_to_the_internet, _a_load_balancer, _another_public_address, _an_open_account, _keys_of_an_account, _an_undeclared_address_at_an_account,
    _keys_from_everywhere,
    _an_open_vault, _passwords,
]  # fmt: skip


@pytest.mark.parametrize("make", HOLES, ids=lambda make: make.__name__.strip("_"))
def test_a_hole_is_found(make: Callable[[State], None]) -> None:
    """The walk that is silent about ours names what is wrong in a state with one hole."""
    state = state_of("azure-ndv5")
    make(state)
    assert holes(state, declared("azure-ndv5"))


def test_a_rule_behind_the_last_denial_opens_nothing() -> None:
    """Order decides: the same rule after the denial of everything is no hole."""
    state = state_of("azure-ndv5")
    denial = next(rule for rule in _node_rules(state) if rule["access"] == "Deny" and rule["direction"] == "Inbound")
    denial["priority"] = 4000
    _node_rules(state).append(_allow(4096))
    assert holes(state, declared("azure-ndv5")) == []
