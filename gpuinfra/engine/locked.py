"""Reads from the errors of the engine who holds the lock of a stack, and decides whether the lock can be removed."""

from __future__ import annotations

import os
import pwd
import re
import socket
from dataclasses import dataclass
from pathlib import Path

from gpuinfra.base.errors import DeploymentError
from gpuinfra.base.safe_text import one_line


class StateLocked(DeploymentError):
    """Another run holds the lock of the stack, so the engine changed nothing."""


# Both texts are in sdk/go/auto/errors.go (`IsConcurrentUpdateError`) of Pulumi v3.259.0. The lines about the locks are in
# pkg/backend/diy/lock.go (`checkForLock`).
_LOCKED = re.compile(r"the stack is currently locked by (\d{1,9}) lock\(s\)")
"""Error of a self-managed backend. One line about each lock follows."""
_CONFLICT = "[409] Conflict: Another update is currently in progress"
"""Error of Pulumi Cloud. It does not name the holder."""
_LOCK = re.compile(r": created by (?P<owner>.{1,200}) \(pid (?P<pid>\d{1,9})\) at (?P<since>\S+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class StateLock:
    """A lock of a self-managed backend."""

    owner: str
    """`USER@HOST`."""
    pid: int
    """Process ID of the engine that created the lock."""
    since: str

    def __str__(self) -> str:
        return one_line(f"{self.owner} (pid {self.pid}) since {self.since}")

    @property
    def is_left(self) -> bool:
        """Whether this user created the lock on this machine, and its process no longer exists."""
        return self.owner == _owner_here() and not _exists(self.pid)


def locks_left(errors: str) -> tuple[StateLock, ...]:
    """Return the locks of a stack if killed runs of this user on this machine left all of them, and nothing otherwise.

    `pulumi cancel` removes every lock of the stack (`CancelCurrentUpdate` in pkg/backend/diy/backend.go of Pulumi v3.259.0).
    """
    number, locks = _locks(errors)
    return locks if len(locks) == number and all(one.is_left for one in locks) else ()


def check_unlocked(errors: str, stack: str) -> None:
    """Raise `StateLocked` if these errors of the engine say that the stack is locked."""
    number, locks = _locks(errors)
    if not number and _CONFLICT not in errors:
        return
    holders = " and ".join(map(str, locks)) or "another run"
    cancel = f"run `pulumi cancel --stack {stack}`"
    if locks_left(errors):
        raise StateLocked(f"{stack} is locked by {holders}, but the process no longer exists; {cancel}, and run the command again")  # fmt: skip
    raise StateLocked(
        f"{stack} is locked by {holders}; wait until the run ends, and run the command again; "
        f"if the run no longer exists, {cancel} first"
    )


def _locks(errors: str) -> tuple[int, tuple[StateLock, ...]]:
    """Return the number of locks, and the locks that can be read."""
    match = _LOCKED.search(errors)
    if not match:
        return 0, ()
    lines = _LOCK.finditer(errors, match.end())
    return int(match[1]), tuple(StateLock(owner=one["owner"], pid=int(one["pid"]), since=one["since"]) for one in lines)


def _owner_here() -> str:
    """Return the owner of a lock that this user creates on this machine, or an empty string if its name does not identify the machine."""
    host = socket.gethostname()
    if host.partition(".")[0] in ("", "localhost"):
        return ""
    try:
        return f"{pwd.getpwuid(os.getuid()).pw_name}@{host}"
    except KeyError:  # The user ID has no name. The engine then uses this variable.
        return f"{os.environ.get('USER', '')}@{host}"


def _exists(pid: int) -> bool:
    """Return whether a process exists. A killed process whose parent did not read its exit status does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):  # Not Linux, or the process has just ended.
        return True
    return state not in ("Z", "X")
