from __future__ import annotations

import random

import pytest

from gpuinfra.verification.pairs import MOST_PARTNERS, Meeting, Verdict, first_round, next_round, verdict


def solve(
    nodes: list[str], slow: set[str], bad_ways: set[frozenset[str]] | None = None
) -> tuple[Verdict, list[list[tuple[str, str]]]]:
    """Let nodes meet until nothing is open; a pair is good when neither node is slow and the way between them is good."""
    meetings: list[Meeting] = []
    rounds = []
    pairs = first_round(nodes)
    while pairs:
        rounds.append(pairs)
        assert len(rounds) <= len(nodes) + 2
        for first, second in pairs:
            good = not {first, second} & slow and frozenset((first, second)) not in (bad_ways or set())
            meetings.append(Meeting(first=first, second=second, good=good, why="" if good else "61.0 of 150 GB/s"))
        pairs = next_round(nodes, meetings)
    return verdict(nodes, meetings), rounds


def names(count: int) -> list[str]:
    """Nodes in order."""
    return [f"n{at:03d}" for at in range(count)]


def test_a_healthy_fleet_needs_one_round() -> None:
    """Everybody meets once and nothing is open; the last of an odd number meets in a second round."""
    found, rounds = solve(names(8), set())
    assert (found.good, found.weak, len(rounds)) == (tuple(names(8)), {}, 1)
    found, rounds = solve(names(9), set())
    assert (len(found.good), [len(pairs) for pairs in rounds]) == (9, [4, 1])


def test_the_slow_node_of_a_weak_pair_is_found() -> None:
    """Each of the two meets a good node; the slow one is named with both figures, its first partner is cleared."""
    found, rounds = solve(names(6), {"n003"})
    assert set(found.weak) == {"n003"}
    assert found.weak["n003"] == "with n002: 61.0 of 150 GB/s; with n001: 61.0 of 150 GB/s"
    assert found.ways == ()
    assert len(rounds) == 2


def test_a_weak_way_between_two_good_nodes_is_told_apart() -> None:
    """Two nodes that are good with others and weak together are not drained: the way between them is the finding."""
    found, _ = solve(names(8), set(), {frozenset(("n000", "n001"))})
    assert found.weak == {}
    assert found.ways == (("n000", "n001"),)
    assert set(found.good) == set(names(8))


def test_where_nobody_is_good_nobody_is_accused() -> None:
    """A fabric that is down makes every pair weak: nodes change partners a few times and then stay unknown."""
    found, rounds = solve(names(8), set(names(8)))
    assert (found.good, found.weak) == ((), {})
    assert set(found.unknown) == set(names(8))
    assert len(rounds) <= MOST_PARTNERS


def test_one_good_pair_that_was_hidden_is_found_by_changing_partners() -> None:
    """When each good node met a slow one first, new partners find the good ones."""
    found, _ = solve(names(4), {"n000", "n002"})
    assert set(found.weak) == {"n000", "n002"}
    assert set(found.good) == {"n001", "n003"}


def test_two_nodes_alone_cannot_be_told_apart() -> None:
    """A weak pair without a third node leaves both unknown."""
    found, _ = solve(names(2), {"n001"})
    assert (found.weak, found.unknown) == ({}, ("n000", "n001"))
    assert first_round(["n000"]) == []
    assert verdict(["n000"], []).unknown == ("n000",)


@pytest.mark.parametrize("seed", range(40))
def test_slow_nodes_are_found_whoever_they_are(seed: int) -> None:
    """For any set of slow nodes up to a third of the fleet, exactly they are named; no node is in two pairs of a round, no pair meets twice."""
    rng = random.Random(seed)
    nodes = names(rng.randrange(6, 120))
    slow = set(rng.sample(nodes, rng.randrange(len(nodes) // 3)))
    found, rounds = solve(nodes, slow)
    assert set(found.weak) == slow
    assert set(found.good) == set(nodes) - slow
    assert found.ways == ()
    for pairs in rounds:
        met = [node for pair in pairs for node in pair]
        assert len(met) == len(set(met))
    everything = [frozenset(pair) for pairs in rounds for pair in pairs]
    assert len(everything) == len(set(everything))
