"""The day that rules, windows and prices go by.

It is the person's own day, not Greenwich's, unless `GPUINFRA_TODAY` names another one: a cluster can be planned and rehearsed as of
a day on which a block's window is open. What talks to a real cloud or signs something asks the clock itself.
"""

from __future__ import annotations

import os
from datetime import date

from gpuinfra.errors import UsageError

VARIABLE = "GPUINFRA_TODAY"


def today() -> date:
    """The day; raises UsageError where the variable is set and holds none."""
    named = os.environ.get(VARIABLE)
    return read_day(named, VARIABLE) if named else date.today()


def read_day(text: str, where: str) -> date:
    """A day as a person writes it; `where` says in an error what holds it."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{where} is {text!r}; allowed is a day such as 2026-12-01") from None
