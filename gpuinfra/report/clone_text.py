"""Formats a clone as text: changes with reasons, items that are not cloned, price, and alternatives."""

from __future__ import annotations

import json
from collections.abc import Iterator

from gpuinfra.cost import Cost
from gpuinfra.region.clone import CloneResult
from gpuinfra.report import tables
from gpuinfra.report.prices import usd
from gpuinfra.report.tables import Cell, Column, Table


def text(result: CloneResult) -> str:
    """Return the entire report. If the clone is not possible, the report contains only alternatives."""
    return "\n".join(_lines(result))


def _lines(result: CloneResult) -> Iterator[str]:
    if not result.ok:
        yield from _alternatives(result)
        return
    zones = f", {', '.join(result.plan.zones)}" if result.plan else ""
    place = f"{result.cloud} {result.request.region}{zones}"
    yield f"{result.stack} ({result.source_region}) -> {place}, mode {result.request.mode}"
    yield ""
    columns = [
        Column("field", wrap=True),
        Column("before", wrap=True),
        Column("after", wrap=True),
        Column("reason", wrap=True),
    ]
    rows = [(Cell(one.path, strong=True), _value(one.before), _value(one.after), one.reason) for one in result.changes]
    yield from tables.text(Table(columns, rows))
    if result.manual:
        yield ""
        yield "not cloned"
        for action in result.manual:
            yield from tables.fields([(action.path, f"{action.what}: {action.why}"), ("", action.command)], indent=2)
    yield ""
    yield from _price(result)
    yield ""
    yield "next"
    for line in result.next:
        yield f"  {line}"


def _price(result: CloneResult) -> Iterator[str]:
    first = f"at the prices of {result.source_region}"
    before = f"clone, before a failover ({result.request.mode})"
    rows = [("stack", result.before), ("clone, while it runs", result.after)]
    if result.estimate:
        rows.append((f"clone, while it runs, {first}", result.estimate))
    rows.append((before, result.standing))
    if result.standing_estimate:
        rows.append((f"{before}, {first}", result.standing_estimate))
    shown = [(name, _hour(cost), _month(cost)) if cost else (name, "0.00", "0") for name, cost in rows]
    yield from tables.text(
        Table([Column("price"), Column("USD/hour", right=True), Column("USD/month", right=True)], shown)
    )
    for transfer in result.transfers:
        doubt = "" if transfer.certain else " (estimate)"
        each = (
            f"{transfer.usd_per_gb:g} USD per GB{doubt}, {transfer.read}"
            if transfer.usd_per_gb is not None
            else "price unknown"
        )
        size = f"{transfer.gib:,.0f} GiB, {usd(transfer.usd, 0)} USD ({each})" if transfer.gib is not None else each
        yield f"  {transfer.what}: {size}"
    yield "  not included: storage of the replica, requests, and changes after the first copy"


def _hour(cost: Cost) -> str:
    return _amount(cost, cost.usd_per_hour, 2)


def _month(cost: Cost) -> str:
    return _amount(cost, cost.usd_per_month, 0)


def _amount(cost: Cost, value: float, digits: int) -> str:
    if not cost.nodes_priced:
        return "unknown"
    return f"{'' if cost.complete else 'at least '}{usd(value, digits)}"


def _alternatives(result: CloneResult) -> Iterator[str]:
    if not result.alternatives:
        return
    yield "alternatives"
    rows = [
        (one.region, one.machine, usd(one.usd_per_hour), one.reason, Cell(one.options, code=True))
        for one in result.alternatives
    ]
    columns = [
        Column("region"),
        Column("machine"),
        Column("USD/hour", right=True),
        Column("reason", wrap=True),
        Column("options", wrap=True),
    ]
    yield from tables.text(Table(columns, rows), indent=2)


def _value(value: object) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
