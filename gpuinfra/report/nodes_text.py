"""Formats the nodes of a stack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from gpuinfra.base.words import counted, titled
from gpuinfra.node.repair import RepairStatus
from gpuinfra.report import tables
from gpuinfra.report.prices import usd
from gpuinfra.report.tables import Cell, Column, Table
from gpuinfra.verification.nodes import NodeRow, NodeState

SCHEMA = "gpuinfra.nodes/1"


def document(stack: str, rows: Sequence[NodeRow], repair: RepairStatus | None = None) -> dict[str, Any]:
    """Return the stable JSON form. Times are in UTC."""
    return {
        "schema": SCHEMA,
        "stack": stack,
        "totals": _counts(rows),
        "usd_per_hour": _total(rows),
        "nodes": [
            {**asdict(row), "verified_since": _iso(row.verified_since), "checked": _iso(row.checked)} for row in rows
        ],
        "repair": None
        if repair is None
        else {
            **asdict(repair),
            "mode": repair.mode.value,
            "events": [dict(zip(EVENT, one, strict=True)) for one in repair.events],
        },
    }


EVENT = ("at", "event", "node", "instance_id", "reason")
"""Fields of an event of the repair."""


def text(rows: Sequence[NodeRow], now: datetime, repair: RepairStatus | None = None) -> Iterator[str]:
    """Return a table with the nodes, the totals, and the events of the repair."""
    columns = [
        "node", "state", "group", "machine", "zone", "verified since (UTC)", Column("checked", right=True),
        Column("USD/hour", right=True), Column("reason", wrap=True),
    ]  # fmt: skip
    if any(row.notices for row in rows):
        columns.append(Column("notices", wrap=True))
    shown = [
        (
            titled(row.label, row.instance_id), Cell(badge=row.state), row.group, row.machine, row.zone, _since(row),
            _ago(row.checked, now), usd(row.usd_per_hour), row.reason,
            "; ".join(row.notices),
        )[: len(columns)]
        for row in rows
    ]  # fmt: skip
    yield from tables.text(Table(columns, shown))
    yield ""
    counts = _counts(rows)
    parts = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    yield f"{counted(sum(counts.values()), 'node')}: {parts}; {usd(_total(rows))} USD an hour for machines, without disks and storage"
    if repair is not None:
        yield from _repair(repair, {row.instance_id: row.label for row in rows})


def _repair(repair: RepairStatus, labels: Mapping[str, str]) -> Iterator[str]:
    limit = (
        ""
        if repair.mode.value == "report"
        else f", {repair.taken} of {counted(repair.at_most, 'node')} taken out of use in 24 hours"
    )
    current = f"; {repair.node}: {repair.step}" if repair.node else ""
    held = f"; held: {', '.join(repair.held)}" if repair.held else ""
    yield f"repair: {repair.mode.value}{limit}{current}{held}{f' ({repair.problem})' if repair.problem else ''}"
    if repair.events:
        columns = ["time (UTC)", "event", "node", Column("reason", wrap=True)]
        rows = [
            (at, event, titled(labels.get(id_, node), id_), reason) for at, event, node, id_, reason in repair.events
        ]
        yield ""
        yield from tables.text(Table(columns, rows))


def _counts(rows: Sequence[NodeRow]) -> dict[str, int]:
    return {state.value: sum(row.count for row in rows if row.state is state) for state in NodeState}


def _total(rows: Sequence[NodeRow]) -> float | None:
    """Return the price of all nodes, or None if a price is unknown."""
    prices = [row.usd_per_hour for row in rows if row.usd_per_hour is not None]
    return round(sum(prices), 4) if len(prices) == len(rows) else None


def _since(row: NodeRow) -> str:
    if row.verified_since is None:
        return ""
    return ("" if row.since_exact else "before ") + row.verified_since.strftime("%Y-%m-%d %H:%M")


def _ago(then: datetime | None, now: datetime) -> str:
    if then is None:
        return ""
    minutes = max(0, int((now - then).total_seconds() // 60))
    return f"{minutes} min ago" if minutes < 120 else f"{minutes // 60} h ago"


def _iso(then: datetime | None) -> str | None:
    return then.strftime("%Y-%m-%dT%H:%M:%SZ") if then else None
