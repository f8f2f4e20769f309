"""Phrases that several packages show: numbers with their noun, and names with their ID."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, singular: str, many: str = "") -> str:
    """Return a number with its noun: `1 node`, `2 nodes`. `many` is the plural, by default `singular` with an s."""
    return f"{number:,} {singular if number == 1 else many or f'{singular}s'}"


def titled(label: str, id: str) -> str:
    """Return the name of a node with its ID: `gpu-1 (i-0123...)`, or only the part that is available."""
    return f"{label} ({id})" if label and id and label != id else label or id


def numbers(values: Sequence[int]) -> str:
    """Return numbers as a list, or the first and the last of more than four consecutive numbers: `0, 1`, `0 to 15`."""
    if len(values) > 4 and tuple(values) == tuple(range(values[0], values[-1] + 1)):
        return f"{values[0]} to {values[-1]}"
    return ", ".join(map(str, values))
