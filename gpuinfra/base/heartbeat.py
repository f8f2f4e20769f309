"""Lines that show that a long operation still runs. They come from a thread, because the operation waits for another program."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Line = Callable[[str], None]
LONGEST_S = 30.0
"""Longest interval between two lines about the same operation."""


class Heartbeat:
    """Calls `tell` with the seconds since the start if `beat` was not called for `every_s` seconds. Runs within a `with` block.

    Each call doubles the interval, up to `LONGEST_S`, so that an operation of several minutes does not fill the terminal. `restart` shortens it again.
    """

    def __init__(self, tell: Callable[[float], None], every_s: float) -> None:
        self._tell, self._every_s, self._wait_s = tell, every_s, every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._start = self._last = time.monotonic()

    def beat(self) -> None:
        """Start the interval again, because a line was printed."""
        self._last = time.monotonic()

    def restart(self) -> None:
        """Start with the first interval, because another operation begins."""
        self._wait_s = self._every_s
        self.beat()

    def _run(self) -> None:
        while not self._stop.wait(max(0.01, self._last + self._wait_s - time.monotonic())):
            now = time.monotonic()
            if now - self._last >= self._wait_s:
                self._last = now
                self._wait_s = max(self._every_s, min(2 * self._wait_s, LONGEST_S))
                self._tell(now - self._start)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(5)


@contextmanager
def heard(line: Line, what: str, every_s: float) -> Iterator[Line]:
    """Yield a function that prints a line. After `every_s` seconds without a line, print `what` with the seconds since the start."""
    pulse = Heartbeat(lambda seconds: line(f"{what}, {seconds:.0f} s"), every_s)

    def said(text: str) -> None:
        pulse.beat()
        line(text)

    with pulse:
        yield said
