"""Who reaches what in a deployed Azure state: a walk over security groups, routes, addresses, endpoints and storage firewalls.

It reads a state as an engine exports it and knows nothing of our components. Azure's own default rules are added to every security group:
the network's own addresses may come in and go out, and everything may go out, unless a rule of a lower number says otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.clouds.reachability import MAX_PORT, OUTSIDE, Rule, allowed_packets, remote_addresses

State = Iterable[Mapping[str, Any]]
_WAYS_IN = (
    "VirtualNetworkPeering", "VirtualNetworkGateway", "LoadBalancer", "ApplicationGateway", "InboundNatRule", "P2sVpnGateway", "VpnGateway", "AzureFirewall",
    "PrivateLinkService",
)  # fmt: skip
_DENIED = Rule(name="default", priority=MAX_PORT, allows=False, remote=("*",), protocol="*", ports=((0, MAX_PORT),))


@dataclass(frozen=True, kw_only=True)
class Out:
    """Something that a node may send to."""

    to: str
    protocol: str
    ports: str


def group(state: State) -> dict[str, list[dict[str, Any]]]:
    """Kind -> resources, each with its id."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in state:
        kind = str(one["type"]).rsplit(":", 1)[-1]
        found.setdefault(kind, []).append({**one["inputs"], "id": one["id"]})
    return found


def holes(state: State, declared: frozenset[str] = frozenset()) -> list[str]:
    """Everything that lets somebody in from outside, or brings him one step nearer; `declared` are prefixes that the declaration lets read evidence."""
    have = group(state)
    return [*_nodes(have), *_subnets(have), *_ways(have), *_stores(have, declared), *_vaults(have)]


def outwards(state: State) -> set[Out]:
    """What rules let nodes send to, above their last denial."""
    have = group(state)
    found = set()
    for nic in _nics(have):
        rules = sorted(
            (rule for rule in _raw(have, nic) if rule["direction"] == "Outbound"), key=lambda one: one["priority"]
        )
        for rule in rules:
            if rule["access"] == "Deny" and _far(rule, "destination") == ("*",):
                break
            for to in _far(rule, "destination"):
                ports = rule.get("destinationPortRanges") or [rule.get("destinationPortRange")]
                found.add(Out(to=to, protocol=rule["protocol"], ports=",".join(str(one) for one in ports)))
        else:
            found.add(Out(to="Internet", protocol="*", ports="*"))
    return found


def _nics(have: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    profiles = [one["virtualMachineProfile"]["networkProfile"] for one in have.get("VirtualMachineScaleSet", [])]
    return [nic for profile in profiles for nic in profile["networkInterfaceConfigurations"]]


def _nodes(have: dict[str, list[dict[str, Any]]]) -> Iterable[str]:
    for nic in _nics(have):
        for address in nic["ipConfigurations"]:
            if address.get("publicIPAddressConfiguration"):
                yield f"interface {nic['name']} has a public address"
            if address.get("loadBalancerBackendAddressPools") or address.get("loadBalancerInboundNatPools"):
                yield f"interface {nic['name']} is behind a load balancer"
        if nic.get("enableIPForwarding"):
            yield f"interface {nic['name']} forwards other machines' packets"
    for one in have.get("VirtualMachineScaleSet", []):
        linux = (one["virtualMachineProfile"].get("osProfile") or {}).get("linuxConfiguration") or {}
        if linux.get("disablePasswordAuthentication") is not True:
            yield f"{one['id']} takes passwords"
    for nic in _nics(have):
        if not _groups(have, nic):
            yield f"interface {nic['name']} has no security group of this stack"
            continue
        subnet = _subnet(have, nic)
        near = str(subnet.get("addressPrefix", "10.0.0.0/8")).split("/")[0] if subnet else "10.0.0.4"
        walls = _walls(have, nic)
        every = [rule for rules in walls for rule in rules]
        # A packet has to pass the group of its subnet and that of its interface.
        for rule, packet in allowed_packets(walls, near, _DENIED, (*OUTSIDE, *remote_addresses(every, _space(have)))):
            yield f"{rule.name} lets {packet.remote} in by {packet.protocol} {packet.port}"


def _subnets(have: dict[str, list[dict[str, Any]]]) -> Iterable[str]:
    tables = {one["id"]: one for one in have.get("RouteTable", [])}
    for one in have.get("Subnet", []):
        if one.get("defaultOutboundAccess") is not False:
            yield f"subnet {one['subnetName']} has Azure's own way out, from an address that nobody declared"
        if not one.get("networkSecurityGroup"):
            yield f"subnet {one['subnetName']} has no security group"
        table = tables.get((one.get("routeTable") or {}).get("id", ""), {})
        for route in [*(table.get("routes") or []), *(r for r in have.get("Route", []) if table)]:
            if route.get("nextHopType") in ("Internet", "VirtualAppliance", "VirtualNetworkGateway"):
                yield f"subnet {one['subnetName']} has a route by {route['nextHopType']}"


def _ways(have: dict[str, list[dict[str, Any]]]) -> Iterable[str]:
    for kind in _WAYS_IN:
        for one in have.get(kind, []):
            yield f"{kind} {one['id']} leads into the network"
    used = {
        address["id"]
        for kind in ("NatGateway", "BastionHost")
        for one in have.get(kind, [])
        for address in (
            one.get("publicIpAddresses") or [c["publicIPAddress"] for c in one.get("ipConfigurations") or []]
        )
    }
    for one in have.get("PublicIPAddress", []):
        if one["id"] not in used:
            yield f"{one['id']} is a public address of something else than the way out"


def _stores(have: dict[str, list[dict[str, Any]]], declared: frozenset[str]) -> Iterable[str]:
    for one in have.get("StorageAccount", []):
        name, rules = one["accountName"], one.get("networkRuleSet") or {}
        if one.get("allowBlobPublicAccess") is not False:
            yield f"account {name} lets containers be public"
        # Managed Lustre reads its container by keys and by nothing else (azure.md 8); then nobody else may come near the account.
        read_by_keys = any(one["id"] in json.dumps(fs.get("hsm") or {}) for fs in have.get("AmlFilesystem", []))
        if read_by_keys and one.get("publicNetworkAccess") != "Disabled":
            yield f"account {name} takes its keys from everywhere"
        if one.get("allowSharedKeyAccess") is not False and not read_by_keys:
            yield f"account {name} takes its keys, which no role can be held to"
        if one.get("publicNetworkAccess") != "Disabled" and rules.get("defaultAction") != "Deny":
            yield f"account {name} answers everybody"
        for rule in rules.get("ipRules") or []:
            if rule["iPAddressOrRange"] not in declared:
                yield f"account {name} answers {rule['iPAddressOrRange']}"
        if str(one.get("minimumTlsVersion")) not in ("TLS1_2", "TLS1_3") or one.get("enableHttpsTrafficOnly") is False:
            yield f"account {name} can be read in plain text"
    for one in have.get("BlobContainer", []):
        if one.get("publicAccess") not in (None, "None"):
            yield f"container {one['containerName']} is public"


def _vaults(have: dict[str, list[dict[str, Any]]]) -> Iterable[str]:
    for one in have.get("Vault", []):
        properties = one["properties"]
        rules = properties.get("networkAcls") or {}
        if properties.get("publicNetworkAccess") != "Disabled" and rules.get("defaultAction") != "Deny":
            yield f"vault {one['vaultName']} answers everybody"


def _space(have: dict[str, list[dict[str, Any]]]) -> list[str]:
    return [prefix for one in have.get("VirtualNetwork", []) for prefix in one["addressSpace"]["addressPrefixes"]]


def _subnet(have: dict[str, list[dict[str, Any]]], nic: Mapping[str, Any]) -> dict[str, Any] | None:
    wanted = nic["ipConfigurations"][0]["subnet"]["id"]
    return next((one for one in have.get("Subnet", []) if one["id"] == wanted), None)


def _groups(have: dict[str, list[dict[str, Any]]], nic: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Security groups around a node: its interface's and its subnet's."""
    subnet = _subnet(have, nic) or {}
    ids = [((one.get("networkSecurityGroup")) or {}).get("id") for one in (nic, subnet)]
    return [one for one in have.get("NetworkSecurityGroup", []) if one["id"] in dict.fromkeys(ids)]


def _raw(have: dict[str, list[dict[str, Any]]], nic: Mapping[str, Any]) -> list[dict[str, Any]]:
    inline = [rule for one in _groups(have, nic) for rule in one.get("securityRules") or []]
    return [*inline, *have.get("SecurityRule", [])]


def _walls(
    have: dict[str, list[dict[str, Any]]], nic: Mapping[str, Any], direction: str = "Inbound"
) -> list[list[Rule]]:
    """The rules of each security group on the way, with Azure's own at the end."""
    found = []
    for one in _groups(have, nic):
        rules = [*(one.get("securityRules") or []), *have.get("SecurityRule", [])]
        own = [_rule(rule, "source") for rule in rules if rule["direction"] == direction]
        network = Rule(name="AllowVnetInBound", priority=65000, allows=True, remote=tuple(_space(have)), protocol="*", ports=((0, MAX_PORT),))  # fmt: skip
        found.append([*own, network])
    return found


def _rule(rule: Mapping[str, Any], end: str) -> Rule:
    ports = rule.get("destinationPortRanges") or [rule.get("destinationPortRange") or "*"]
    return Rule(
        name=str(rule.get("name") or rule.get("securityRuleName")),
        priority=int(rule["priority"]),
        allows=rule["access"] == "Allow",
        remote=_far(rule, end),
        protocol={"Tcp": "tcp", "Udp": "udp", "Icmp": "icmp"}.get(rule["protocol"], "*"),
        ports=tuple(_span(str(one)) for one in ports),
    )


def _far(rule: Mapping[str, Any], end: str) -> tuple[str, ...]:
    """Prefixes of an end; the internet is anybody, a service's tag is that service."""
    given = rule.get(f"{end}AddressPrefixes") or [rule.get(f"{end}AddressPrefix") or "*"]
    return tuple("*" if one in ("*", "Internet", "0.0.0.0/0", "::/0") and end == "source" else one for one in given)


def _span(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    return (0, MAX_PORT) if text == "*" else (int(low), int(high or low))
