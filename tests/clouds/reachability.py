"""Network reachability through firewall rules with priorities, for Azure and Google Cloud.

Test packets at the bounds of every port range pass through the rules in order of priority; the first match decides, as in the cloud.
A rule that another rule shadows therefore allows nothing, and an allow rule before a deny rule is found.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

OUTSIDE = ("198.51.100.7", "192.168.200.9")
"""An address on the internet, and an address in another private network."""
MAX_PORT = 65535


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule, for one direction."""

    name: str
    priority: int
    allows: bool
    remote: tuple[str, ...]
    """Prefixes of the remote end; `*` for any address."""
    protocol: str
    """tcp, udp, icmp, or * for all."""
    ports: tuple[tuple[int, int], ...]
    local: tuple[str, ...] = ("*",)
    """Prefixes of the local end."""


@dataclass(frozen=True, kw_only=True)
class Packet:
    """One test packet."""

    remote: str
    local: str
    protocol: str
    port: int


def deciding_rule(rules: Iterable[Rule], packet: Packet, default: Rule) -> Rule:
    """The rule that applies to a packet: the lowest priority number, deny before allow if the numbers are equal."""
    for rule in sorted(rules, key=lambda one: (one.priority, one.allows)):
        if _matches(rule, packet):
            return rule
    return default


def allowed_packets(
    rule_sets: list[list[Rule]], local: str, default: Rule, remotes: Iterable[str] = OUTSIDE
) -> Iterator[tuple[Rule, Packet]]:
    """Packets that every rule set allows, one for each rule of the first set."""
    seen = set()
    for packet in packets([rule for rules in rule_sets for rule in rules], local, remotes):
        decided = [deciding_rule(rules, packet, default) for rules in rule_sets]
        if all(rule.allows for rule in decided) and decided[0].name not in seen:
            seen.add(decided[0].name)
            yield decided[0], packet


def packets(rules: list[Rule], local: str, remotes: Iterable[str]) -> Iterator[Packet]:
    """Packets inside and outside of the bounds of every port range, from each remote address."""
    ports = {1, 22, 443, MAX_PORT} | {
        port
        for rule in rules
        for low, high in rule.ports
        for port in (low - 1, low, high, high + 1)
        if 0 < port <= MAX_PORT
    }
    for remote in remotes:
        for protocol in ("tcp", "udp", "icmp"):
            for port in sorted(ports) if protocol != "icmp" else (0,):
                yield Packet(remote=remote, local=local, protocol=protocol, port=port)


def remote_addresses(rules: Iterable[Rule], own: Iterable[str]) -> list[str]:
    """An address of each remote prefix outside of the own networks, so that a rule for one office is tested from that office."""
    networks, found = list(own), []
    for rule in rules:
        for prefix in rule.remote:
            if prefix[:1].isdigit() and not is_inside(prefix, networks):
                found.append(str(next(iter(ipaddress.ip_network(prefix, strict=False)))))
    return list(dict.fromkeys(found))


def is_inside(prefix: str, others: Iterable[str]) -> bool:
    """Whether a prefix is inside one of the others."""
    own = ipaddress.ip_network(prefix, strict=False)
    nets = [ipaddress.ip_network(one, strict=False) for one in others if one[:1].isdigit()]
    return any(own.version == net.version and own.subnet_of(net) for net in nets)  # pyright: ignore[reportArgumentType]


def _matches(rule: Rule, packet: Packet) -> bool:
    if rule.protocol not in ("*", packet.protocol):
        return False
    if packet.protocol != "icmp" and not any(low <= packet.port <= high for low, high in rule.ports):
        return False
    return _contains(rule.remote, packet.remote) and _contains(rule.local, packet.local)


def _contains(prefixes: Iterable[str], address: str) -> bool:
    own = ipaddress.ip_address(address)
    return any(one == "*" or (one[:1].isdigit() and own in ipaddress.ip_network(one, strict=False)) for one in prefixes)
