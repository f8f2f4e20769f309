"""Rules that only AWS has: what can be bought, what a node can be, what FSx sells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date

from gpuinfra.clouds.aws.rules import capacity, layout, nodes, storage
from gpuinfra.findings import Finding
from gpuinfra.spec.model import ClusterSpec

RULES: tuple[Callable[[ClusterSpec, date], Iterator[Finding]], ...] = (
    *layout.RULES,
    *capacity.RULES,
    *nodes.RULES,
    *storage.RULES,
)
