"""Nodes on Google Cloud are not reachable from outside and reach what is declared; deliberately opened access is found."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.clouds.gcp.reach import Out, holes, outwards
from tests.clouds.stacks import recording_of, shipped_stacks

State = list[dict[str, Any]]
STACKS = shipped_stacks("gcp")
STACK = "gcp-a3mega"


def state_of(stack: str) -> State:
    """The registered resources in the form of an exported state."""
    return [{"type": one.type, "id": one.id, "inputs": copy.deepcopy(one.inputs)} for one in recording_of(stack).custom]


@pytest.mark.parametrize("stack", STACKS)
def test_no_access_from_outside(stack: str) -> None:
    """No rule, address, route, peering or bucket gives access from outside, in any of up to ten networks."""
    assert holes(state_of(stack)) == []


def test_nodes_reach_each_other_the_file_system_and_the_internet() -> None:
    """Egress is open to the subnet of the nodes, to the file servers, and to two ports of the internet only."""
    assert outwards(state_of(STACK)) == {
        Out(to="10.64.32.0/19", protocol="tcp", ports="*"),
        Out(to="10.64.32.0/19", protocol="udp", ports="*"),
        Out(to="10.64.32.0/19", protocol="icmp", ports="*"),
        Out(to="10.64.0.0/22", protocol="tcp", ports="988"),
        Out(to="0.0.0.0/0", protocol="tcp", ports="80,443"),
    }


def _first(state: State, kind: str) -> dict[str, Any]:
    return next(one["inputs"] for one in state if one["type"].endswith(f":{kind}"))


def _main(state: State) -> str:
    return next(one["inputs"]["network"] for one in state if one["type"].endswith(":Router"))


def _add(state: State, type_: str, **inputs: Any) -> None:
    state.append({"type": f"gcp:compute/x:{type_}", "id": "deliberate", "inputs": {"name": "deliberate", **inputs}})


def _allow(state: State, **changes: Any) -> None:
    rule = {
        "network": _main(state),
        "direction": "INGRESS",
        "priority": 900,
        "sourceRanges": ["0.0.0.0/0"],
        "allows": [{"protocol": "tcp", "ports": ["22"]}],
    }
    _add(state, "Firewall", **{**rule, **changes})


def _ssh_from_everywhere(state: State) -> None:
    _allow(state)


def _an_office_for_a_tag(state: State) -> None:
    _allow(state, sourceRanges=["203.0.113.0/24"], targetTags=["bastion"], allows=[{"protocol": "tcp"}])


def _pings_before_the_deny_rule(state: State) -> None:
    _allow(state, priority=64999, allows=[{"protocol": "icmp"}])


def _a_rule_in_a_data_network(state: State) -> None:
    network = next(one["inputs"]["network"] for one in state if "data-3" in str(one["inputs"].get("network")))
    _allow(state, network=network, sourceRanges=["172.16.0.0/12"], allows=[{"protocol": "udp"}])


def _a_public_address(state: State) -> None:
    _first(state, "InstanceTemplate")["networkInterfaces"][0]["accessConfigs"] = [{"networkTier": "PREMIUM"}]


def _public_ipv6(state: State) -> None:
    _first(state, "Subnetwork").update(stackType="IPV4_IPV6", ipv6AccessType="EXTERNAL")


def _a_peering(state: State) -> None:
    _add(state, "NetworkPeering", network=_main(state), peerNetwork="projects/other/global/networks/x")


def _a_tunnel(state: State) -> None:
    _add(state, "VpnTunnel", peerIp="198.51.100.1")


def _a_load_balancer(state: State) -> None:
    _add(state, "ForwardingRule", loadBalancingScheme="EXTERNAL")


def _no_deny_rule_for_egress(state: State) -> None:
    for one in list(state):
        if one["type"].endswith(":Firewall") and one["inputs"].get("denies") and one["inputs"]["direction"] == "EGRESS":
            state.remove(one)


def _a_route_to_an_appliance(state: State) -> None:
    _add(state, "Route", network=_main(state), destRange="0.0.0.0/0", nextHopInstance="appliance")


def _a_public_bucket(state: State) -> None:
    _first(state, "Bucket")["publicAccessPrevention"] = "inherited"


def _a_public_reader(state: State) -> None:
    _first(state, "BucketIAMMember")["member"] = "allUsers"


def _serial_console(state: State) -> None:
    _first(state, "InstanceTemplate")["metadata"]["serial-port-enable"] = "TRUE"


def _keys_in_metadata(state: State) -> None:
    _first(state, "InstanceTemplate")["metadata"]["enable-oslogin"] = "FALSE"


HOLES: list[Callable[[State], None]] = [
    _ssh_from_everywhere, _an_office_for_a_tag, _pings_before_the_deny_rule, _a_rule_in_a_data_network, _a_public_address, _public_ipv6, _a_peering, _a_tunnel,
    _a_load_balancer, _no_deny_rule_for_egress, _a_route_to_an_appliance, _a_public_bucket, _a_public_reader, _serial_console, _keys_in_metadata,
]  # fmt: skip


@pytest.mark.parametrize("make", HOLES, ids=lambda make: make.__name__.strip("_"))
def test_opened_access_is_found(make: Callable[[State], None]) -> None:
    """The walk reports a state with one opened access."""
    state = state_of(STACK)
    make(state)
    assert holes(state)


def test_a_rule_after_the_deny_rule_has_no_effect() -> None:
    """A rule with a higher number than the deny rule opens no access."""
    state = state_of(STACK)
    _allow(state, priority=65001)
    assert holes(state) == []
