"""Holds requests until their caller is killed, so that a test decides which requests of a run are the last ones.

A request is held before the cloud performs it, or after it and before the answer. The cloud continues to run, as a real cloud does.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

INTERVAL_S = 0.01


class HoldMoment(StrEnum):
    """When a request is held."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, kw_only=True)
class HoldPoint:
    """A request that is held."""

    verb: str
    """`create`, `update` or `delete`."""
    type: str
    moment: HoldMoment
    number: int = 1
    """Number of the request of this verb and type since the points were set. The first is 1."""


class HeldRequests:
    """The requests of a cloud that are to be held, and those that are held."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._points: frozenset[HoldPoint] = frozenset()
        self._seen: Counter[tuple[str, str, HoldMoment]] = Counter()
        self._held: list[HoldPoint] = []

    def set(self, points: Iterable[HoldPoint]) -> None:
        """Replace the points."""
        with self._lock:
            self._points, self._seen, self._held = frozenset(points), Counter(), []

    @property
    def held(self) -> list[HoldPoint]:
        """Requests that are or were held since the points were set."""
        with self._lock:
            return list(self._held)

    @property
    def performed(self) -> dict[tuple[str, str], int]:
        """Number of requests that the cloud performed since the points were set, by verb and type."""
        with self._lock:
            return {(verb, kind): n for (verb, kind, moment), n in self._seen.items() if moment is HoldMoment.AFTER}

    def passes(self, verb: str, kind: str, moment: HoldMoment, is_active: Callable[[], bool]) -> bool:
        """Hold a request at its point. Return False if its caller does not exist anymore, so that the request must not be performed."""
        with self._lock:
            self._seen[verb, kind, moment] += 1
            point = HoldPoint(verb=verb, type=kind, moment=moment, number=self._seen[verb, kind, moment])
            if point not in self._points:
                return True
            self._held.append(point)
        while is_active():
            time.sleep(INTERVAL_S)
        return False
