"""The words that checks speak: phase, severity, outcome, and the two ways in which tool output can be refused."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Any


class Phase(str, enum.Enum):
    """Presence comes first: a figure about a GPU that is not there explains nothing."""

    PRESENCE = "presence"
    CORRECTNESS = "correctness"
    SPEED = "speed"


class Severity(str, enum.Enum):
    """What a failure means for the node."""

    BLOCK = "block"
    """The node is not handed over."""
    DRAIN = "drain"
    """The node takes no new work until somebody acted."""
    WARN = "warn"
    """Somebody should look; work goes on."""
    INFO = "info"


class Broken(Exception):
    """The tool answered, and what it says is a known broken state: the check fails."""

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


class Unreadable(Exception):
    """The answer is missing, cut, garbled or unknown: the check ends in `error`, never in `pass`."""

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


@dataclass(frozen=True)
class Outcome:
    """What one check says. `found` and `expected` are JSON scalars or lists of them."""

    outcome: str
    found: Any = None
    expected: Any = None
    unit: str | None = None
    reason: str | None = None
    hint: str | None = None


def passed(found: Any, expected: Any, unit: str | None = None) -> Outcome:
    """What was found is what the machine should show."""
    return Outcome("pass", found, expected, unit)


def failed(found: Any, expected: Any, reason: str, unit: str | None = None, hint: str | None = None) -> Outcome:
    """What was found differs. A check of severity warn turns this into `warn`, see `judge.py`."""
    return Outcome("fail", found, expected, unit, reason, hint)


def warned(found: Any, expected: Any, reason: str, unit: str | None = None) -> Outcome:
    """Worth a look, and no reason to hold the node back."""
    return Outcome("warn", found, expected, unit, reason)


def skipped(reason: str) -> Outcome:
    """The check does not apply, and here is why."""
    return Outcome("skip", reason=reason)


def equal(
    found: Any, expected: Any, unit: str | None = None, reason: str | None = None, hint: str | None = None
) -> Outcome:
    """Pass when both are the same, and of the same kind: True is not 1."""
    if type(found) is type(expected) and found == expected:
        return passed(found, expected, unit)
    return failed(found, expected, reason or "found %s, expected %s" % (found, expected), unit, hint)


# C0 and C1 controls, and the marks that turn the direction of text: all of them can rewrite what a person reads
# on a terminal.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def harmless(text: str) -> str:
    """The same text with every control character spelled out, so that no terminal, log or page acts on it.

    Newline and tab stay. A carriage return before a newline is dropped, because consoles add it.
    """
    return _CONTROL.sub(lambda match: "\\x%02x" % ord(match.group()), text.replace("\r\n", "\n"))


def shortened(text: str, limit: int = 300) -> str:
    """One harmless line that fits a table cell."""
    line = " ".join(harmless(text).split())
    return line if len(line) <= limit else line[: limit - 3] + "..."
