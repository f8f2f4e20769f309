"""The price of a plan, line by line; each price with its date and source, and what is unknown said as unknown."""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass
from datetime import date

HOURS_PER_MONTH = 730
"""A year's hours over twelve, as all three clouds count."""
STALE_DAYS = 100
"""A price older than this is said to be old; Capacity Blocks are priced anew every quarter."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One thing that is billed."""

    what: str
    """`gpu: 2 x p4d.24xlarge, reserved`."""
    quantity: float
    unit: str
    usd_per_unit_hour: float | None
    """None where no price is known."""
    kind: str = ""
    """Kind of capacity; `storage`, `network`, `disk` for the rest."""
    pool: str = ""
    read: date | None = None
    source: str = ""
    certain: bool = True
    note: str = ""

    @property
    def usd_per_hour(self) -> float | None:
        """Price of the line for one hour."""
        return None if self.usd_per_unit_hour is None else self.quantity * self.usd_per_unit_hour


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The price of one plan."""

    lines: tuple[Line, ...]
    unknown: tuple[str, ...]
    """What is billed and has no price here, with the reason."""
    oldest: date | None
    """Date of the oldest price that was used."""
    as_of: date | None = None
    """The day for which the plan was priced."""
    duration_hours: int | None = None

    @property
    def stale(self) -> tuple[str, ...]:
        """Prices older than a quarter, which is how often the shortest-lived of them change."""
        if self.as_of is None:
            return ()
        old = [line for line in self.lines if line.read and (self.as_of - line.read).days > STALE_DAYS]
        return tuple(f"{line.what}: price of {line.read}" for line in old)

    @property
    def usd_per_hour(self) -> float:
        """Sum of every known line."""
        return sum(line.usd_per_hour or 0.0 for line in self.lines)

    @property
    def usd_per_month(self) -> float:
        """730 hours of it."""
        return self.usd_per_hour * HOURS_PER_MONTH

    @property
    def usd_rest_of_month(self) -> float | None:
        """What it costs from the start of this day to the end of its calendar month, if it runs all the time."""
        if self.as_of is None:
            return None
        days = monthrange(self.as_of.year, self.as_of.month)[1] - self.as_of.day + 1
        return self.usd_per_hour * 24 * days

    @property
    def usd_for_duration(self) -> float | None:
        """The declared duration, None where none was declared."""
        return None if self.duration_hours is None else self.usd_per_hour * self.duration_hours

    @property
    def complete(self) -> bool:
        """True when every line has a price."""
        return all(line.usd_per_unit_hour is not None for line in self.lines)

    @property
    def nodes_priced(self) -> bool:
        """False when the nodes themselves have no known price: the sum of the rest says nothing about the cluster."""
        return all(line.usd_per_unit_hour is not None for line in self.lines if line.pool)

    @property
    def in_words(self) -> str:
        """The price of an hour as a sentence can hold it; a sum that lacks something says so."""
        known = f"{self.usd_per_hour:,.2f} USD an hour"
        if not self.nodes_priced:
            return "an amount that is not known here, because no price of its nodes is"
        return known if self.complete else f"at least {known}"

    def as_dict(self) -> dict[str, object]:
        """For `--json` and the report."""
        return {
            "currency": "USD",
            "usd_per_hour": round(self.usd_per_hour, 2),
            "usd_per_month": round(self.usd_per_month, 2),
            "usd_rest_of_month": None if self.usd_rest_of_month is None else round(self.usd_rest_of_month, 2),
            "usd_for_duration": None if self.usd_for_duration is None else round(self.usd_for_duration, 2),
            "duration_hours": self.duration_hours,
            "complete": self.complete,
            "nodes_priced": self.nodes_priced,
            "in_words": self.in_words,
            "oldest_price": self.oldest.isoformat() if self.oldest else None,
            "stale": list(self.stale),
            "unknown": list(self.unknown),
            "lines": [_line(line) for line in self.lines],
        }


def _line(line: Line) -> dict[str, object]:
    hour = line.usd_per_hour
    return {
        "what": line.what,
        "pool": line.pool,
        "kind": line.kind,
        "quantity": line.quantity,
        "unit": line.unit,
        "usd_per_hour": None if hour is None else round(hour, 4),
        "read": line.read.isoformat() if line.read else None,
        "source": line.source,
        "certain": line.certain,
        "note": line.note,
    }
