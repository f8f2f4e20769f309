"""Nodes on Azure have no ingress from outside and only the declared egress, and deliberate misconfigurations are found."""

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
    """The registered resources in the form of an exported state."""
    return [{"type": one.type, "id": one.id, "inputs": copy.deepcopy(one.inputs)} for one in recording_of(stack).custom]


def declared(stack: str) -> frozenset[str]:
    """Ranges with access to evidence in the declaration."""
    return frozenset(spec_of(stack).access.evidence_from)


@pytest.mark.parametrize("stack", STACKS)
def test_nothing_is_reachable_from_outside(stack: str) -> None:
    """No rule, address, route, endpoint or storage firewall allows ingress from outside."""
    assert holes(state_of(stack), declared(stack)) == []


def test_nodes_reach_only_declared_destinations() -> None:
    """Nodes reach each other, file servers, private endpoints, the platform services of Azure, and two ports on the internet."""
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


def _account(state: State) -> dict[str, Any]:
    """An account without shared keys. The account of the flow logs needs them, and the internet does not reach it."""
    accounts = [one["inputs"] for one in state if one["type"].endswith(":StorageAccount")]
    return next(one for one in accounts if not one["allowSharedKeyAccess"])


def _nic(state: State) -> dict[str, Any]:
    profile = _first(state, "VirtualMachineScaleSet")["virtualMachineProfile"]["networkProfile"]
    return profile["networkInterfaceConfigurations"][0]


def _node_rules(state: State) -> list[dict[str, Any]]:
    wanted = _nic(state)["networkSecurityGroup"]["id"]
    return next(one["inputs"]["securityRules"] for one in state if one["id"] == wanted)


def _allow(priority: int, **changes: Any) -> dict[str, Any]:
    rule = {
        "name": "misconfigured", "priority": priority, "direction": "Inbound", "access": "Allow", "protocol": "Tcp", "sourceAddressPrefix": "*",
        "sourcePortRange": "*", "destinationAddressPrefix": "*", "destinationPortRange": "22",
    }  # fmt: skip
    return {**rule, **changes}


def _add(state: State, kind: str, **inputs: Any) -> None:
    state.append({"type": f"{NETWORK}{kind}", "id": "misconfigured", "inputs": inputs})


def _ssh_from_everywhere(state: State) -> None:
    _node_rules(state).append(_allow(200))


def _ssh_from_an_office(state: State) -> None:
    _node_rules(state).append(_allow(201, sourceAddressPrefix="203.0.113.0/24"))


def _ingress_from_the_internet_tag(state: State) -> None:
    _node_rules(state).append(_allow(202, sourceAddressPrefix="Internet", destinationPortRange="8000-9000"))


def _a_peering(state: State) -> None:
    _add(state, "VirtualNetworkPeering", remoteVirtualNetwork={"id": "other"})


def _a_public_interface(state: State) -> None:
    _nic(state)["ipConfigurations"][0]["publicIPAddressConfiguration"] = {"name": "public"}


def _no_security_group(state: State) -> None:
    del _nic(state)["networkSecurityGroup"]
    for one in state:
        if one["type"].endswith(":Subnet"):
            one["inputs"].pop("networkSecurityGroup", None)


def _default_outbound_access(state: State) -> None:
    _first(state, "Subnet")["defaultOutboundAccess"] = True


def _a_route_to_the_internet(state: State) -> None:
    _add(state, "RouteTable", routes=[{"addressPrefix": "0.0.0.0/0", "nextHopType": "Internet"}])
    _first(state, "Subnet")["routeTable"] = {"id": "misconfigured"}


def _a_load_balancer(state: State) -> None:
    _add(state, "LoadBalancer", frontendIPConfigurations=[{}])


def _another_public_address(state: State) -> None:
    _add(state, "PublicIPAddress", publicIPAllocationMethod="Static")


def _an_open_account(state: State) -> None:
    account = _account(state)
    account["publicNetworkAccess"] = "Enabled"
    account["networkRuleSet"]["defaultAction"] = "Allow"


def _shared_keys(state: State) -> None:
    _account(state)["allowSharedKeyAccess"] = True


def _keys_from_the_internet(state: State) -> None:
    for one in state:
        if one["type"].endswith(":StorageAccount") and one["inputs"]["allowSharedKeyAccess"]:
            one["inputs"]["publicNetworkAccess"] = "Enabled"


def _an_undeclared_address_at_an_account(state: State) -> None:
    _account(state)["networkRuleSet"]["ipRules"] = [{"iPAddressOrRange": "198.51.100.0/24"}]


def _an_open_vault(state: State) -> None:
    properties = _first(state, "Vault")["properties"]
    properties["publicNetworkAccess"] = "Enabled"
    properties["networkAcls"]["defaultAction"] = "Allow"


def _passwords(state: State) -> None:
    profile = _first(state, "VirtualMachineScaleSet")["virtualMachineProfile"]["osProfile"]
    profile["linuxConfiguration"]["disablePasswordAuthentication"] = False


HOLES: list[Callable[[State], None]] = [
    _ssh_from_everywhere, _ssh_from_an_office, _ingress_from_the_internet_tag, _a_peering, _a_public_interface, _no_security_group, _default_outbound_access,
    _a_route_to_the_internet, _a_load_balancer, _another_public_address, _an_open_account, _shared_keys, _an_undeclared_address_at_an_account,
    _keys_from_the_internet,
    _an_open_vault, _passwords,
]  # fmt: skip


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("make", HOLES, ids=lambda make: make.__name__.strip("_"))
def test_misconfigurations_are_found(make: Callable[[State], None], order: int) -> None:
    """Each misconfiguration of a valid state is reported, in whatever order the resources were registered."""
    state = state_of("azure-ndv5")[::order]
    make(state)
    assert holes(state, declared("azure-ndv5"))


def test_rules_after_the_last_deny_rule_have_no_effect() -> None:
    """The same rule with a lower priority is no misconfiguration."""
    state = state_of("azure-ndv5")
    denial = next(rule for rule in _node_rules(state) if rule["access"] == "Deny" and rule["direction"] == "Inbound")
    denial["priority"] = 4000
    _node_rules(state).append(_allow(4096))
    assert holes(state, declared("azure-ndv5")) == []
