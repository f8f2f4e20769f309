"""What can go wrong with one host, in words that a summary of hundreds can be grouped by."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """One reason for which a host is not done. The value is what people and programs read."""

    HOST_KEY_UNKNOWN = "unknown host key"
    HOST_KEY_CHANGED = "changed host key"
    HOST_KEY_REFUSED = "refused host key"
    LOGIN = "login refused"
    UNREACHABLE = "not reachable"
    TIMEOUT = "timed out"
    DROPPED = "connection dropped"
    UNUSABLE = "machine not usable"
    BUSY = "busy with another run"
    STEP = "step failed"
    REBOOT = "waits for a reboot"
    INTERRUPTED = "interrupted"
    DEFECT = "defect in gpuinfra"

    @property
    def passes(self) -> bool:
        """True for what a later try may find mended. A key or a login that was refused is refused again."""
        return self in (Kind.UNREACHABLE, Kind.TIMEOUT, Kind.DROPPED)


class HostProblem(Exception):
    """One host cannot go on: why, and what a person does about it."""

    def __init__(self, kind: Kind, reason: str, hint: str) -> None:
        self.kind = kind
        self.reason = reason
        self.hint = hint
        super().__init__(f"{reason}; {hint}")
