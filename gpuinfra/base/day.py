"""The date for which rules, capacity windows, and prices are evaluated.

It is the local date, or the value of `GPUINFRA_TODAY` if set. Set the variable to plan and rehearse a cluster for a date within the
window of a capacity block. Code that calls a real cloud or signs requests uses the system clock instead.
"""

from __future__ import annotations

import os
from datetime import UTC, date, datetime

from gpuinfra.base.errors import UsageError

VARIABLE = "GPUINFRA_TODAY"


def today() -> date:
    """Return the date. Raises `UsageError` if the variable is not a valid date."""
    named = os.environ.get(VARIABLE)
    return read_day(named, VARIABLE) if named else date.today()


def now() -> datetime | None:
    """Return the time in UTC, or None if `GPUINFRA_TODAY` sets the date."""
    return None if os.environ.get(VARIABLE) else datetime.now(UTC)


def read_day(text: str, where: str) -> date:
    """Parse a date. `where` identifies the source in the error message."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{where} is {text!r}; allowed: a date such as 2026-12-01") from None
