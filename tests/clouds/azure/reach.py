"""Reachability in a deployed state on Azure: security groups, routes, addresses, endpoints and storage firewalls.

It reads an exported state and imports no components. Azure's default rules are part of every security group: they allow ingress from the network
and all egress, unless a rule with a lower number denies it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.clouds.reachability import MAX_PORT, OUTSIDE, Rule, allowed_packets, remote_addresses

State = Iterable[Mapping[str, Any]]
_INGRESS_TYPES = (
    "VirtualNetworkPeering", "VirtualNetworkGateway", "LoadBalancer", "ApplicationGateway", "InboundNatRule", "P2sVpnGateway", "VpnGateway", "AzureFirewall",
    "PrivateLinkService",
)  # fmt: skip
_DENIED = Rule(name="default", priority=MAX_PORT, allows=False, remote=("*",), protocol="*", ports=((0, MAX_PORT),))


@dataclass(frozen=True, kw_only=True)
class Out:
    """A destination that nodes can reach."""

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
    """Every setting that allows ingress from outside, or weakens the protection from it. `declared` are ranges with access to evidence in the declaration."""
    have = group(state)
    return [*_nodes(have), *_subnets(have), *_ingress(have), *_stores(have, declared), *_vaults(have)]


def outwards(state: State) -> set[Out]:
    """Destinations that rules allow before the last deny rule."""
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
            yield f"interface {nic['name']} forwards packets of other machines"
    for one in have.get("VirtualMachineScaleSet", []):
        linux = (one["virtualMachineProfile"].get("osProfile") or {}).get("linuxConfiguration") or {}
        if linux.get("disablePasswordAuthentication") is not True:
            yield f"{one['id']} allows passwords"
    for nic in _nics(have):
        if not _groups(have, nic):
            yield f"interface {nic['name']} has no security group of this stack"
            continue
        subnet = _subnet(have, nic)
        near = str(subnet.get("addressPrefix", "10.0.0.0/8")).split("/")[0] if subnet else "10.0.0.4"
        groups = _rules(have, nic)
        every = [rule for rules in groups for rule in rules]
        # The security groups of the subnet and of the interface must both allow a packet.
        for rule, packet in allowed_packets(groups, near, _DENIED, (*OUTSIDE, *remote_addresses(every, _space(have)))):
            yield f"{rule.name} allows {packet.protocol} {packet.port} from {packet.remote}"


def _subnets(have: dict[str, list[dict[str, Any]]]) -> Iterable[str]:
    tables = {one["id"]: one for one in have.get("RouteTable", [])}
    for one in have.get("Subnet", []):
        if one.get("defaultOutboundAccess") is not False:
            yield f"subnet {one['subnetName']} has default outbound access"
        if not one.get("networkSecurityGroup"):
            yield f"subnet {one['subnetName']} has no security group"
        table = tables.get((one.get("routeTable") or {}).get("id", ""), {})
        for route in [*(table.get("routes") or []), *(r for r in have.get("Route", []) if table)]:
            if route.get("nextHopType") in ("Internet", "VirtualAppliance", "VirtualNetworkGateway"):
                yield f"subnet {one['subnetName']} has a route through {route['nextHopType']}"


def _ingress(have: dict[str, list[dict[str, Any]]]) -> Iterable[str]:
    for kind in _INGRESS_TYPES:
        for one in have.get(kind, []):
            yield f"{kind} {one['id']} allows ingress to the network"
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
            yield f"{one['id']} is a public address of something other than the NAT gateway and Bastion"


def _stores(have: dict[str, list[dict[str, Any]]], declared: frozenset[str]) -> Iterable[str]:
    for one in have.get("StorageAccount", []):
        name, rules = one["accountName"], one.get("networkRuleSet") or {}
        if one.get("allowBlobPublicAccess") is not False:
            yield f"account {name} allows public containers"
        # Managed Lustre reads its container with keys only (https://learn.microsoft.com/azure/azure-managed-lustre/amlfs-prerequisites);
        # such an account must not be public.
        # The same applies to its replica in a second region.
        sources = [policy["sourceAccount"] for policy in have.get("ObjectReplicationPolicy", []) if policy["destinationAccount"] == one["id"]]  # fmt: skip
        imports = json.dumps([fs.get("hsm") or {} for fs in have.get("AmlFilesystem", [])])
        read_by_keys = any(account in imports for account in (one["id"], *sources))
        if read_by_keys and one.get("publicNetworkAccess") != "Disabled":
            yield f"account {name} allows its keys from the internet"
        if one.get("allowSharedKeyAccess") is not False and not read_by_keys:
            yield f"account {name} allows its keys, which roles cannot restrict"
        if one.get("publicNetworkAccess") != "Disabled" and rules.get("defaultAction") != "Deny":
            yield f"account {name} is open to the internet"
        for rule in rules.get("ipRules") or []:
            if rule["iPAddressOrRange"] not in declared:
                yield f"account {name} allows {rule['iPAddressOrRange']}"
        if str(one.get("minimumTlsVersion")) not in ("TLS1_2", "TLS1_3") or one.get("enableHttpsTrafficOnly") is False:
            yield f"account {name} allows requests without TLS 1.2"
    for one in have.get("BlobContainer", []):
        if one.get("publicAccess") not in (None, "None"):
            yield f"container {one['containerName']} is public"


def _vaults(have: dict[str, list[dict[str, Any]]]) -> Iterable[str]:
    for one in have.get("Vault", []):
        properties = one["properties"]
        rules = properties.get("networkAcls") or {}
        if properties.get("publicNetworkAccess") != "Disabled" and rules.get("defaultAction") != "Deny":
            yield f"vault {one['vaultName']} is open to the internet"


def _space(have: dict[str, list[dict[str, Any]]]) -> list[str]:
    return [prefix for one in have.get("VirtualNetwork", []) for prefix in one["addressSpace"]["addressPrefixes"]]


def _subnet(have: dict[str, list[dict[str, Any]]], nic: Mapping[str, Any]) -> dict[str, Any] | None:
    wanted = nic["ipConfigurations"][0]["subnet"]["id"]
    return next((one for one in have.get("Subnet", []) if one["id"] == wanted), None)


def _groups(have: dict[str, list[dict[str, Any]]], nic: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The security groups of the interface and of the subnet."""
    subnet = _subnet(have, nic) or {}
    ids = [((one.get("networkSecurityGroup")) or {}).get("id") for one in (nic, subnet)]
    return [one for one in have.get("NetworkSecurityGroup", []) if one["id"] in dict.fromkeys(ids)]


def _raw(have: dict[str, list[dict[str, Any]]], nic: Mapping[str, Any]) -> list[dict[str, Any]]:
    inline = [rule for one in _groups(have, nic) for rule in one.get("securityRules") or []]
    return [*inline, *have.get("SecurityRule", [])]


def _rules(
    have: dict[str, list[dict[str, Any]]], nic: Mapping[str, Any], direction: str = "Inbound"
) -> list[list[Rule]]:
    """The rules of each security group of an interface, with the default rules at the end."""
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
    """Prefixes of one end. The internet is any address; a service tag is that service."""
    if rule.get(f"{end}ApplicationSecurityGroups"):
        # Members are interfaces in the network of the group.
        return ("VirtualNetwork",)
    given = rule.get(f"{end}AddressPrefixes") or [rule.get(f"{end}AddressPrefix") or "*"]
    return tuple("*" if one in ("*", "Internet", "0.0.0.0/0", "::/0") and end == "source" else one for one in given)


def _span(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    return (0, MAX_PORT) if text == "*" else (int(low), int(high or low))
