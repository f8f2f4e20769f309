"""Holds a request until its caller is killed, so that a test decides which request of a run is the last one.

A request is held before the cloud performs it, or after it and before the answer. The cloud continues to run, as a real cloud does.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

INTERVAL_S = 0.01


class HoldMoment(StrEnum):
    """When a request is held."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, kw_only=True)
class HoldRule:
    """Which request is held."""

    verb: str
    """`create`, `update` or `delete`."""
    moment: HoldMoment
    skip: Collection[str] = ()
    """Types whose requests are not held."""
    numbers: Mapping[str, int] = field(default_factory=dict)
    """Number of the request of a type since the rule was set. Default: 1, the first."""


class HeldRequests:
    """The rule of a cloud, and the request that is held."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rule: HoldRule | None = None
        self._seen: Counter[str] = Counter()
        self._held = ""

    def set(self, rule: HoldRule | None) -> None:
        """Replace the rule. One request is held for each rule."""
        with self._lock:
            self._rule, self._seen, self._held = rule, Counter(), ""

    @property
    def held(self) -> str:
        """Type of the request that is held, or an empty string."""
        with self._lock:
            return self._held

    def passes(self, verb: str, token: str, moment: HoldMoment, is_active: Callable[[], bool]) -> bool:
        """Hold a request if the rule says so. Return False if its caller does not exist anymore, so that the request must not be performed."""
        with self._lock:
            rule = self._rule
            if rule is None or self._held or (rule.verb, rule.moment) != (verb, moment) or token in rule.skip:
                return True
            self._seen[token] += 1
            if self._seen[token] != rule.numbers.get(token, 1):
                return True
            self._held = token
        while is_active():
            time.sleep(INTERVAL_S)
        return False
