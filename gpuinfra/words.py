"""Phrases that several packages show: numbers with their noun, and names with their ID."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 node`, `2 nodes`. `many` is the plural, by default `one` with an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def titled(label: str, id: str) -> str:
    """Return the name of a node with its ID: `gpu-1 (i-0123...)`, or only the part that is available."""
    return f"{label} ({id})" if label and id and label != id else label or id
