"""Divides the nodes of a pool into groups: one per kind of capacity, or several if the group size is limited."""

from __future__ import annotations

from collections.abc import Iterator

from gpuinfra.spec.capacity import Capacity
from gpuinfra.spec.pool import Pool


def shares(pool: Pool, limit: int | None) -> Iterator[tuple[Capacity, str, int]]:
    """Yield the capacity, name, and number of nodes of each group. Numbering restarts for each kind of capacity."""
    numbers: dict[str, int] = {}
    for entry in pool.capacity:
        for count in _divide(entry.count, limit):
            index = numbers.get(entry.kind, 0)
            numbers[entry.kind] = index + 1
            yield entry, f"{pool.name}-{entry.kind.replace('_', '-')}-{index}", count


def _divide(count: int, limit: int | None) -> list[int]:
    """Fill the groups in order, so that adding nodes changes only the last group."""
    if limit is None or count <= limit:
        return [count]
    full, rest = divmod(count, limit)
    return [limit] * full + ([rest] if rest else [])
