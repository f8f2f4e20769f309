"""Types that all checks use: phase, severity, outcome, and two exceptions for tool output."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from .cause import Cause


class Phase(str, enum.Enum):
    """Phases run in order, because speed figures are meaningless if a GPU is missing."""

    PRESENCE = "presence"
    CORRECTNESS = "correctness"
    SPEED = "speed"


class Severity(str, enum.Enum):
    """The consequence of a failure."""

    BLOCK = "block"
    """The node is not handed over."""
    DRAIN = "drain"
    """The node accepts no new work until the cause is fixed."""
    WARN = "warn"
    """Investigate while work continues."""
    INFO = "info"


class _ToolOutput(Exception):
    def __init__(self, reason: str, hint: str | None, cause: Cause) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
        self.cause = cause


class Broken(_ToolOutput):
    """The tool output shows a known broken state: the check fails."""

    def __init__(self, reason: str, hint: str | None = None, cause: Cause = Cause.DIFFERS) -> None:
        super().__init__(reason, hint, cause)


class Unreadable(_ToolOutput):
    """The tool output is missing, truncated, garbled or unknown: the check ends in `error`, never in `pass`."""

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason, hint, Cause.UNREADABLE)


Word = Literal["pass", "warn", "fail", "skip", "error"]
"""The outcome of a check."""


class CheckResult(TypedDict):
    """The result of one check as evidence and reports contain it (docs/reference/formats.md)."""

    id: str
    name: str
    phase: str
    severity: str
    outcome: Word
    found: Any
    expected: Any
    unit: str | None
    hint: str
    reason: str | None
    cause: Cause | None


@dataclass(frozen=True)
class CheckOutcome:
    """The judgment of one check. `found` and `expected` are JSON scalars or lists of them."""

    outcome: Word
    found: Any = None
    expected: Any = None
    unit: str | None = None
    reason: str | None = None
    hint: str | None = None
    cause: Cause | None = None
    """Why the check did not pass. None for a pass or a skip."""


def passed(found: Any, expected: Any, unit: str | None = None) -> CheckOutcome:
    """Return a pass: the value matches the expectation."""
    return CheckOutcome("pass", found, expected, unit)


def failed(
    found: Any,
    expected: Any,
    reason: str,
    unit: str | None = None,
    hint: str | None = None,
    cause: Cause | None = None,
) -> CheckOutcome:
    """Return a failure: the value differs. For a check of severity warn, `judge.py` turns it into `warn`."""
    return CheckOutcome("fail", found, expected, unit, reason, hint, cause or Cause.DIFFERS)


def warned(
    found: Any, expected: Any, reason: str, unit: str | None = None, cause: Cause = Cause.DIFFERS
) -> CheckOutcome:
    """Return a warning that does not block the node."""
    return CheckOutcome("warn", found, expected, unit, reason, cause=cause)


def skipped(reason: str) -> CheckOutcome:
    """Return a skip: the check does not apply, for the given reason."""
    return CheckOutcome("skip", reason=reason)


def equal(found: Any, expected: Any, unit: str | None = None, reason: str | None = None) -> CheckOutcome:
    """Return a pass if both values are equal and of the same type: True does not equal 1."""
    if type(found) is type(expected) and found == expected:
        return passed(found, expected, unit)
    return failed(found, expected, reason or "found %s, expected %s" % (found, expected), unit)


# C0 and C1 control characters and text direction marks, all of which can change what a terminal shows.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def escaped(text: str) -> str:
    """Escape control characters, so that no terminal, log or page interprets them.

    Newline and tab are kept. A carriage return before a newline is removed, because consoles add it.
    """
    return _CONTROL.sub(lambda match: "\\x%02x" % ord(match.group()), text.replace("\r\n", "\n"))


def shortened(text: str, limit: int = 300) -> str:
    """Return one line without control characters, short enough for a table cell."""
    line = " ".join(escaped(text).split())
    return line if len(line) <= limit else line[: limit - 3] + "..."
