"""Errors that concern one host. Each error has a kind, so that a summary of hundreds of hosts can group the errors."""

from __future__ import annotations

from enum import StrEnum

from gpuinfra.base.safe_text import printable

MAX_REASON = 4000
"""Maximum length of a reason."""


class ProblemKind(StrEnum):
    """The kind of an error. Its value appears in messages and JSON."""

    HOST_KEY_UNKNOWN = "unknown host key"
    HOST_KEY_CHANGED = "changed host key"
    HOST_KEY_REFUSED = "refused host key"
    LOGIN = "login refused"
    UNREACHABLE = "not reachable"
    TIMEOUT = "timed out"
    DROPPED = "connection dropped"
    UNUSABLE = "host not usable"
    BUSY = "busy with another run"
    STEP = "step failed"
    REBOOT = "needs a reboot"
    INTERRUPTED = "interrupted"
    DEFECT = "internal error"

    @property
    def is_transient(self) -> bool:
        """True if a retry can succeed. A refused host key or login would be refused again."""
        return self in (ProblemKind.UNREACHABLE, ProblemKind.TIMEOUT, ProblemKind.DROPPED)


class HostProblem(Exception):
    """An error that concerns one host, with its reason and a hint. The reason can quote the host, so it becomes safe to show here."""

    def __init__(self, kind: ProblemKind, reason: str, hint: str) -> None:
        self.kind = kind
        self.reason = printable(reason, MAX_REASON)
        self.hint = hint
        super().__init__(f"{self.reason}; {hint}")
