"""Renders tables: one structure is rendered as text in a terminal, as a table on a page, and as Markdown.

Cells are data, never markup. If output is not a terminal, columns keep their full width, so logs and scripts read one
line per row. In a terminal, wrappable columns wrap to fit the width, and IDs are never broken.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuinfra.base.safe_text import one_line

if TYPE_CHECKING:
    from rich.text import Text

UNLIMITED = 100_000
"""Width of output that does not go to a terminal."""
WRAPPED = 24
"""Minimum width of a column that can wrap."""
GOOD, WARN, BAD, QUIET = "good", "warn", "bad", "quiet"
COLORS = {GOOD: "green", WARN: "yellow", BAD: "red", QUIET: "bright_black"}
OUTCOMES = {
    "verified": GOOD, "pass": GOOD, "ok": GOOD, "ready": GOOD, "skip": QUIET, "note": QUIET, "info": QUIET, "not rehearsed": QUIET,
    "planned": QUIET, "simulated": QUIET, "warn": WARN, "drifted": WARN, "waiting": WARN, "estimate": WARN, "look": WARN,
}  # fmt: skip
"""The display style of each outcome. All other outcomes are displayed as bad."""


@dataclass(frozen=True)
class Cell:
    """A cell. A plain string is a cell that contains only text."""

    text: str = ""
    note: str = ""
    """A second, less prominent line. Pages only."""
    badge: str = ""
    """An outcome from `OUTCOMES` that is shown before the text."""
    doubt: str = ""
    """A badge after the text. In text output, it appears in parentheses."""
    code: bool = False
    strong: bool = False


@dataclass(frozen=True)
class Column:
    """A column. A plain string is a left-aligned column that never wraps."""

    title: str = ""
    right: bool = False
    wrap: bool = False
    width: int = 0
    """Minimum width in text output."""


NO_TITLE = Column()


@dataclass(frozen=True, init=False)
class Table:
    """Columns and rows."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __init__(self, columns: Sequence[str | Column], rows: Iterable[Sequence[object]]) -> None:
        object.__setattr__(self, "columns", tuple(c if isinstance(c, Column) else Column(c) for c in columns))
        made = tuple(
            tuple(v if isinstance(v, Cell) else Cell("" if v is None else str(v)) for v in row) for row in rows
        )
        if any(len(row) != len(self.columns) for row in made):
            raise ValueError("a row has more or fewer cells than the table has columns")
        object.__setattr__(self, "rows", made)

    def __bool__(self) -> bool:
        return bool(self.rows)


def tone(word: str) -> str:
    """Return how an outcome is shown: `good`, `warn`, `bad` or `quiet`."""
    return OUTCOMES.get(word, BAD)


def text(table: Table, *, indent: int = 0, header: bool = True, width: int | None = None) -> list[str]:
    """Render the table as lines. `width` overrides the terminal's width."""
    from rich.console import Console
    from rich.table import Table as RichTable

    shown = [[_cell(cell) for cell in row] for row in table.rows]
    titles = [column.title if header else "" for column in table.columns]
    widths = [
        max([len(title), column.width, *(row[at].cell_len for row in shown)])
        for at, (title, column) in enumerate(zip(titles, table.columns, strict=True))
    ]
    folded = [min(size, WRAPPED) if column.wrap else size for size, column in zip(widths, table.columns, strict=True)]
    gaps = 2 * (len(widths) - 1)
    total = max(sum(folded) + gaps, min(sum(widths) + gaps, (width or terminal_width()) - indent))
    drawn = RichTable(box=None, show_header=header, pad_edge=False, padding=(0, 2, 0, 0))
    for title, column, size in zip(titles, table.columns, folded, strict=True):
        drawn.add_column(
            title,
            justify="right" if column.right else "left",
            no_wrap=not column.wrap,
            min_width=size,
            overflow="fold",
            header_style="bold",
        )
    for row in shown:
        drawn.add_row(*row)
    stream = io.StringIO()
    color = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    console = Console(
        file=stream, width=total, force_terminal=color, highlight=False, emoji=False, legacy_windows=False,
        color_system="standard" if color else None,
    )  # fmt: skip
    console.print(drawn)
    return [f"{' ' * indent}{line}".rstrip() for line in stream.getvalue().splitlines()]


def markdown(table: Table, rows: int) -> list[str]:
    """Render the first `rows` rows as a table of GitHub Flavored Markdown."""
    titles = [escaped(column.title) or " " for column in table.columns]
    aligned = ["---:" if column.right else "---" for column in table.columns]
    cells = [[code(cell.text) if cell.code else escaped(cell.text) for cell in row] for row in table.rows[:rows]]
    return [f"| {' | '.join(row)} |" for row in (titles, aligned, *cells)]


def escaped(text: str) -> str:
    """Return text that Markdown shows as it is, on one line, without markup, links and mentions."""
    plain = one_line(text, limit=4000)
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("@", "&#64;")):
        plain = plain.replace(sign, entity)
    return re.sub(r"([\\`*_{}\[\]|~#!])(?!64;)", r"\\\1", plain)


def code(text: str) -> str:
    """Return text as code in a cell of a Markdown table. A backtick in it becomes an apostrophe."""
    plain = one_line(text, limit=4000).replace("`", "'").replace("|", "\\|")
    return f"`{plain}`" if plain else ""


def fields(rows: Iterable[tuple[str, str]], *, indent: int = 0, label: Column = NO_TITLE) -> list[str]:
    """Render labels and values, one pair per line. In a terminal, long values wrap."""
    return text(Table([label, Column(wrap=True)], rows), indent=indent, header=False)


def terminal_width() -> int:
    """Return the width of standard output. Unlimited if it is not a terminal."""
    if not sys.stdout.isatty():
        return UNLIMITED
    return max(shutil.get_terminal_size((80, 24)).columns, 40)


def _cell(cell: Cell) -> Text:
    from rich.text import Text

    made = Text()
    if cell.badge:
        made.append(one_line(cell.badge), style=COLORS[tone(cell.badge)])
    if cell.text:
        made.append((" " if cell.badge else "") + one_line(cell.text, limit=4000), style="bold" if cell.strong else "")
    if cell.doubt:
        made.append(f" ({one_line(cell.doubt)})", style=COLORS[tone(cell.doubt)])
    return made


def kept_table(rows: Any) -> Table:
    """Return the table of resources that `destroy` retains, with name, type and reason."""
    made = [(Cell(str(name), strong=True), Cell(str(type_), code=True), reason) for name, type_, reason in rows]
    return Table(["name", Column("type", wrap=True), Column("reason", wrap=True)], made)
