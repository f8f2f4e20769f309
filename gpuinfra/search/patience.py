"""How long a search for capacity waits between its attempts: `--keep-trying` of `gpuinfra up`.

The end is a time of day, so that a resumed search does not start its time again. The waits double, because a stock-out lasts minutes to days.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from gpuinfra.base.errors import UsageError

FIRST_S, LONGEST_S = 60.0, 900.0
"""First and longest wait between two attempts."""
MAX_DAYS = 30


@dataclass(kw_only=True)
class Patience:
    """The waits of one search. Without an end, it does not wait."""

    until: float | None = None
    """Seconds since 1970 after which no attempt begins."""
    say: Callable[[str], None] = lambda _: None
    """Prints one line before each wait."""
    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = lambda seconds: time.sleep(seconds)
    _next_s: float = field(default=FIRST_S, init=False)

    @property
    def lasts(self) -> bool:
        """Whether another attempt can begin."""
        return self.until is not None and self.now() < self.until

    def wait(self, why: str = "no capacity") -> None:
        """Wait before the next attempt, at most until the end. `why` is the start of the printed line."""
        assert self.until is not None
        seconds = min(self._next_s, max(0.0, self.until - self.now()))
        self._next_s = min(2 * self._next_s, LONGEST_S)
        self.say(f"{why}: the next attempt begins in {seconds:.0f} s; the search ends at {clock_time(self.until)}")
        self.sleep(seconds)


def clock_time(seconds: float) -> str:
    """Return a time in UTC, such as `2026-11-28 22:25 UTC`."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def duration(option: str, text: str) -> float:
    """Return the seconds of the value of an option: `90m`, `12h` or `3d`. Raises `UsageError`."""
    units = {"m": 60.0, "h": 3600.0, "d": 86400.0}
    try:
        seconds = float(text[:-1]) * units[text[-1:]]
    except (KeyError, ValueError):
        seconds = -1.0
    if not 0 < seconds <= MAX_DAYS * units["d"]:
        raise UsageError(
            f"{option} is {text!r}; allowed: minutes, hours or days up to {MAX_DAYS}d, such as 90m, 12h, 3d"
        )
    return seconds
