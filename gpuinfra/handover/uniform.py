"""Differences between the nodes of a pool that no check of a single node can find: firmware of GPUs and adapters, driver and kernel.

A difference is a warning and does not refuse a node, because providers update the firmware of their hosts one after another within a
concurrency limit (https://docs.nvidia.com/infra-controller/documentation/operations-day-2/firmware-updates/managed-host-firmware-updates,
retrieved 2026-11-30), so the nodes of a healthy pool differ for a while. A driver or kernel that the bundle does not accept fails the node's own check.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from gpuinfra.base.words import counted
from gpuinfra.node.cause import Cause
from gpuinfra.node.outcome import CheckResult

COMPARED = ("G17", "N12", "D2", "P2")
"""Checks whose `found` is a version, or the list of versions, on a node."""
MOST_NAMES = 8
HINT = (
    "nodes with different versions can differ in speed: compare B2, B5 and B9 of the nodes; if the difference remains after the provider's "
    "maintenance, report it to the cloud's support, or replace the node"
)

NodeChecks = tuple[str, str, Sequence[CheckResult]]
"""Label and pool of a node, and its checks."""


def compared(nodes: Sequence[NodeChecks]) -> list[tuple[CheckResult, ...]]:
    """Return the checks of each node, with a warning where a check that passed found other versions than on most nodes of the pool."""
    counts: dict[tuple[str, str], Counter[tuple[str, ...]]] = {}
    for _, pool, checks in nodes:
        for check in checks:
            if check["id"] in COMPARED and check["outcome"] in ("pass", "warn"):
                counts.setdefault((pool, check["id"]), Counter())[_versions(check)] += 1
    return [
        tuple(_compared(check, counts.get((pool, check["id"]), Counter())) for check in checks)
        for _, pool, checks in nodes
    ]


def _compared(check: CheckResult, counts: Counter[tuple[str, ...]]) -> CheckResult:
    if len(counts) < 2 or check["outcome"] != "pass":
        return check
    usual = max(counts, key=lambda versions: (counts[versions], versions))
    own = _versions(check)
    if own == usual:
        return check
    others = f"{counted(counts[usual], 'node')} of the pool with {', '.join(usual)}"
    expected = list(usual) if isinstance(check["found"], list) else usual[0]
    return {
        **check, "outcome": "warn", "expected": expected, "reason": f"found {', '.join(own)}, which differs from {others}",
        "hint": HINT, "cause": Cause.POOL_DIFFERS,
    }  # fmt: skip


def _versions(check: CheckResult) -> tuple[str, ...]:
    versions = check["found"]
    return tuple(str(one) for one in versions) if isinstance(versions, list) else (str(versions),)


def differences(checks: Iterable[CheckResult]) -> list[CheckResult]:
    """Return the checks whose versions differ from those of most nodes of the pool."""
    return [check for check in checks if check["cause"] is Cause.POOL_DIFFERS]


def difference_notes(nodes: Iterable[NodeChecks]) -> list[str]:
    """Return one sentence for each pool and check with such a difference."""
    different: dict[tuple[str, str, str], list[str]] = {}
    for label, pool, checks in nodes:
        for check in differences(checks):
            usual = check["expected"] if isinstance(check["expected"], list) else [check["expected"]]
            place = (pool, check["name"], ", ".join(map(str, usual)))
            different.setdefault(place, []).append(f"{label} ({', '.join(_versions(check))})")
    return [
        f"{pool}: {name}: most nodes have {usual}, but {', '.join(named[:MOST_NAMES])}"
        + (f" and {len(named) - MOST_NAMES} more" if len(named) > MOST_NAMES else "")
        + "; nodes with different versions can differ in speed"
        for (pool, name, usual), named in different.items()
    ]
