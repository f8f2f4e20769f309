"""The engine's own events, one JSON object per line, as they are written.

What happened is read from here and not from the text that the engine prints for people.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MARKUP = re.compile(r"<\{%[^%]*%\}>")
CHANGES = ("create", "update", "delete", "replace", "import", "discard", "read")
"""Operations that mean that something changed; `same` is not one. Refresh reports its own as update and delete."""


@dataclass
class Progress:
    """What the events say so far."""

    done: dict[str, int] = field(default_factory=dict)
    """Operation -> resources that it finished on."""
    begun: int = 0
    current: dict[str, str] = field(default_factory=dict)
    """URN -> operation in hand."""
    failed: list[str] = field(default_factory=list)
    """URNs whose operation failed."""
    diagnostics: list[tuple[str, str, str]] = field(default_factory=list)
    """(severity, URN, text), warnings and errors only."""
    status: dict[str, str] = field(default_factory=dict)
    """URN -> its last line of progress."""
    summary: dict[str, int] | None = None
    """Operation -> count, as the engine sums it up at the end."""
    changed: list[tuple[str, str]] = field(default_factory=list)
    """(operation, URN) of everything that changed."""
    infos: list[tuple[str, str]] = field(default_factory=list)
    """(URN, text) of information, such as a program's own lines."""

    def take(self, event: Mapping[str, Any]) -> str | None:
        """Take one event in; returns what kind it was when it is worth a line."""
        if pre := event.get("resourcePreEvent"):
            meta = pre.get("metadata", {})
            if meta.get("op") not in ("same", "read"):
                self.current[meta.get("urn", "")] = meta.get("op", "")
            self.begun += 1
        elif (out := event.get("resOutputsEvent")) is not None:
            meta = out.get("metadata", {})
            urn, op = meta.get("urn", ""), meta.get("op", "")
            self.current.pop(urn, None)
            self.done[op] = self.done.get(op, 0) + 1
            if op not in ("same", "read", "refresh"):
                self.changed.append((op, urn))
                return "resource"
        elif failed := event.get("resOpFailedEvent"):
            urn = failed.get("metadata", {}).get("urn", "")
            self.current.pop(urn, None)
            self.failed.append(urn)
            return "failed"
        elif said := event.get("diagnosticEvent"):
            return self._diagnostic(said)
        elif end := event.get("summaryEvent"):
            self.summary = {str(op): int(count) for op, count in (end.get("resourceChanges") or {}).items()}
            return "summary"
        return None

    def _diagnostic(self, said: Mapping[str, Any]) -> str | None:
        text = plain(str(said.get("message", ""))).rstrip()
        urn, severity = str(said.get("urn", "")), str(said.get("severity", ""))
        if said.get("ephemeral"):
            if text:
                self.status[urn] = text.splitlines()[-1].strip()
                return "status"
        elif severity in ("error", "warning"):
            self.diagnostics.append((severity, urn, text))
            return severity
        elif severity.startswith("info") and text:
            self.infos.append((urn, text))
        return None

    @property
    def changes(self) -> int:
        """How many resources changed, by the engine's own sum."""
        return sum(count for op, count in (self.summary or {}).items() if op != "same")

    @property
    def errors(self) -> list[str]:
        """Error texts, each once."""
        return list(dict.fromkeys(text for severity, _, text in self.diagnostics if severity == "error" and text))


def plain(text: str) -> str:
    """Text without the engine's colour marks."""
    return MARKUP.sub("", text)


class Tail:
    """Reads a growing event log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""

    def new(self) -> Iterator[dict[str, Any]]:
        """Events that were written since the last call."""
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
    """The type token of a URN."""
    parts = urn.split("::")
    return parts[2].rpartition("$")[2] if len(parts) > 3 else ""


def name_of(urn: str) -> str:
    """The logical name of a URN."""
    return urn.split("::", 3)[3] if urn.count("::") >= 3 else urn
