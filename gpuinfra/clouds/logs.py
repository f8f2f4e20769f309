"""The lines that the nodes sent to the log service of their cloud, for `gpuinfra logs`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """One line of a node."""

    time: datetime
    """Time of the journal entry. For a line of a file, the time at which the agent read it."""
    instance_id: str
    """Instance ID of the node in the cloud. The node does not have to exist."""
    source: str
    """`kernel`, the name of a systemd unit, or the name of a log file."""
    text: str
    """As the node sent it. It can contain control characters."""


@dataclass(frozen=True, kw_only=True)
class LogQuestion:
    """Which lines to read."""

    region: str
    settings: Mapping[str, object]
    """Provider settings, `LoadedStack.settings`."""
    resources: Sequence[Mapping[str, Any]]
    """The resources in the stack's state."""
    instance_id: str
    """Only lines of this node. Empty for all nodes."""
    since: datetime


def journal_source(entry: Mapping[str, Any]) -> str:
    """Return the source of a journal entry: `kernel` or a unit. PID 1 names the unit that it reports about in another field."""
    if entry.get("_TRANSPORT") == "kernel":
        return "kernel"
    return str(entry.get("UNIT") or entry.get("_SYSTEMD_UNIT") or entry.get("SYSLOG_IDENTIFIER") or "journal")


def journal_text(entry: Mapping[str, Any]) -> str:
    """Return the message of a journal entry. journalctl prints a message that is not UTF-8 as a list of bytes (journalctl(1), `--output=json`)."""
    message = entry.get("MESSAGE")
    if isinstance(message, list) and all(isinstance(byte, int | float) and 0 <= byte < 256 for byte in message):
        return bytes(map(int, message)).decode("utf-8", "replace")
    return "" if message is None else str(message)
