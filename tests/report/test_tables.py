from __future__ import annotations

import os

import pytest

from gpuinfra.base.safe_text import one_line, printable
from gpuinfra.report import tables
from gpuinfra.report.tables import Cell, Column, Table
from tests.report.samples import HOSTILE

ID = "i-" + "0" * 60
LONG = "a reason that is much longer than any terminal " * 4
TABLE = Table(["node", Column("count", right=True), Column("reason", wrap=True)], [[ID, 7, LONG], ["b", 12, ""]])


def test_output_that_is_no_terminal_has_one_line_for_each_row() -> None:
    """Without a terminal nothing wraps, numbers are on the right, and no line ends in blanks."""
    lines = tables.text(TABLE, indent=2)
    assert len(lines) == 3
    assert lines[0].split() == ["node", "count", "reason"]
    assert lines[1] == f"  {ID}      7  {LONG.strip()}"
    assert lines[2] == "  b" + " " * 66 + "12"


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_ids_stay_whole_in_a_narrow_terminal(width: int) -> None:
    """Columns that may wrap fold; an id is never cut, even where it is wider than the terminal."""
    lines = tables.text(TABLE, width=width)
    assert ID in lines[1]
    assert "".join(line[62:].replace(" ", "") for line in lines[1:-1]).endswith(LONG.replace(" ", "")[-40:])
    assert max(map(len, lines)) <= max(width, 62 + 2 + 5 + 2 + tables.WRAPPED)


def test_cells_are_data() -> None:
    """Markup of the table library, escape sequences and line breaks in a cell have no effect."""
    (_, line) = tables.text(Table(["x"], [["[red]a[/red]\n" + HOSTILE]]))
    assert line.startswith("[red]a[/red] <script>")
    assert line.isprintable()


def test_badges_and_doubts_are_words_in_text() -> None:
    """A badge precedes the text, and a doubt follows it in parentheses."""
    (line,) = tables.text(Table([""], [[Cell("2026-11-21", badge="warn", doubt="estimate")]]), header=False)
    assert line == "warn 2026-11-21 (estimate)"


def test_rows_must_fit_the_columns() -> None:
    """A row with a missing cell is a programming error."""
    with pytest.raises(ValueError, match="fewer cells"):
        Table(["a", "b"], [["1"]])


@pytest.mark.parametrize("code", range(0x20))
def test_no_control_character_survives(code: int) -> None:
    """Only line breaks and tabs pass, and only in text of several lines."""
    assert printable(f"a{chr(code)}b").isprintable() or chr(code) in "\n\t"
    assert one_line(f"a{chr(code)}b").isprintable()


def test_one_line_is_bounded() -> None:
    """A flood is cut, and direction marks and the second control set are replaced."""
    assert len(one_line("x" * 10_000)) == 400
    assert one_line("a\u202eb\x9bc\u2066d") == "a?b?c?d"
    assert (printable(None), one_line(None)) == ("", "")


def test_colors_need_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output that is no terminal, and NO_COLOR, have no escape sequences."""
    table = Table([""], [[Cell(badge="failed")]])
    assert "\x1b" not in tables.text(table)[-1]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b" in tables.text(table)[-1]
    monkeypatch.setitem(os.environ, "NO_COLOR", "1")
    assert "\x1b" not in tables.text(table)[-1]
