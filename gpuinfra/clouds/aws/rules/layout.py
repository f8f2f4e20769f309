"""Rules about the interfaces of a node, over the layout of each pool's machine.

Catalogue records keep them by test; a machine that a person describes in `machines` keeps them by these rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date

from gpuinfra.catalog.records import MachineType
from gpuinfra.clouds.machines import machines_of
from gpuinfra.findings import Finding, error
from gpuinfra.spec.model import ClusterSpec

FABRIC_KINDS = frozenset({"efa", "efa-only", "rdma"})


def _used(spec: ClusterSpec) -> Iterator[tuple[str, MachineType]]:
    machines = machines_of(spec)
    seen: set[str] = set()
    for i, pool in enumerate(spec.pools):
        machine = machines.get(pool.machine)
        if machine is not None and machine.name not in seen:
            seen.add(machine.name)
            yield f"pools[{i}].machine", machine


def fabric_fits_machine(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A layout has no more fabric devices than the machine takes; network cards do not count."""
    for path, machine in _used(spec):
        devices = [nic for nic in machine.nics if nic.kind in FABRIC_KINDS]
        if machine.limits and len(devices) > machine.limits.fabric:
            what = (
                f"is {machine.name}, whose layout has {len(devices)} fabric devices; it takes {machine.limits.fabric}"
            )
            yield error(fabric_fits_machine, path, what, "take devices out of its layout")


def card_has_one_fabric_device(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A network card carries at most one fabric device."""
    for path, machine in _used(spec):
        cards = Counter(nic.card for nic in machine.nics if nic.kind in FABRIC_KINDS)
        for card, count in cards.items():
            if count > 1:
                what = f"is {machine.name}, whose layout puts {count} fabric devices on card {card}"
                yield error(card_has_one_fabric_device, path, what, "one to a card")


def primary_interface_has_an_address(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Exactly one interface is at card 0, device 0, and it is one that has an address."""
    for path, machine in _used(spec):
        first = [nic for nic in machine.nics if (nic.card, nic.device) == (0, 0)]
        if len(first) != 1 or first[0].kind == "efa-only":
            found = ", ".join(nic.kind for nic in first) or "nothing"
            what = f"is {machine.name}, whose layout has {found} at card 0, device 0"
            yield error(primary_interface_has_an_address, path, what, "put one ordinary interface there")


def interfaces_fit_cards(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Places are different, cards exist, and neither a card nor the machine has more interfaces than it takes."""
    for path, machine in _used(spec):
        for problem in _places(machine):
            yield error(interfaces_fit_cards, path, f"is {machine.name}, whose layout {problem}", "mend the layout")


def _places(machine: MachineType) -> Iterator[str]:
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
            yield f"names card {card}; cards are 0 to {limits.cards - 1}"
        elif count > limits.per_card:
            yield f"has {count} interfaces on card {card}; one takes {limits.per_card}"
    if len(machine.nics) > limits.total:
        yield f"has {len(machine.nics)} interfaces; the machine takes {limits.total}"


def card_can_carry_fabric(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """No fabric device is on a card that cannot carry one (card 0 of p6-b300 and p6e-gb200)."""
    for path, machine in _used(spec):
        bare = machine.limits.fabric_free_cards if machine.limits else ()
        for nic in machine.nics:
            if nic.kind in FABRIC_KINDS and nic.card in bare:
                what = f"is {machine.name}, whose layout puts {nic.kind} on card {nic.card}, which carries none"
                yield error(card_can_carry_fabric, path, what, "an ordinary interface goes there")


def shared_cards_hold_one(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Cards that share one adapter hold one interface, and the fabric uses a set of cards that share nothing."""
    for path, machine in _used(spec):
        singles = machine.limits.single_cards if machine.limits else ()
        cards = Counter(nic.card for nic in machine.nics)
        crowded = [card for card in singles if cards[card] > 1]
        if crowded:
            what = f"is {machine.name}, whose layout has more than one interface on card {crowded[0]}"
            yield error(shared_cards_hold_one, path, what, "odd cards hold one")
        fabric = tuple(sorted(nic.card for nic in machine.nics if nic.kind in FABRIC_KINDS))
        if singles and fabric and fabric not in (singles, singles[::2]):
            what = f"is {machine.name}, whose layout has its fabric on cards {', '.join(map(str, fabric))}"
            hint = f"cards {', '.join(map(str, singles[::2]))} or {', '.join(map(str, singles))} share no adapter"
            yield error(shared_cards_hold_one, path, what, hint)


RULES: tuple[Callable[[ClusterSpec, date], Iterator[Finding]], ...] = (
    fabric_fits_machine,
    card_has_one_fabric_device,
    primary_interface_has_an_address,
    interfaces_fit_cards,
    card_can_carry_fabric,
    shared_cards_hold_one,
)
