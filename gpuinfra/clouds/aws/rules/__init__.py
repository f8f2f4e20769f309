"""Rules that only AWS has: interface layouts, capacity, nodes and FSx for Lustre."""

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
