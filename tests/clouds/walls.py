"""Rules of firewalls that have priorities, tried with packets: what Azure and Google have in common.

A set of packets at the borders of every rule's ports is sent through the rules in their order; the first one that matches decides.
That asks the same question as the cloud does, so a rule that another one shadows opens nothing, and one that slips in before a denial does.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

OUTSIDE = ("198.51.100.7", "192.168.200.9")
"""Somebody in the internet, and somebody in a private network that is not ours."""
TOP = 65535


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule, for one direction."""

    name: str
    priority: int
    allows: bool
    far: tuple[str, ...]
    """Prefixes of the other end; `*` for anybody."""
    protocol: str
    """tcp, udp, icmp, or * for all."""
    ports: tuple[tuple[int, int], ...]
    near: tuple[str, ...] = ("*",)
    """Prefixes of our own end."""


@dataclass(frozen=True, kw_only=True)
class Packet:
    """One try."""

    far: str
    near: str
    protocol: str
    port: int


def decides(rules: Iterable[Rule], packet: Packet, otherwise: Rule) -> Rule:
    """The rule that decides about a packet: lowest number first, a denial before an allowance of the same number."""
    for rule in sorted(rules, key=lambda one: (one.priority, one.allows)):
        if _matches(rule, packet):
            return rule
    return otherwise


def let_in(
    walls: list[list[Rule]], near: str, otherwise: Rule, far: Iterable[str] = OUTSIDE
) -> Iterator[tuple[Rule, Packet]]:
    """Packets from outside that pass every wall, one for each rule of the first."""
    seen = set()
    for packet in packets([rule for rules in walls for rule in rules], near, far):
        decided = [decides(rules, packet, otherwise) for rules in walls]
        if all(rule.allows for rule in decided) and decided[0].name not in seen:
            seen.add(decided[0].name)
            yield decided[0], packet


def packets(rules: list[Rule], near: str, far: Iterable[str]) -> Iterator[Packet]:
    """Packets at both sides of every border of ports, from everybody and from the middle of every rule's prefixes."""
    ports = {1, 22, 443, TOP} | {
        port for rule in rules for low, high in rule.ports for port in (low - 1, low, high, high + 1) if 0 < port <= TOP
    }
    for who in far:
        for protocol in ("tcp", "udp", "icmp"):
            for port in sorted(ports) if protocol != "icmp" else (0,):
                yield Packet(far=who, near=near, protocol=protocol, port=port)


def ends(rules: Iterable[Rule], ours: Iterable[str]) -> list[str]:
    """An address of each prefix that rules name and that is not in ours, so that a door for one office is tried from that office."""
    own, found = list(ours), []
    for rule in rules:
        for prefix in rule.far:
            if prefix[:1].isdigit() and not within(prefix, own):
                found.append(str(next(iter(ipaddress.ip_network(prefix, strict=False)))))
    return list(dict.fromkeys(found))


def within(prefix: str, others: Iterable[str]) -> bool:
    """Whether a prefix lies in one of the others."""
    own = ipaddress.ip_network(prefix, strict=False)
    nets = [ipaddress.ip_network(one, strict=False) for one in others if one[:1].isdigit()]
    return any(own.version == net.version and own.subnet_of(net) for net in nets)  # pyright: ignore[reportArgumentType]


def _matches(rule: Rule, packet: Packet) -> bool:
    if rule.protocol not in ("*", packet.protocol):
        return False
    if packet.protocol != "icmp" and not any(low <= packet.port <= high for low, high in rule.ports):
        return False
    return _holds(rule.far, packet.far) and _holds(rule.near, packet.near)


def _holds(prefixes: Iterable[str], address: str) -> bool:
    own = ipaddress.ip_address(address)
    return any(one == "*" or (one[:1].isdigit() and own in ipaddress.ip_network(one, strict=False)) for one in prefixes)
