"""Differences between the nodes of a pool that no check of a single node can find: the firmware of GPUs and adapters.

A difference does not refuse a node, because clouds update their hosts one after another. It explains a node that is slower than the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from gpuinfra.base.words import counted
from gpuinfra.node.checks import ALL
from gpuinfra.node.outcome import CheckResult

FIRMWARE = ("G17", "N12")
"""Checks whose `found` is the list of versions on a node."""
MOST_NAMES = 8

NodeChecks = tuple[str, str, Sequence[CheckResult]]
"""Label and pool of a node, and its checks."""


def firmware_notes(nodes: Iterable[NodeChecks]) -> list[str]:
    """Return one sentence for each pool and check in which nodes have other versions than most nodes of their pool."""
    versions: dict[tuple[str, str], dict[str, tuple[str, ...]]] = {}
    for label, pool, checks in nodes:
        for check in checks:
            if check["id"] in FIRMWARE and isinstance(check["found"], list) and check["outcome"] in ("pass", "warn"):
                versions.setdefault((pool, check["id"]), {})[label] = tuple(str(one) for one in check["found"])
    notes = []
    for (pool, check_id), by_node in versions.items():
        (usual, number), *others = Counter(by_node.values()).most_common()
        if others:
            different = [f"{label} ({', '.join(found)})" for label, found in by_node.items() if found != usual]
            more = f" and {len(different) - MOST_NAMES} more" if len(different) > MOST_NAMES else ""
            notes.append(
                f"{pool}: {ALL[check_id].name}: {counted(number, 'node')} with {', '.join(usual)}, but "
                f"{', '.join(different[:MOST_NAMES])}{more}; nodes with different firmware can differ in speed"
            )
    return notes
