"""Text from elsewhere, made fit to be shown."""

from __future__ import annotations


def harmless(text: str) -> str:
    """Text from a node or a cloud without anything that a terminal would obey, at most 400 characters of a line."""
    return "".join(c if c.isprintable() else "?" for c in text.replace("\t", "    "))[:400]
