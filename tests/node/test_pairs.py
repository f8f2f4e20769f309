from __future__ import annotations

import random

import pytest

from gpuinfra.node.pairs import MOST_PARTNERS, PairResult, PairsVerdict, first_round, next_round, verdict


def solve(
    nodes: list[str], slow: set[str], bad_paths: set[frozenset[str]] | None = None
) -> tuple[PairsVerdict, list[list[tuple[str, str]]]]:
    """Measure until the verdict is final; a pair is good when neither node nor the path between them is slow."""
    results: list[PairResult] = []
    rounds = []
    pairs = first_round(nodes)
    while pairs:
        rounds.append(pairs)
        assert len(rounds) <= len(nodes) + 2
        for first, second in pairs:
            good = not {first, second} & slow and frozenset((first, second)) not in (bad_paths or set())
            results.append(PairResult(first=first, second=second, good=good, reason="" if good else "61.0 of 150 GB/s"))
        pairs = next_round(nodes, results)
    return verdict(nodes, results), rounds


def names(count: int) -> list[str]:
    """Nodes in order."""
    return [f"n{at:03d}" for at in range(count)]


def test_a_healthy_fleet_needs_one_round() -> None:
    """Every node is measured once; the last node of an odd number is measured in a second round."""
    found, rounds = solve(names(8), set())
    assert (found.good, found.slow, len(rounds)) == (tuple(names(8)), {}, 1)
    found, rounds = solve(names(9), set())
    assert (len(found.good), [len(pairs) for pairs in rounds]) == (9, [4, 1])


def test_the_slow_node_of_a_slow_pair_is_found() -> None:
    """Each of the two is paired with a good node; the slow one is named with both figures, its first partner is good."""
    found, rounds = solve(names(6), {"n003"})
    assert set(found.slow) == {"n003"}
    assert found.slow["n003"] == "with n002: 61.0 of 150 GB/s; with n001: 61.0 of 150 GB/s"
    assert found.slow_paths == ()
    assert len(rounds) == 2


def test_a_slow_path_between_two_good_nodes_is_distinguished() -> None:
    """Two nodes that are good with others and slow together are good: the path between them is the finding."""
    found, _ = solve(names(8), set(), {frozenset(("n000", "n001"))})
    assert found.slow == {}
    assert found.slow_paths == (("n000", "n001"),)
    assert set(found.good) == set(names(8))


def test_without_a_good_pair_no_node_is_called_slow() -> None:
    """A fabric that is down makes every pair slow: nodes change partners a few times and then stay unknown."""
    found, rounds = solve(names(8), set(names(8)))
    assert (found.good, found.slow) == ((), {})
    assert set(found.unknown) == set(names(8))
    assert len(rounds) <= MOST_PARTNERS


def test_new_partners_find_a_hidden_good_pair() -> None:
    """When each good node is paired with a slow one first, new partners find the good ones."""
    found, _ = solve(names(4), {"n000", "n002"})
    assert set(found.slow) == {"n000", "n002"}
    assert set(found.good) == {"n001", "n003"}


def test_two_nodes_alone_stay_unknown() -> None:
    """A slow pair without a third node leaves both unknown."""
    found, _ = solve(names(2), {"n001"})
    assert (found.slow, found.unknown) == ({}, ("n000", "n001"))
    assert first_round(["n000"]) == []
    assert verdict(["n000"], []).unknown == ("n000",)


@pytest.mark.parametrize("seed", range(40))
def test_any_set_of_slow_nodes_is_found(seed: int) -> None:
    """For any set of slow nodes up to a third of the fleet, exactly those are named; no node is in two pairs of a round, and no pair is measured twice."""
    rng = random.Random(seed)
    nodes = names(rng.randrange(6, 120))
    slow = set(rng.sample(nodes, rng.randrange(len(nodes) // 3)))
    found, rounds = solve(nodes, slow)
    assert set(found.slow) == slow
    assert set(found.good) == set(nodes) - slow
    assert found.slow_paths == ()
    for pairs in rounds:
        used = [node for pair in pairs for node in pair]
        assert len(used) == len(set(used))
    everything = [frozenset(pair) for pairs in rounds for pair in pairs]
    assert len(everything) == len(set(everything))
