"""Selects the nodes to pair for an all-reduce and finds the slow node. The module is pure: it turns results into the next pairs or a verdict.

A slow pair does not show which of its two nodes is slow. Each node is then paired with a node that reached the bandwidth
with another partner. The node that is slow again is the slow node. Two nodes that are fast with others and slow together have
a slow path between them. Until a pair is fast, no node can serve as a reference. Nodes then change partners a few times, and
after that, the suspect is the fabric or the floor, not a node.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Iterable, Sequence

MOST_PARTNERS = 4
"""Maximum number of partners per node while no pair is fast. After that, the nodes are no longer the first suspects."""


@dataclass(frozen=True)
class PairResult:
    """The result of one measured pair."""

    first: str
    second: str
    good: bool
    """True if the sum was correct, NCCL used the fabric's plugin, and the floor was reached."""
    reason: str = ""
    """What was wrong, as text."""

    @property
    def nodes(self) -> frozenset[str]:
        """Both nodes, in no particular order."""
        return frozenset((self.first, self.second))


@dataclass(frozen=True)
class PairsVerdict:
    """The conclusion drawn from all results."""

    good: tuple[str, ...] = ()
    slow: dict[str, str] = field(default_factory=dict)
    """Node -> reason: slow with every partner, at least one of which has a good result with another node."""
    slow_paths: tuple[tuple[str, str], ...] = ()
    """Pairs that are slow, although each of the two nodes has a good result with another partner."""
    unknown: tuple[str, ...] = ()
    """Nodes that were paired only with unverified nodes. The cause can also be the fabric or the floor."""


def first_round(nodes: Sequence[str]) -> list[tuple[str, str]]:
    """Pair neighbors in the given order. With an odd number of nodes, the last node waits for the next round.

    If nodes are ordered by rack or placement, short paths are measured first.
    """
    unique = list(dict.fromkeys(nodes))
    return list(zip(unique[::2], unique[1::2]))


def next_round(nodes: Sequence[str], results: Iterable[PairResult]) -> list[tuple[str, str]]:
    """Return the pairs to measure next. Empty if the verdict is final.

    Each node is in at most one pair per round, because concurrent all-reduces would share the node's network adapters. Pairs are not repeated.
    """
    unique, done = list(dict.fromkeys(nodes)), list(results)
    measured = {result.nodes for result in done}
    good = [node for node in unique if _is_good(node, done)]
    undecided = [node for node in unique if not _is_good(node, done) and not _is_confirmed_slow(node, done)]
    chosen: list[tuple[str, str]] = []
    free = list(good)
    for node in undecided:
        partner = next((one for one in free if frozenset((node, one)) not in measured), None)
        if partner is not None:
            free.remove(partner)
            chosen.append((node, partner))
    if chosen or good:
        return chosen
    return _new_partners([node for node in undecided if _partners(node, done) < MOST_PARTNERS], measured)


def verdict(nodes: Sequence[str], results: Iterable[PairResult]) -> PairsVerdict:
    """Return the verdict so far. It is final when `next_round` is empty."""
    unique, done = list(dict.fromkeys(nodes)), list(results)
    good = [node for node in unique if _is_good(node, done)]
    slow = {node: _reasons(node, done) for node in unique if node not in good and _is_slow(node, done)}
    paths = sorted({(result.first, result.second) for result in done if not result.good and result.nodes <= set(good)})
    unknown = [node for node in unique if node not in good and node not in slow]
    return PairsVerdict(good=tuple(good), slow=slow, slow_paths=tuple(paths), unknown=tuple(unknown))


def _is_good(node: str, results: list[PairResult]) -> bool:
    return any(result.good and node in result.nodes for result in results)


def _is_slow(node: str, results: list[PairResult]) -> bool:
    """Return True if the node is slow with a partner that has a good result with another node."""
    for result in results:
        if node in result.nodes and not result.good:
            (partner,) = result.nodes - {node}
            if _is_good(partner, results):
                return True
    return False


def _is_confirmed_slow(node: str, results: list[PairResult]) -> bool:
    """Return True if the node is slow with two partners, of which at least one is good. With one partner, the path could be the cause."""
    return _is_slow(node, results) and _partners(node, results) >= 2


def _partners(node: str, results: list[PairResult]) -> int:
    return len({result.nodes for result in results if node in result.nodes})


def _reasons(node: str, results: list[PairResult]) -> str:
    reasons = [
        f"with {next(iter(result.nodes - {node}))}: {result.reason or 'slow'}"
        for result in results
        if node in result.nodes and not result.good
    ]
    return "; ".join(reasons)


def _new_partners(nodes: list[str], measured: set[frozenset[str]]) -> list[tuple[str, str]]:
    """Return new pairs among nodes that were slow in every pair so far."""
    chosen: list[tuple[str, str]] = []
    free = list(nodes)
    while free:
        node = free.pop(0)
        partner = next((one for one in free if frozenset((node, one)) not in measured), None)
        if partner is not None:
            free.remove(partner)
            chosen.append((node, partner))
    return chosen
