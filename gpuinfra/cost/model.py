"""The price of a plan as line items. Each price has a date and a source, and unknown prices are listed."""

from __future__ import annotations

from calendar import monthrange
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

HOURS_PER_MONTH = 730
"""Hours in a year divided by twelve. All three clouds use this value."""
STALE_DAYS = 100
"""Age in days above which a price is reported as stale. Prices of Capacity Blocks change every quarter."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CostLine:
    """A billed item."""

    what: str
    """Description, such as `gpu: 2 x p4d.24xlarge, reserved`."""
    quantity: float
    unit: str
    usd_per_unit_hour: float | None
    """Price, or None if unknown."""
    kind: str = ""
    """Kind of capacity, or `storage`, `network`, `disk`, or `service`."""
    pool: str = ""
    read: date | None = None
    source: str = ""
    certain: bool = True
    note: str = ""

    @property
    def usd_per_hour(self) -> float | None:
        """Hourly price of the line."""
        return None if self.usd_per_unit_hour is None else self.quantity * self.usd_per_unit_hour


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """The price of usage, such as traffic, which the total does not include."""

    what: str
    unit: str
    """Unit of the usage: `GB`, `GB-month`, or `100,000 events`."""
    region: str
    usd: float | None
    """Price per unit, or None if unknown."""
    read: date | None = None
    source: str = ""
    certain: bool = True
    note: str = ""

    def __str__(self) -> str:
        if self.usd is None:
            return f"{self.what}: billed per {self.unit}; price in {self.region} unknown"
        about = "" if self.certain else "about "
        return f"{self.what}: {about}{self.usd:.3g} USD per {self.unit}"


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The price of a plan."""

    lines: tuple[CostLine, ...]
    excluded: tuple[str, ...]
    """Billed items that are not in `lines` and in the total, each with the reason or its price per unit."""
    rates: tuple[Rate, ...] = ()
    """Prices of usage, which the total does not include."""
    oldest: date | None
    """Date of the oldest price in the total."""
    as_of: date | None = None
    """Date for which the plan was priced."""
    duration_hours: int | None = None

    @property
    def unknown(self) -> tuple[str, ...]:
        """Billed items that the total does not include: the lines without a price, and `excluded`."""
        missing = (line for line in self.lines if line.usd_per_unit_hour is None)
        return (*(f"{line.what}: {line.note or 'price unknown'}" for line in missing), *self.excluded)

    @property
    def stale(self) -> tuple[str, ...]:
        """Items with a price older than `STALE_DAYS`."""
        if self.as_of is None:
            return ()
        old = [line for line in self.lines if line.read and (self.as_of - line.read).days > STALE_DAYS]
        return tuple(f"{line.what}: price of {line.read}" for line in old)

    @property
    def usd_per_hour(self) -> float:
        """Total of the lines with a known price."""
        return sum(line.usd_per_hour or 0.0 for line in self.lines)

    @property
    def usd_per_month(self) -> float:
        """Price for 730 hours."""
        return self.usd_per_hour * HOURS_PER_MONTH

    @property
    def usd_rest_of_month(self) -> float | None:
        """Price from the start of this day to the end of the calendar month, for continuous use."""
        if self.as_of is None:
            return None
        days = monthrange(self.as_of.year, self.as_of.month)[1] - self.as_of.day + 1
        return self.usd_per_hour * 24 * days

    @property
    def usd_for_duration(self) -> float | None:
        """Price for the declared duration, or None if no duration is declared."""
        return None if self.duration_hours is None else self.usd_per_hour * self.duration_hours

    @property
    def complete(self) -> bool:
        """Whether every line has a price."""
        return all(line.usd_per_unit_hour is not None for line in self.lines)

    @property
    def nodes_priced(self) -> bool:
        """Whether all node prices are known. If not, the total of the other lines is not an estimate for the cluster."""
        return all(line.usd_per_unit_hour is not None for line in self.lines if line.pool)

    @property
    def in_words(self) -> str:
        """Return the hourly price as text for a sentence. If a price is unknown, the text gives a minimum."""
        words = f"{self.usd_per_hour:,.2f} USD an hour"
        if not self.nodes_priced:
            return "an unknown amount, because the price of its nodes is unknown"
        return words if self.complete else f"at least {words}"

    def as_dict(self) -> dict[str, Any]:
        """Return the content for `--json` and the report."""
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
            "excluded": list(self.excluded),
            "rates": [{**asdict(rate), "read": rate.read.isoformat() if rate.read else None} for rate in self.rates],
            "lines": [_line(line) for line in self.lines],
        }


def _line(line: CostLine) -> dict[str, object]:
    values = asdict(line)
    del values["usd_per_unit_hour"]
    hour = line.usd_per_hour
    price = {"usd_per_hour": None if hour is None else round(hour, 4)}
    return {**values, **price, "read": line.read.isoformat() if line.read else None}
