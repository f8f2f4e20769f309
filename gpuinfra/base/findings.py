"""Findings about a declaration: errors, warnings, and notes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum

READING_RULES = {
    "document_is_yaml": "A file is valid YAML, is encoded in UTF-8, contains only tags of the core schema, and does not exceed the size limits.",
    "field_is_known": "A section contains only known fields.",
    "field_is_given": "A section contains its required fields.",
    "value_is_allowed": "A value has the type of its field and is within the limits of the field.",
    "price_file": "A price file contains a date and positive prices of known kinds of capacity.",
}
"""Maps the rules that apply when a declaration is read, before the other rules run, to their descriptions for `gpuinfra explain`."""


class Level(StrEnum):
    """Severity of a finding. Only errors prevent a plan."""

    ERROR = "error"
    WARN = "warn"
    INFO = "info"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A finding: the location, the value, the allowed values, and the fix."""

    level: Level
    path: str
    """Path of the field, such as `pools[0].capacity[1].count`. Empty if the finding applies to the entire document."""
    message: str
    """Text that follows the path and forms a sentence with it: `is 16, but the reservation holds 8`."""
    hint: str = ""
    """The fix."""
    rule: str = ""
    """Name of the rule. `gpuinfra explain` describes it."""
    file: str = ""
    line: int | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.file and self.line else f"{self.file}: " if self.file else ""
        subject = f"{self.path} " if self.path else ""
        return f"{place}{self.level}: {subject}{self.message}" + (f"; {self.hint}" if self.hint else "")

    def as_dict(self) -> dict[str, object]:
        """Return the content for `--json`."""
        return asdict(self)


def error(path: str, message: str, hint: str = "", *, rule: str = "") -> Finding:
    """Return an error. `gpuinfra.rules.check` adds the name of the rule that yields it."""
    return Finding(level=Level.ERROR, path=path, message=message, hint=hint, rule=rule)


def warn(path: str, message: str, hint: str) -> Finding:
    """Return a warning."""
    return Finding(level=Level.WARN, path=path, message=message, hint=hint)


def info(path: str, message: str, hint: str = "") -> Finding:
    """Return a note."""
    return Finding(level=Level.INFO, path=path, message=message, hint=hint)
