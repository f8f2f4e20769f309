"""Dealing nodes out to groups: one group for each kind of capacity, more only where a group's limit is reached."""

from __future__ import annotations

from collections.abc import Iterator

from gpuinfra.spec.capacity import Capacity
from gpuinfra.spec.pool import Pool


def shares(pool: Pool, limit: int | None) -> Iterator[tuple[Capacity, str, int]]:
    """Each group of a pool: the capacity it is of, its name, its nodes. Names count up within a kind."""
    numbers: dict[str, int] = {}
    for entry in pool.capacity:
        for count in _deal(entry.count, limit):
            index = numbers.get(entry.kind, 0)
            numbers[entry.kind] = index + 1
            yield entry, f"{pool.name}-{entry.kind.replace('_', '-')}-{index}", count


def _deal(count: int, limit: int | None) -> list[int]:
    """Full groups first, so that growing changes the last one only."""
    if limit is None or count <= limit:
        return [count]
    full, rest = divmod(count, limit)
    return [limit] * full + ([rest] if rest else [])
