"""Pairs of nodes that meet, round after round, until it is known which node or way is weak: judged by check B3."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuinfra.node.judge import judge
from gpuinfra.verification.pairs import Meeting, Verdict, first_round, next_round

SCHEMA = "gpuinfra.pairs/1"
Pair = tuple[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Half:
    """What one of the two said."""

    result: str = ""
    """The JSON that its node part printed."""
    exit: int | None = None
    problem: str = ""
    """Why nothing came of it."""


def hold(nodes: Sequence[str], meet: Callable[[list[Pair]], list[Meeting]]) -> list[Meeting]:
    """Round after round, until nothing is open any more; the pairs of a round meet at the same time."""
    meetings: list[Meeting] = []
    pairs = first_round(nodes)
    while pairs:
        meetings += meet(pairs)
        pairs = next_round(nodes, meetings)
    return meetings


def meeting_of(pair: Pair, halves: Mapping[str, Half], expectations: Mapping[str, Mapping[str, Any]]) -> Meeting:
    """Good where both halves pass check B3; else with what each of them says."""
    why = []
    for name in pair:
        half = halves.get(name, Half(problem="said nothing"))
        if text := _wrong(half, expectations[name]):
            why.append(text)
    return Meeting(first=pair[0], second=pair[1], good=not why, why="; ".join(dict.fromkeys(why)))


def speed_of(half: Half) -> float | None:
    """GB/s that one half measured."""
    try:
        found = json.loads(half.result)["busbw_gb_s"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return round(found, 1) if isinstance(found, int | float) and not isinstance(found, bool) else None


def _wrong(half: Half, expectation: Mapping[str, Any]) -> str:
    if half.problem:
        return half.problem
    record = {
        "argv": ["node.pyz", "pair"], "exit": half.exit, "stdout": half.result, "stderr": "", "truncated": False, "seconds": 0.0,
        "problem": None,
    }  # fmt: skip
    (check,) = judge({"pair": record}, {**expectation, "required": ["B3"], "skips": {}})
    return "" if check["outcome"] == "pass" else str(check["reason"])


def document(
    found: Verdict, meetings: Sequence[Meeting], speeds: Mapping[Pair, float | None], absent: Mapping[str, str]
) -> dict[str, Any]:
    """The stable JSON form."""
    return {
        "schema": SCHEMA,
        "verified": not (found.weak or found.ways or found.unknown or absent),
        "good": list(found.good),
        "weak": dict(found.weak),
        "ways": [list(way) for way in found.ways],
        "unknown": list(found.unknown),
        "absent": dict(absent),
        "meetings": [
            {
                "nodes": [one.first, one.second],
                "good": one.good,
                "why": one.why,
                "gb_s": speeds.get((one.first, one.second)),
            }
            for one in meetings
        ],
    }


def text(said: Mapping[str, Any]) -> Iterator[str]:
    """What all meetings together say, and what to do."""
    for name, why in said["weak"].items():
        yield f"{name}: weak with every partner: {why}"
        yield "  -> drain it; compare its fabric checks with a good node's (gpuinfra verify), reboot it, measure again, else replace it"
    for first, second in said["ways"]:
        yield f"{first} and {second}: each is good with others, and they are weak together"
        yield "  -> the way between them is the suspect (a switch, a cable, a placement), not the nodes; tell the cloud's support"
    if said["unknown"]:
        yield f"nobody good was met by {', '.join(said['unknown'])}"
        yield "  -> no node is accused: look at the fabric, the plugin and the floor that the catalogue names (gpuinfra explain B3)"
    for name, why in said["absent"].items():
        yield f"{name}: {why}"
    total = len(said["good"]) + len(said["weak"]) + len(said["unknown"]) + len(said["absent"])
    yield f"{len(said['good'])} of {total} nodes reach a partner at the machine's bandwidth, in {len(said['meetings'])} meetings."
