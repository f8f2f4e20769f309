"""Makes text from nodes, clouds, and files safe for a terminal, log, web page, or XML document.

Control characters, escape sequences, and marks that change text direction are replaced, so that the text cannot affect the program that
displays it. Code that writes HTML or XML also escapes the text. The node program has its own function (`node.outcome`):
in evidence, these characters are written as escape sequences, so that they remain visible during an investigation.
"""

from __future__ import annotations

SUBSTITUTE = "?"
MAX_LINE = 400


def printable(value: object, limit: int | None = None) -> str:
    """Return the text with all unprintable characters except line breaks and tabs replaced. Returns an empty string for None."""
    text = "" if value is None else str(value).replace("\r\n", "\n")
    if text.isprintable():
        return text[:limit]
    return "".join(c if c.isprintable() or c in "\n\t" else SUBSTITUTE for c in text)[:limit]


def one_line(value: object, limit: int = MAX_LINE) -> str:
    """Return the text as one printable line of at most `limit` characters."""
    return " ".join(printable(value).split())[:limit]
