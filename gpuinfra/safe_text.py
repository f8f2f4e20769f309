"""Text from nodes, clouds and files, made safe for a terminal, a log, a page or an XML document.

Control characters, escape sequences and marks that change the direction of text are replaced, so nothing acts on what
shows the text. Escaping for HTML or XML comes on top and belongs to the writer of that format. The node program has its own
function (`node.outcome`): evidence spells the characters out so that they stay visible to a person who investigates.
"""

from __future__ import annotations

SUBSTITUTE = "?"


MAX_LINE = 400


def printable(value: object, limit: int | None = None) -> str:
    """The text with line breaks and tabs kept and every other unprintable character replaced; empty for None."""
    text = "" if value is None else str(value).replace("\r\n", "\n")
    return "".join(c if c.isprintable() or c in "\n\t" else SUBSTITUTE for c in text)[:limit]


def one_line(value: object, limit: int = MAX_LINE) -> str:
    """The text as one printable line of at most `limit` characters."""
    return " ".join(printable(value).split())[:limit]
