"""Which nodes meet for an all-reduce, and which of them is the weak one: pure, from results to the next meetings or a verdict.

A pair that is weak does not say which of its two nodes is at fault. Each of them meets a node that is known to be good:
the one that is weak again is the weak one. Two nodes that are good with others and weak together have a weak way between them.
Where no pair was good at all there is nobody to compare with: nodes change partners a few times, then the floor or the fabric
itself is the suspect, not a node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

MOST_PARTNERS = 4
"""Partners that a node meets while nobody is known to be good; after that the nodes are not the first suspects any more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Meeting:
    """What became of one pair."""

    first: str
    second: str
    good: bool
    """The sum was right, the fabric's plugin carried it, and the floor was reached."""
    why: str = ""
    """What was wrong, for people."""

    @property
    def nodes(self) -> frozenset[str]:
        """Both of them, in no order."""
        return frozenset((self.first, self.second))


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What all meetings together say."""

    good: tuple[str, ...] = ()
    weak: dict[str, str] = field(default_factory=dict)
    """Node -> why: weak with every partner it met, of which one at least is good with others."""
    ways: tuple[tuple[str, str], ...] = ()
    """Pairs that are weak together, although each is good with another node."""
    unknown: tuple[str, ...] = ()
    """Nodes that met nobody good: the fabric or the floor is as suspect as they are."""


def first_round(nodes: Sequence[str]) -> list[tuple[str, str]]:
    """Everybody meets once; of an odd number the last one meets in the next round.

    Neighbours in the given order meet, so an order by rack or placement tests the near ways first.
    """
    unique = list(dict.fromkeys(nodes))
    return list(zip(unique[::2], unique[1::2], strict=False))


def next_round(nodes: Sequence[str], meetings: Iterable[Meeting]) -> list[tuple[str, str]]:
    """Who has to meet now; empty when nothing is open any more.

    No node is in two pairs of a round, because two all-reduces at once would share its adapters, and no pair meets twice.
    """
    unique, held = list(dict.fromkeys(nodes)), list(meetings)
    met = {meeting.nodes for meeting in held}
    good = [node for node in unique if _is_good(node, held)]
    open_ = [node for node in unique if not _is_good(node, held) and not _is_certain(node, held)]
    chosen: list[tuple[str, str]] = []
    free = list(good)
    for node in open_:
        partner = next((one for one in free if frozenset((node, one)) not in met), None)
        if partner is not None:
            free.remove(partner)
            chosen.append((node, partner))
    if chosen or good:
        return chosen
    return _change_partners([node for node in open_ if _partners(node, held) < MOST_PARTNERS], met)


def verdict(nodes: Sequence[str], meetings: Iterable[Meeting]) -> Verdict:
    """What the meetings say so far; final when `next_round` has nothing more to ask."""
    unique, held = list(dict.fromkeys(nodes)), list(meetings)
    good = [node for node in unique if _is_good(node, held)]
    weak = {node: _why(node, held) for node in unique if node not in good and _is_weak(node, held)}
    ways = sorted(
        {(meeting.first, meeting.second) for meeting in held if not meeting.good and meeting.nodes <= set(good)}
    )
    unknown = [node for node in unique if node not in good and node not in weak]
    return Verdict(good=tuple(good), weak=weak, ways=tuple(ways), unknown=tuple(unknown))


def _is_good(node: str, meetings: list[Meeting]) -> bool:
    return any(meeting.good and node in meeting.nodes for meeting in meetings)


def _is_weak(node: str, meetings: list[Meeting]) -> bool:
    """Weak with a partner that is good with somebody else."""
    for meeting in meetings:
        if node in meeting.nodes and not meeting.good:
            (partner,) = meeting.nodes - {node}
            if _is_good(partner, meetings):
                return True
    return False


def _is_certain(node: str, meetings: list[Meeting]) -> bool:
    """Weak with two partners, one of them good: with one alone, the way between the two could be at fault."""
    return _is_weak(node, meetings) and _partners(node, meetings) >= 2


def _partners(node: str, meetings: list[Meeting]) -> int:
    return len({meeting.nodes for meeting in meetings if node in meeting.nodes})


def _why(node: str, meetings: list[Meeting]) -> str:
    told = [
        f"with {next(iter(meeting.nodes - {node}))}: {meeting.why or 'weak'}"
        for meeting in meetings
        if node in meeting.nodes and not meeting.good
    ]
    return "; ".join(told)


def _change_partners(nodes: list[str], met: set[frozenset[str]]) -> list[tuple[str, str]]:
    """New pairs among nodes that were all weak so far."""
    chosen: list[tuple[str, str]] = []
    free = list(nodes)
    while free:
        node = free.pop(0)
        partner = next((one for one in free if frozenset((node, one)) not in met), None)
        if partner is not None:
            free.remove(partner)
            chosen.append((node, partner))
    return chosen
