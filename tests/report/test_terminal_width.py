"""Tables fit the width of the terminal."""

from __future__ import annotations

from typing import Any

import pytest

from gpuinfra.cli import main
from gpuinfra.report import tables

NAMES = ("aws-p4d", "aws-recovery", "azure-ndv5", "gcp-a3mega")
COMMANDS = (
    "catalog",
    "catalog --cloud azure",
    "catalog p5.48xlarge",
    "prices p4d.24xlarge Standard_ND96isr_H100_v5 a3-megagpu-8g",
    "cache",
    "size --model llama-2-13b --tokens 2T --days 90",
    *(f"{command} {name}" for name in NAMES for command in ("plan", "prices", "prices --sources")),
)


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All lines of tables that a command prints in a terminal with 80 columns."""
    lines: list[str] = []
    made = tables.text

    def recorded(*args: Any, **options: Any) -> list[str]:
        table = made(*args, **options)
        lines.extend(table)
        return table

    monkeypatch.setattr(tables, "terminal_width", lambda: 80)
    monkeypatch.setattr(tables, "text", recorded)
    return lines


@pytest.mark.parametrize("command", COMMANDS)
def test_no_table_is_wider_than_the_terminal(command: str, narrow: list[str]) -> None:
    """In a terminal with 80 columns, no line of a table has more."""
    assert main(command.split()) == 0
    assert narrow
    assert [line for line in narrow if len(line) > 80] == []


def test_columns_that_do_not_fit_are_named() -> None:
    """Optional columns are omitted from right to left until the table fits, and the last line names them."""
    table = tables.Table(
        ["machine", *(tables.Column(title, optional=True) for title in ("vCPU", "GiB"))], [("x" * 30, "208", "1872")]
    )
    assert tables.text(table, width=38) == [
        f"machine{' ' * 25}vCPU",
        f"{'x' * 30}  208",
        "not shown, because the terminal is too",
        "  narrow: GiB",
    ]
    assert tables.text(table, width=60)[0].split() == ["machine", "vCPU", "GiB"]
