"""Findings: errors, warnings and notes about a declaration."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum


class Level(StrEnum):
    """Severity of a finding. Only an error prevents a plan."""

    ERROR = "error"
    WARN = "warn"
    INFO = "info"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One problem or note: where it is, the value, what is allowed, and what to change."""

    level: Level
    path: str
    """`pools[0].capacity[1].count`; empty for the whole document."""
    message: str
    """Continues the path as a sentence: `is 16, but the reservation holds 8`."""
    hint: str = ""
    """What to change."""
    rule: str = ""
    """Name of the rule; `gpuinfra explain` describes it."""
    file: str = ""
    line: int | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.file and self.line else f"{self.file}: " if self.file else ""
        subject = f"{self.path} " if self.path else ""
        return f"{place}{self.level}: {subject}{self.message}" + (f"; {self.hint}" if self.hint else "")

    def as_dict(self) -> dict[str, object]:
        """For `--json`."""
        return asdict(self)


def error(path: str, message: str, hint: str = "", *, rule: str = "") -> Finding:
    """An error. `gpuinfra.rules.check` adds the name of the rule that yields it."""
    return Finding(level=Level.ERROR, path=path, message=message, hint=hint, rule=rule)


def warn(path: str, message: str, hint: str) -> Finding:
    """A warning."""
    return Finding(level=Level.WARN, path=path, message=message, hint=hint)


def info(path: str, message: str, hint: str = "") -> Finding:
    """A note."""
    return Finding(level=Level.INFO, path=path, message=message, hint=hint)
