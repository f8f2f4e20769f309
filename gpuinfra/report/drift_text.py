"""Formats the differences between a stack's current state and what was deployed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from gpuinfra.base.safe_text import one_line
from gpuinfra.base.words import counted, titled
from gpuinfra.report import tables
from gpuinfra.report.tables import Cell, Column, Table
from gpuinfra.verification.drift import CLOUD, NODE, Difference

SCHEMA = "gpuinfra.drift/1"
SHOWN = 40
"""Maximum length of a value in a table. The JSON document contains the full value."""


def document(stack: str, differences: Sequence[Difference], unread: Sequence[str]) -> dict[str, Any]:
    """Return the stable JSON form. `unread` lists the parts that could not be read, with the reason."""
    return {
        "schema": SCHEMA,
        "stack": stack,
        "drift": bool(differences),
        "complete": not unread,
        "totals": {area: sum(one.area == area for one in differences) for area in (CLOUD, NODE)},
        "differences": [asdict(one) for one in differences],
        "unread": list(unread),
    }


def text(differences: Sequence[Difference], unread: Sequence[str]) -> Iterator[str]:
    """Return a table of the differences, the commands that fix them, and the totals."""
    if differences:
        columns = [
            "",
            "name",
            "kind",
            Column("deployed", wrap=True),
            Column("now", wrap=True),
            Column("reason", wrap=True),
        ]
        rows = [
            (
                one.area, Cell(titled(one.name, one.id) if one.area == NODE else one.name, strong=True), one.kind,
                _shortened(one.recorded), _shortened(one.found), one.reason,
            )
            for one in differences
        ]  # fmt: skip
        yield from tables.text(Table(columns, rows))
        yield ""
        yield "to fix"
        for fix, names in _fixes(differences).items():
            yield f"  {one_line(', '.join(names))}"
            yield f"    {fix}"
        yield ""
    for reason in unread:
        yield f"not compared: {one_line(reason, 2000)}"
    counts = Counter(one.area for one in differences)
    shown = (
        f"{counted(counts[CLOUD], 'difference')} in the cloud, {counts[NODE]} on nodes" if differences else "no drift"
    )
    yield shown if not unread else f"{shown}; the comparison is not complete"


def _shortened(value: str) -> str:
    return value if len(value) <= SHOWN else f"{value[:SHOWN]}..."


def _fixes(differences: Sequence[Difference]) -> dict[str, list[str]]:
    """Return the names that each command fixes, without duplicates."""
    fixes: dict[str, list[str]] = {}
    for difference in differences:
        names = fixes.setdefault(difference.fix, [])
        if difference.name not in names:
            names.append(difference.name)
    return fixes
