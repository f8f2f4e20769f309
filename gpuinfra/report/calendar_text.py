"""Formats the dates of a stack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from gpuinfra.base.words import counted
from gpuinfra.calendar import Calendar, DateState, Event
from gpuinfra.clouds.offerings import Offering
from gpuinfra.plan.window import rfc3339
from gpuinfra.report import tables
from gpuinfra.report.tables import Cell, Column, Table

SCHEMA = "gpuinfra.calendar/1"


def document(
    stack: str,
    calendar: Calendar,
    offers: Mapping[str, Sequence[Offering]],
    unread: Mapping[str, str],
    drained: Mapping[str, str],
) -> dict[str, Any]:
    """Return the stable JSON form. Times are in UTC."""
    return {
        "schema": SCHEMA,
        "stack": stack,
        "now": rfc3339(calendar.now),
        "events": [{**asdict(one), "at": rfc3339(one.at)} for one in calendar.events()],
        "offers": [
            {"group": group, **asdict(one), "starts": _iso(one.starts), "ends": _iso(one.ends)}
            for group, found in offers.items()
            for one in found
        ],
        "unread": dict(unread),
        "drained": dict(drained),
        "use": [{**asdict(one), "since": _iso(one.since), "until": _iso(one.until)} for one in calendar.use],
    }


def text(
    calendar: Calendar,
    offers: Mapping[str, Sequence[Offering]],
    unread: Mapping[str, str],
    drained: Mapping[str, str],
) -> Iterator[str]:
    """Return the dates in chronological order, then the offers."""
    events = calendar.events()
    if not events:
        yield (
            "no dates: the declaration has no Capacity Block, no reservation with a start or an end and no `expires_at`, "
            "no pool with `idle_stop` is idle, and no flex-start node exists"
        )
    else:
        columns = ["time (UTC)", "in", "state", "group", Column("what", wrap=True), "by", Column("command", wrap=True)]
        yield from tables.text(Table(columns, [_row(one, calendar.now) for one in events]))
    for use in calendar.use:
        if not use.since:
            yield f"pool {use.pool} is not idle: {use.reason}"
    for name, what in drained.items():
        yield f"{name}: {what}"
    for group, offers_of_group in offers.items():
        yield ""
        yield f"offers for {group}:"
        rows = [
            (
                one.kind,
                f"{one.nodes} x {one.machine}",
                one.zone,
                _short(one.starts),
                _short(one.ends),
                f"{one.price} {one.currency}",
                Cell(one.command, code=True),
            )
            for one in offers_of_group
        ]
        titles = [
            "kind",
            "nodes",
            "zone",
            "starts (UTC)",
            "ends (UTC)",
            Column("price upfront", right=True),
            Column("command that buys it", wrap=True),
        ]
        yield from tables.text(Table(titles, rows)) if rows else ["none; try a different length with --days"]
    for what, why in unread.items():
        yield f"{what} were not read: {why}"
    if events:
        counts = {state: sum(one.state is state for one in events) for state in DateState}
        parts = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        yield ""
        yield f"{counted(len(events), 'date')}: {parts}"


def _row(event: Event, now: datetime) -> tuple[Cell | str, ...]:
    return (
        _short(event.at), _distance(event.at, now), Cell(badge=event.state), event.group or "cluster", event.what, event.by,
        Cell(event.command, code=True),
    )  # fmt: skip


def _distance(at: datetime, now: datetime) -> str:
    """Return the time until a date: `3 days`, `5 h`, `12 min`. Empty if it has passed."""
    minutes = int((at - now).total_seconds() // 60)
    if minutes < 0:
        return ""
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 72 * 60 else f"{minutes // (24 * 60)} days"


def _short(at: datetime | None) -> str:
    return at.strftime("%Y-%m-%d %H:%M") if at else ""


def _iso(at: datetime | None) -> str | None:
    return rfc3339(at) if at else None
