"""Measures pairs in rounds until the slow node or path is found. Check B3 judges each pair."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuinfra.base.json_text import bounded
from gpuinfra.handover.workers import NotEvaluated, shared
from gpuinfra.node.judge import judge
from gpuinfra.node.pairs import PairResult, PairsVerdict, first_round, next_round

SCHEMA = "gpuinfra.pairs/1"
Pair = tuple[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeResult:
    """The result that one node of a pair returned."""

    result: str = ""
    """The JSON that the node program printed."""
    exit: int | None = None
    problem: str = ""
    """Why there is no result."""


def run_rounds(nodes: Sequence[str], measure: Callable[[list[Pair]], list[PairResult]]) -> list[PairResult]:
    """Measure rounds of pairs until the verdict is final. All pairs in a round run at the same time."""
    results: list[PairResult] = []
    pairs = first_round(nodes)
    while pairs:
        results += measure(pairs)
        pairs = next_round(nodes, results)
    return results


def pair_result(
    pair: Pair, by_node: Mapping[str, NodeResult], expectations: Mapping[str, Mapping[str, Any]]
) -> PairResult:
    """Judge a pair. It is good if both nodes pass check B3; otherwise, the result contains the reasons."""
    reasons = []
    for name in pair:
        answer = by_node.get(name, NodeResult(problem=f"{name} returned no result"))
        if reason := _problem(answer, expectations[name]):
            reasons.append(reason)
    return PairResult(first=pair[0], second=pair[1], good=not reasons, reason="; ".join(dict.fromkeys(reasons)))


def speed_of(node_result: NodeResult) -> float | None:
    """Return the bandwidth that one node measured, in GB/s."""
    try:
        bandwidth = bounded(node_result.result.encode("utf-8", "replace"))["busbw_gb_s"]
    except (ValueError, KeyError, TypeError):
        return None
    return round(bandwidth, 1) if isinstance(bandwidth, int | float) and not isinstance(bandwidth, bool) else None


def _problem(node_result: NodeResult, expectation: Mapping[str, Any]) -> str:
    if node_result.problem:
        return node_result.problem
    record = {
        "argv": ["node.pyz", "pair"], "exit": node_result.exit, "stdout": node_result.result, "stderr": "", "truncated": False, "seconds": 0.0,
        "problem": None,
    }  # fmt: skip
    try:
        (check,) = shared().call(judge, {"pair": record}, {**expectation, "required": ["B3"], "skips": {}})
    except NotEvaluated as error:
        return f"the result cannot be judged: {error}"
    return "" if check["outcome"] == "pass" else str(check["reason"])


def document(
    pairs_verdict: PairsVerdict,
    results: Sequence[PairResult],
    speeds: Mapping[Pair, float | None],
    absent: Mapping[str, str],
    labels: Mapping[str, str],
) -> dict[str, Any]:
    """Return the verdict in its stable JSON form. `labels` maps each host name to the name of its node in the stack."""
    return {
        "schema": SCHEMA,
        "verified": not (pairs_verdict.slow or pairs_verdict.slow_paths or pairs_verdict.unknown or absent),
        "good": list(pairs_verdict.good),
        "slow": dict(pairs_verdict.slow),
        "slow_paths": [list(path) for path in pairs_verdict.slow_paths],
        "unknown": list(pairs_verdict.unknown),
        "absent": dict(absent),
        "labels": dict(labels),
        "pairs": [
            {
                "nodes": [one.first, one.second],
                "good": one.good,
                "reason": one.reason,
                "gb_s": speeds.get((one.first, one.second)),
            }
            for one in results
        ],
    }
