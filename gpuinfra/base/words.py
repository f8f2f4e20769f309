"""Phrases that several packages show: numbers with their noun, and names with their ID."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 node`, `2 nodes`. `many` is the plural, by default `one` with an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def titled(label: str, id: str) -> str:
    """Return the name of a node with its ID: `gpu-1 (i-0123...)`, or only the part that is available."""
    return f"{label} ({id})" if label and id and label != id else label or id


def numbers(found: Sequence[int]) -> str:
    """Return numbers as a list, or the first and the last of more than four consecutive numbers: `0, 1`, `0 to 15`."""
    if len(found) > 4 and tuple(found) == tuple(range(found[0], found[-1] + 1)):
        return f"{found[0]} to {found[-1]}"
    return ", ".join(map(str, found))
