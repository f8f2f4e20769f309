"""Renders tables: one structure is rendered as text in a terminal, as a table on a page, and as Markdown.

Cells are data, never markup. If output is not a terminal, columns keep their full width, so logs and scripts read one
line per row. In a terminal, wrappable columns wrap to fit the width, and IDs are never broken. In a terminal that is still too narrow,
optional columns are omitted, and a last line names them.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
import textwrap
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
NARROW = 12
"""Minimum width of a column that can wrap in a terminal that is too narrow for `WRAPPED`."""
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
    optional: bool = False
    """Omitted, from right to left, in a terminal that is too narrow for all columns."""


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

    limit = (width or terminal_width()) - indent
    table, omitted = _fitting(table, limit, header)
    shown, titles = _cells(table), _titles(table, header)
    widths = _widths(table, header)
    folded = _folded(table, widths, limit)
    gaps = 2 * (len(widths) - 1)
    total = max(sum(folded) + gaps, min(sum(widths) + gaps, limit))
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
    color = has_color()
    console = Console(
        file=stream, width=total, force_terminal=color, highlight=False, emoji=False, legacy_windows=False,
        color_system="standard" if color else None,
    )  # fmt: skip
    console.print(drawn)
    lines = stream.getvalue().splitlines()
    if omitted:
        note = f"not shown, because the terminal is too narrow: {', '.join(omitted)}"
        lines.extend(textwrap.wrap(note, max(limit, WRAPPED), subsequent_indent="  "))
    return [f"{' ' * indent}{line}".rstrip() for line in lines]


def _fitting(table: Table, limit: int, header: bool) -> tuple[Table, list[str]]:
    """Return the table without the optional columns for which the width does not suffice, and the titles of these columns."""
    omitted: list[str] = []
    while True:
        widths = _widths(table, header)
        least = sum(_folded(table, widths, limit)) + 2 * (len(widths) - 1)
        at = next((at for at in reversed(range(len(table.columns))) if table.columns[at].optional), None)
        if least <= limit or at is None:
            return table, omitted
        omitted.insert(0, table.columns[at].title)
        rows = [(*row[:at], *row[at + 1 :]) for row in table.rows]
        table = Table([*table.columns[:at], *table.columns[at + 1 :]], rows)


def _cells(table: Table) -> list[list[Text]]:
    return [[_cell(cell) for cell in row] for row in table.rows]


def _titles(table: Table, header: bool) -> list[str]:
    return [column.title if header else "" for column in table.columns]


def _widths(table: Table, header: bool) -> list[int]:
    """Return the width of each column without wrapping."""
    rows = _cells(table)
    return [
        max([len(title), column.width, *(row[at].cell_len for row in rows)])
        for at, (title, column) in enumerate(zip(_titles(table, header), table.columns, strict=True))
    ]


def _folded(table: Table, widths: list[int], limit: int) -> list[int]:
    """Return the minimum width of each column: columns that can wrap become narrower than `WRAPPED` only if the terminal requires it,
    and break words only if that does not suffice."""
    gaps = 2 * (len(widths) - 1)
    words = [
        max((len(word) for row in table.rows for word in row[at].text.split()), default=0) for at in range(len(widths))
    ]
    for least in (lambda word: WRAPPED, lambda word: max(NARROW, min(word, WRAPPED)), lambda word: NARROW):
        folded = [
            min(size, least(word)) if column.wrap else size
            for size, word, column in zip(widths, words, table.columns, strict=True)
        ]
        if sum(folded) + gaps <= limit:
            break
    return folded


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


def has_color() -> bool:
    """Return whether standard output shows colors."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def painted(text: str, tone: str) -> str:
    """Return text in the color of a tone, such as `WARN`, if standard output shows colors."""
    if not has_color():
        return text
    import click

    return click.style(text, fg=COLORS[tone])


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
