"""The time between which the nodes of a group run. Pure.

A time is compared with the present if the caller passes it, and otherwise with a date.
A date counts as later than a start on the same day, and as earlier than an end on the same day.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime

from gpuinfra.plan.model import Group
from gpuinfra.spec.capacity import Block, Capacity, Reserved


def is_before(today: date, start: datetime) -> bool:
    """Return whether a window has not opened yet."""
    return today < start if isinstance(today, datetime) else today < start.date()


def is_over(today: date, end: datetime) -> bool:
    """Return whether a window has closed."""
    return today >= end if isinstance(today, datetime) else today > end.date()


def moment(text: str) -> datetime:
    """Parse a time of a declaration."""
    return datetime.fromisoformat(text)


def rfc3339(at: datetime) -> str:
    """Format a time in UTC."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def within(group: Group, today: date, opens: datetime | None, closes: datetime | None) -> Group:
    """Return a group whose nodes run only between two times. Before and after them, the group is empty.

    A group whose end has passed has no times, because a cloud rejects an action in the past.
    """
    if closes is not None and is_over(today, closes):
        return replace(group, count=0, starts_at=None, ends_at=None)
    starts_at, ends_at = (rfc3339(at) if at else None for at in (opens, closes))
    count = 0 if opens is not None and is_before(today, opens) else group.count
    return replace(group, count=count, starts_at=starts_at, ends_at=ends_at)


def until(group: Group, today: date, expires: datetime) -> Group:
    """Return a group whose nodes run at most until the cluster expires."""
    opens = moment(group.starts_at) if group.starts_at else None
    closes = min(moment(group.ends_at), expires) if group.ends_at else expires
    limited = within(group, today, opens, closes)
    # A group that requests its nodes from a queue has no nodes of its own to remove, so it requests none.
    return replace(limited, max_count=0) if group.kind == "flex" and is_over(today, closes) else limited


def declared(entry: Capacity) -> tuple[datetime | None, datetime | None]:
    """Return the declared start and end of a capacity entry."""
    if not isinstance(entry, (Block, Reserved)):
        return None, None
    starts, ends = (moment(text) if text else None for text in (entry.starts_at, entry.ends_at))
    return starts, ends
