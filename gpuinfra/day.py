"""The date that rules, capacity windows and prices are evaluated for.

It is the local date, or the value of `GPUINFRA_TODAY`: you can plan and rehearse a cluster for a date on which the window of a capacity
block is open. Code that calls a real cloud or signs requests uses the system clock instead.
"""

from __future__ import annotations

import os
from datetime import date

from gpuinfra.errors import UsageError

VARIABLE = "GPUINFRA_TODAY"


def today() -> date:
    """The date. Raises `UsageError` if the variable is set to something else."""
    named = os.environ.get(VARIABLE)
    return read_day(named, VARIABLE) if named else date.today()


def read_day(text: str, where: str) -> date:
    """Parse a date; `where` names its source in the error."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{where} is {text!r}; allowed: a date such as 2026-12-01") from None
