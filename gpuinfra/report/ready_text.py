"""Formats the readiness of a stack's second region."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from gpuinfra.base.safe_text import one_line
from gpuinfra.clouds.region.readiness import FAIL, STATES, UNREAD, ReadinessLine
from gpuinfra.report import tables
from gpuinfra.report.tables import Cell, Column, Table

SCHEMA = "gpuinfra.ready/1"


def document(stack: str, region: str, lines: Sequence[ReadinessLine]) -> dict[str, Any]:
    """Return the stable JSON form."""
    counts = Counter(one.state for one in lines)
    return {
        "schema": SCHEMA,
        "stack": stack,
        "region": region,
        "ready": not counts[FAIL] and not counts[UNREAD],
        "complete": not counts[UNREAD],
        "totals": {state: counts[state] for state in STATES},
        "lines": [asdict(one) for one in lines],
    }


def text(region: str, lines: Sequence[ReadinessLine]) -> Iterator[str]:
    """Return a table of the lines, the most severe first, and the commands that fix them."""
    ordered = sorted(lines, key=lambda one: STATES.index(one.state))
    columns = ["", "topic", Column("name", wrap=True), Column("reason", wrap=True)]
    rows = [(Cell(badge=one.state), one.topic, Cell(one.name, strong=True), one.reason) for one in ordered]
    yield from tables.text(Table(columns, rows))
    fixes = dict.fromkeys(one.fix for one in ordered if one.fix)
    if fixes:
        yield ""
        yield "to fix"
        for fix in fixes:
            names = dict.fromkeys(f"{one.topic} {one.name}" for one in ordered if one.fix == fix)
            yield f"  {one_line(', '.join(names))}"
            yield f"    {fix}"
    yield ""
    counts = Counter(one.state for one in lines)
    parts = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    if counts[FAIL]:
        verdict = f"{region} is not ready"
    elif counts[UNREAD]:
        verdict = f"the readiness of {region} is unknown"
    else:
        verdict = f"{region} is ready"
    yield f"{verdict}: {parts}"
