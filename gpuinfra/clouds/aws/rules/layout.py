"""AWS rules for the network interfaces of a machine type.

These rules check machine types that a declaration defines in `machines`. Tests check the catalog records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import date

from gpuinfra.base.findings import Finding, error
from gpuinfra.catalog.records import MachineType
from gpuinfra.plan.machines import pools_of
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.rule import rules_in

FABRIC_KINDS = frozenset({"efa", "efa-only", "rdma"})


def _used(spec: ClusterSpec) -> Iterator[tuple[str, MachineType]]:
    seen: set[str] = set()
    for path, _, machine in pools_of(spec):
        if machine.name not in seen:
            seen.add(machine.name)
            yield f"{path}.machine", machine


def fabric_devices_fit_machine(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The layout has at most as many fabric devices as the machine type supports."""
    for path, machine in _used(spec):
        devices = [nic for nic in machine.nics if nic.kind in FABRIC_KINDS]
        if machine.limits and len(devices) > machine.limits.fabric:
            what = (
                f"is {machine.name}, whose layout has {len(devices)} fabric devices; allowed: {machine.limits.fabric}"
            )
            yield error(path, what, "remove fabric devices from the layout")


def card_has_one_fabric_device(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A network card has at most one fabric device."""
    for path, machine in _used(spec):
        cards = Counter(nic.card for nic in machine.nics if nic.kind in FABRIC_KINDS)
        for card, count in cards.items():
            if count > 1:
                what = f"is {machine.name}, whose layout puts {count} fabric devices on card {card}"
                yield error(path, what, "use one fabric device for each card")


def primary_interface_has_address(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Exactly one interface is at card 0, device 0, and it has an IP address."""
    for path, machine in _used(spec):
        first = [nic for nic in machine.nics if (nic.card, nic.device) == (0, 0)]
        if len(first) != 1 or first[0].kind == "efa-only":
            kinds = ", ".join(nic.kind for nic in first) or "nothing"
            what = f"is {machine.name}, whose layout has {kinds} at card 0, device 0"
            yield error(path, what, "put one interface of kind interface or efa at card 0, device 0")


def interfaces_fit_cards(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Interface positions are unique, their cards exist, and the interface limits per card and per machine type are not exceeded."""
    for path, machine in _used(spec):
        for problem in _layout_problems(machine):
            yield error(path, f"is {machine.name}, whose layout {problem}", "fix the layout")


def _layout_problems(machine: MachineType) -> Iterator[str]:
    limits = machine.limits
    if limits is None:
        return
    places = Counter((nic.network, nic.card, nic.device) for nic in machine.nics)
    for (_, card, device), count in places.items():
        if count > 1:
            yield f"has {count} interfaces at card {card}, device {device}"
    cards = Counter(nic.card for nic in machine.nics)
    for card, count in sorted(cards.items()):
        if not 0 <= card < limits.cards:
            yield f"uses card {card}; allowed: 0 to {limits.cards - 1}"
        elif count > limits.per_card:
            yield f"has {count} interfaces on card {card}; allowed: {limits.per_card}"
    if len(machine.nics) > limits.total:
        yield f"has {len(machine.nics)} interfaces; allowed: {limits.total}"


def card_supports_fabric(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Fabric devices are on cards that support them; card 0 of p6-b300 and p6e-gb200 does not."""
    for path, machine in _used(spec):
        bare = machine.limits.fabric_free_cards if machine.limits else ()
        for nic in machine.nics:
            if nic.kind in FABRIC_KINDS and nic.card in bare:
                what = f"is {machine.name}, whose layout puts {nic.kind} on card {nic.card}, which does not support fabric devices"
                yield error(path, what, "put an interface of kind interface on this card")


def shared_cards_have_one_interface(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Cards that share an adapter have at most one interface each, and fabric devices are on cards that do not share an adapter."""
    for path, machine in _used(spec):
        singles = machine.limits.single_cards if machine.limits else ()
        cards = Counter(nic.card for nic in machine.nics)
        crowded = [card for card in singles if cards[card] > 1]
        if crowded:
            what = f"is {machine.name}, whose layout has more than one interface on card {crowded[0]}"
            yield error(path, what, "put at most one interface on each odd-numbered card")
        fabric = tuple(sorted(nic.card for nic in machine.nics if nic.kind in FABRIC_KINDS))
        if singles and fabric and fabric not in (singles, singles[::2]):
            what = f"is {machine.name}, whose layout has fabric devices on cards {', '.join(map(str, fabric))}"
            hint = f"use cards {', '.join(map(str, singles[::2]))} or {', '.join(map(str, singles))}, which do not share an adapter"
            yield error(path, what, hint)


RULES = rules_in(vars())
