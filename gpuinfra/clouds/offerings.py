"""Capacity that a cloud sells for a fixed time: what a group needs next, and what the cloud offers.

The `offerings` module in a cloud's package searches for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The capacity that continues or replaces the capacity of a group."""

    group: str
    machine: str
    nodes: int
    reservation: str
    """ID of the present reservation."""
    ends: datetime
    """End of the present reservation."""
    days: int
    """Length of the next reservation."""


@dataclass(frozen=True, kw_only=True)
class Offering:
    """Capacity that can be bought."""

    kind: str
    """`extension` of the present reservation, or a new `block`."""
    id: str
    machine: str
    nodes: int
    zone: str
    starts: datetime | None
    ends: datetime | None
    price: str
    """Price of the entire time, which is paid upfront, as the cloud returns it."""
    currency: str
    command: str
    """The command that buys the capacity. gpuinfra does not run it."""


Search = Callable[[Wanted, datetime], Iterable[Offering]]
"""Searches for capacity with the operator's credentials. Raises `gpuinfra.clouds.preflight.Unanswered`."""
