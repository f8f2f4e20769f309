"""Formats prices for text and pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpuinfra.report.tables import Cell, Column, Table

NOT_CERTAIN = "estimate"


def usd(value: object, digits: int = 2) -> str:
    """Format an amount, or `unknown`."""
    return f"{value:,.{digits}f}" if isinstance(value, int | float) else "unknown"


def price_table(lines: Iterable[Mapping[str, Any]]) -> Table:
    """Return the table of billed items. `lines` come from `Cost.as_dict`. Notes and sources appear only in pages."""
    rows = [
        (
            Cell(str(line["what"]), note=str(line.get("note") or "")),
            usd(line.get("usd_per_hour")),
            Cell(
                str(line.get("read") or ""),
                note=str(line.get("source") or ""),
                doubt="" if line.get("certain", True) or not line.get("read") else NOT_CERTAIN,
            ),
        )
        for line in lines
    ]
    return Table(
        [Column("billed item", wrap=True), Column("USD/hour", right=True), Column("price of", wrap=True)], rows
    )


def summary(cost: Mapping[str, Any]) -> str:
    """Return the total as one sentence. If the price of the nodes is unknown, the price of the cluster is unknown."""
    hour = cost.get("usd_per_hour")
    if not cost.get("nodes_priced", True):
        return f"Unknown, because the price of the nodes is unknown. Everything else costs {usd(hour)} USD an hour."
    least = "" if cost.get("complete", True) else "at least "
    text = f"{least}{usd(hour)} USD an hour, {least}{usd(cost.get('usd_per_month'), 0)} USD for a month of 730 hours."
    return text[0].upper() + text[1:]


def hour_tile(cost: Mapping[str, Any], condition: str = "") -> tuple[str, str]:
    """Return the price per hour and its label."""
    hour = cost.get("usd_per_hour")
    if not isinstance(hour, int | float) or not cost.get("nodes_priced", True):
        return "unknown", f"USD per hour{condition}"
    return f"{hour:,.2f} USD", f"per hour{'' if cost.get('complete', True) else ', at least'}{condition}"
