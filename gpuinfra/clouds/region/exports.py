"""The requests that make a file system copy its changed files to its bucket, before a failover or a failback compares the buckets.

Each request can be repeated: an export copies only what changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True, kw_only=True)
class Export:
    """An export that was started."""

    file_system: str
    mark: str
    """What identifies this export in later requests, in the terms of the cloud: an operation, or the time of the previous export."""


class Exports(Protocol):
    """Requests to one region of a cloud. All methods except `exporting` raise `Unreachable` and `DeploymentError`."""

    def exporting(self, resources: Iterable[Any]) -> tuple[str, ...]:
        """Return the file systems in a stack's state that export to a bucket."""
        ...

    def start(self, file_system: str) -> Export | None:
        """Start an export of all changed files, or begin to observe the automatic export. Returns None while another transfer of the file system runs,
        because files that changed after that transfer read them are not part of it."""
        ...

    def ended(self, export: Export) -> bool:
        """Return whether the bucket has all files that had changed when the export started. Raises `DeploymentError` if the export failed."""
        ...


@runtime_checkable
class ScheduledExports(Protocol):
    """Requests to a cloud where a schedule exports files. A failover pauses it, because older files of the first region would replace newer objects."""

    def schedules(self, resources: Iterable[Any]) -> tuple[str, ...]:
        """Return the schedules of exports in a stack's state."""
        ...

    def set_schedule(self, schedule: str, *, paused: bool) -> None:
        """Pause or resume a schedule. One that is in this state, or does not exist, is left alone. An export that runs continues."""
        ...
