"""The engine's event log: one JSON object per line, read while the engine writes it.

Results are taken from events, not from the engine's text output.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuinfra.plan.planned import is_counted

MARKUP = re.compile(r"<\{%[^%]*%\}>")


@dataclass
class RunProgress:
    """The events read so far."""

    done: dict[str, int] = field(default_factory=dict)
    """Number of finished resources (as `is_counted` defines them) by operation. A replacement is one operation."""
    current: dict[str, str] = field(default_factory=dict)
    """The operation in progress, by URN."""
    components: set[str] = field(default_factory=set)
    """URNs in `current` that are not counted."""
    diagnostics: list[tuple[str, str, str]] = field(default_factory=list)
    """(severity, URN, text) of warnings and errors."""
    status: dict[str, str] = field(default_factory=dict)
    """The last status line, by URN."""
    summary: dict[str, int] | None = None
    """Number of resources by operation, from the engine's final summary. It includes components and providers."""
    changed: list[tuple[str, str]] = field(default_factory=list)
    """(operation, URN) of each change, including those of components."""
    counted: list[tuple[str, str]] = field(default_factory=list)
    """(operation, URN) of each change of a counted resource."""

    def take(self, event: Mapping[str, Any]) -> str | None:
        """Add one event. Return its kind if the event should be displayed."""
        if pre := event.get("resourcePreEvent"):
            meta = pre.get("metadata", {})
            if meta.get("op") not in ("same", "read"):
                self.current[meta.get("urn", "")] = meta.get("op", "")
                if not _counts(meta):
                    self.components.add(meta.get("urn", ""))
        elif (out := event.get("resOutputsEvent")) is not None:
            meta = out.get("metadata", {})
            urn, op = meta.get("urn", ""), meta.get("op", "")
            self.current.pop(urn, None)
            if _counts(meta):
                self.done[op] = self.done.get(op, 0) + 1
                if op not in ("same", "read", "refresh"):
                    self.counted.append((op, urn))
            if op not in ("same", "read", "refresh"):
                self.changed.append((op, urn))
                return "resource"
        elif failed := event.get("resOpFailedEvent"):
            self.current.pop(failed.get("metadata", {}).get("urn", ""), None)
            return "failed"
        elif diagnostic := event.get("diagnosticEvent"):
            return self._diagnostic(diagnostic)
        elif end := event.get("summaryEvent"):
            self.summary = {str(op): int(count) for op, count in (end.get("resourceChanges") or {}).items()}
            return "summary"
        return None

    def _diagnostic(self, diagnostic: Mapping[str, Any]) -> str | None:
        text = plain(str(diagnostic.get("message", ""))).rstrip()
        urn, severity = str(diagnostic.get("urn", "")), str(diagnostic.get("severity", ""))
        if diagnostic.get("ephemeral"):
            if text:
                self.status[urn] = text.splitlines()[-1].strip()
                return "status"
        elif severity in ("error", "warning"):
            self.diagnostics.append((severity, urn, text))
            return severity
        return None

    @property
    def current_resources(self) -> list[tuple[str, str]]:
        """Return the type and logical name of each resource in progress, except the stack and components,
        which are in progress until their resources are done."""
        return [(kind_of(urn), name_of(urn)) for urn in self.current if urn not in self.components]

    @property
    def changes(self) -> int:
        """Return the number of changed resources, components and providers, from the engine's summary."""
        return sum(count for op, count in (self.summary or {}).items() if op != "same")

    @property
    def errors(self) -> list[str]:
        """Return the error messages without duplicates."""
        return list(dict.fromkeys(text for severity, _, text in self.diagnostics if severity == "error" and text))


def _counts(meta: Mapping[str, Any]) -> bool:
    """Return whether an event is an operation on a counted resource. A replacement also emits events for the new and the old resource."""
    state = meta.get("new") or meta.get("old") or {}
    return meta.get("logical", True) is not False and is_counted(str(meta.get("type", "")), state.get("custom"))


def plain(text: str) -> str:
    """Return the text without the engine's color markup."""
    return MARKUP.sub("", text)


class Tail:
    """Reads a growing event log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""

    def new(self) -> Iterator[dict[str, Any]]:
        """Return the events written since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.strip():
                try:
                    value = json.loads(line)
                except ValueError:
                    continue
                if isinstance(value, dict):
                    yield value


def kind_of(urn: str) -> str:
    """Return the type token of a URN."""
    parts = urn.split("::")
    return parts[2].rpartition("$")[2] if len(parts) > 3 else ""


def name_of(urn: str) -> str:
    """Return the logical name of a URN."""
    return urn.split("::", 3)[3] if urn.count("::") >= 3 else urn
