"""Reachability in a deployed Google Cloud state: a walk over firewall rules, interfaces, routes, NAT, peerings and buckets.

It reads an exported state and is independent of the components. Each network also has Google's implied rules, with the highest number:
deny all ingress, allow all egress.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any

from tests.clouds.reachability import MAX_PORT, OUTSIDE, Packet, Rule, allowed_packets, deciding_rule, remote_addresses

State = Iterable[Mapping[str, Any]]
_ENTRY_POINTS = (
    "ForwardingRule", "GlobalForwardingRule", "VpnTunnel", "HaVpnGateway", "ExternalVpnGateway", "InterconnectAttachment", "NetworkPeering", "TargetInstance",
    "TargetPool", "ServiceAttachment", "PacketMirroring",
)  # fmt: skip
_PUBLIC = ("allUsers", "allAuthenticatedUsers")
HEALTH_PORT = 8467
PROBERS = (ip_network("35.191.0.0/16"), ip_network("130.211.0.0/22"))
"""Google's health checks: https://docs.cloud.google.com/load-balancing/docs/firewall-rules, retrieved 2026-11-22. No customer can send from them."""


def _is_prober(address: str) -> bool:
    return any(ip_address(address) in one for one in PROBERS)


_DENIED = Rule(name="implied", priority=MAX_PORT + 1, allows=False, remote=("*",), protocol="*", ports=((0, MAX_PORT),))
_ALLOWED = Rule(name="implied", priority=MAX_PORT + 1, allows=True, remote=("*",), protocol="*", ports=((0, MAX_PORT),))


@dataclass(frozen=True, kw_only=True)
class Out:
    """A destination that is open to nodes."""

    to: str
    protocol: str
    ports: str


def group(state: State) -> dict[str, list[dict[str, Any]]]:
    """Kind -> resources, each with its id."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in state:
        found.setdefault(str(one["type"]).rsplit(":", 1)[-1], []).append({**one["inputs"], "id": one["id"]})
    return found


IAP = "35.235.240.0/20"


def holes(state: State, tunnels: frozenset[str] = frozenset({IAP})) -> list[str]:
    """All access from outside, and settings that prepare it. `tunnels` are prefixes of Google's proxies, which check an identity."""
    have = group(state)
    return [*_interfaces(have), *_open_rules(have, tunnels), *_routes(have), *_entry_points(have), *_buckets(have)]


def outwards(state: State) -> set[Out]:
    """The destinations that the egress rules of networks with internet access allow."""
    have = group(state)
    found = set()
    for network in _networks(have):
        if not _has_default_route(have, network):
            continue
        for rule in _raw(have, network, "EGRESS"):
            for to in rule.get("destinationRanges") or ["0.0.0.0/0"]:
                for allow in rule.get("allows") or []:
                    ports = ",".join(sorted(allow.get("ports") or ["*"], key=lambda text: (len(text), text)))
                    found.add(Out(to=to, protocol=allow["protocol"], ports=ports))
        web = Packet(remote=OUTSIDE[0], local="10.0.0.1", protocol="udp", port=53)
        if deciding_rule(_rules(have, network, "EGRESS"), web, _ALLOWED).allows:
            found.add(Out(to="0.0.0.0/0", protocol="*", ports="*"))
    return found


def _tail(text: object) -> str:
    return str(text).split("?")[0].rsplit("/", 1)[-1]


def _networks(have: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Names of the created networks and of the networks of interfaces."""
    made = [_tail(one["id"]) for one in have.get("Network", [])]
    used = [_tail(nic["network"]) for nic in _nics(have) if nic.get("network")]
    return list(dict.fromkeys([*made, *used]))


def _nics(have: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    return [nic for one in have.get("InstanceTemplate", []) for nic in one["networkInterfaces"]]


def _interfaces(have: dict[str, list[dict[str, Any]]]) -> Iterable[str]:
    for one in have.get("InstanceTemplate", []):
        if one.get("canIpForward"):
            yield f"template {one['name']} forwards packets of other machines"
        metadata = one.get("metadata") or {}
        if str(metadata.get("serial-port-enable", "false")).lower() not in ("false", "0"):
            yield f"template {one['name']} enables the serial console"
        if str(metadata.get("enable-oslogin", "false")).lower() != "true":
            yield f"template {one['name']} accepts SSH keys from metadata instead of OS Login"
    for nic in _nics(have):
        if nic.get("accessConfigs") or nic.get("ipv6AccessConfigs"):
            yield f"an interface in {_tail(nic.get('network') or nic.get('subnetwork'))} has a public address"
    for one in have.get("Subnetwork", []):
        if one.get("stackType") not in (None, "IPV4_ONLY") and one.get("ipv6AccessType") == "EXTERNAL":
            yield f"subnetwork {one['name']} has public IPv6 addresses"


def _open_rules(have: dict[str, list[dict[str, Any]]], tunnels: frozenset[str]) -> Iterable[str]:
    ranges = {
        _tail(one["network"]): [
            *(
                sub["ipCidrRange"]
                for sub in have.get("Subnetwork", [])
                if _tail(sub["network"]) == _tail(one["network"])
            ),
            *(
                f"{near['address']}/{int(near['prefixLength'])}"
                for near in have.get("GlobalAddress", [])
                if near.get("address") and _tail(near["network"]) == _tail(one["network"])
            ),
        ]
        for one in have.get("Subnetwork", [])
    }
    for network in _networks(have):
        rules = _rules(have, network, "INGRESS")
        own = [*ranges.get(network, []), *tunnels]
        near = str(own[0]).split("/")[0] if own else "10.0.0.2"
        for rule, packet in allowed_packets([rules], near, _DENIED, (*OUTSIDE, *remote_addresses(rules, own))):
            if packet.protocol == "tcp" and packet.port == HEALTH_PORT and _is_prober(packet.remote):
                continue
            yield f"rule {rule.name} lets {packet.remote} in by {packet.protocol} {packet.port}"


def _routes(have: dict[str, list[dict[str, Any]]]) -> Iterable[str]:
    for one in have.get("Route", []):
        if any(
            one.get(key) for key in ("nextHopGateway", "nextHopInstance", "nextHopVpnTunnel", "nextHopIlb", "nextHopIp")
        ):
            yield f"route {one.get('name')} leads outside of {_tail(one.get('network'))}"
    for network in _networks(have):
        made = next((one for one in have.get("Network", []) if _tail(one["id"]) == network), None)
        web = Packet(remote=OUTSIDE[0], local="10.0.0.1", protocol="tcp", port=22)
        if (
            made
            and _has_default_route(have, network)
            and deciding_rule(_rules(have, network, "EGRESS"), web, _ALLOWED).allows
        ):
            yield f"network {network} has internet access and no rule that denies egress"


def _has_default_route(have: dict[str, list[dict[str, Any]]], network: str) -> bool:
    """Whether the network has a route to the internet, which Google creates by default."""
    made = next((one for one in have.get("Network", []) if _tail(one["id"]) == network), None)
    rdma = bool(made and made.get("networkProfile"))
    return bool(made and made.get("deleteDefaultRoutesOnCreate") is not True and not rdma)


def _entry_points(have: dict[str, list[dict[str, Any]]]) -> Iterable[str]:
    for kind in _ENTRY_POINTS:
        for one in have.get(kind, []):
            yield f"{kind} {one['id']} gives access to a network"
    for one in have.get("Address", []):
        if one.get("addressType", "EXTERNAL") == "EXTERNAL" and one.get("purpose") != "NAT_AUTO":
            yield f"address {one.get('name')} is public"
    for one in have.get("Policy", []):
        if one.get("enableInboundForwarding"):
            yield f"{one.get('name')} answers DNS queries of other networks"


def _buckets(have: dict[str, list[dict[str, Any]]]) -> Iterable[str]:
    for one in have.get("Bucket", []):
        if one.get("publicAccessPrevention") != "enforced":
            yield f"bucket {one['name']} has no public access prevention"
        if one.get("uniformBucketLevelAccess") is not True:
            yield f"bucket {one['name']} has access lists on objects"
    for kind, resources in have.items():
        if "IAMMember" in kind or "IamMember" in kind or "IAMBinding" in kind:
            for one in resources:
                for member in one.get("members") or [one.get("member")]:
                    if member in _PUBLIC:
                        yield f"{kind} {one['id']} is for {member}"


def _raw(have: dict[str, list[dict[str, Any]]], network: str, direction: str) -> list[dict[str, Any]]:
    return [
        one
        for one in have.get("Firewall", [])
        if _tail(one["network"]) == network and one.get("direction", "INGRESS") == direction and not one.get("disabled")
    ]


def _rules(have: dict[str, list[dict[str, Any]]], network: str, direction: str) -> list[Rule]:
    """The rules of a network. A rule for a tag counts for all nodes, because any editor of a node can set tags."""
    far = "sourceRanges" if direction == "INGRESS" else "destinationRanges"
    found = []
    for one in _raw(have, network, direction):
        named = one.get(far) or ([] if one.get("sourceTags") or one.get("sourceServiceAccounts") else ["0.0.0.0/0"])
        prefixes = tuple("*" if prefix in ("0.0.0.0/0", "::/0") else prefix for prefix in named)
        for allows, entries in ((True, one.get("allows")), (False, one.get("denies"))):
            for entry in entries or []:
                ports = tuple(_span(str(port)) for port in entry.get("ports") or ["0-65535"])
                protocol = "*" if entry["protocol"] == "all" else str(entry["protocol"])
                found.append(
                    Rule(
                        name=str(one.get("name")), priority=int(one.get("priority", 1000)), allows=allows, remote=prefixes,
                        protocol=protocol, ports=ports,
                    )
                )  # fmt: skip
    return found


def _span(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    return int(low), int(high or low)
