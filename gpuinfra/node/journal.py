"""The journal of the steps on a node. The file stays consistent even if the process is killed.

Owns `state.json` (docs/reference/formats.md, "Journal") and the lock against concurrent runs.
`steps.py` decides which steps run.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

SCHEMA = "gpuinfra.state/1"
PENDING, RUNNING, REBOOT, DONE, FAILED = "pending", "running", "reboot", "done", "failed"
LEFTOVER_GRACE_S = 10.0
MAX_FAILURES = 3
FAULT_PATIENCE_S = 900.0
"""A failure is final for the handover after this number of failed runs of the step in a row if it lasts at least this time, which is longer than
the faults that pass: a package lock (8 minutes in `lib.sh`), a wrong clock (5 minutes in `10-prepare.sh`), and an outage of name servers or of a mirror.
It is a quarter of the default deadline of the handover. The number alone is no measure, because a run without DNS fails within seconds. systemd repeats
failed runs every minute, also after that."""


def write_whole(path: Path, text: str) -> None:
    """Replace `path` atomically: a reader, or a run after a power loss, sees the old or the new content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".new")
    try:
        try:
            draft.unlink()  # a killed run left it
        except FileNotFoundError:
            pass
        # Only root can write in these folders. In another folder, an exclusive creation follows no link.
        exclusive = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(draft, exclusive, 0o666), "w", encoding="utf-8") as handle:
            handle.write(text)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(draft, path)
    except OSError:
        try:
            draft.unlink()
        except OSError:
            pass
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class StepJournal:
    """The state of each step, written after every change."""

    def __init__(self, path: Path, bundle_sha256: str, boot_id: str) -> None:
        self.path = path
        self.boot_id = boot_id
        self.broken: Optional[str] = None
        """The reason why the previous journal could not be read. That file is renamed, and every step runs again."""
        before = self._read()
        self.steps: Dict[str, Dict[str, Any]] = {}
        for entry in before.get("steps", []):
            if isinstance(entry, dict) and isinstance(entry.get("id"), str):
                self.steps[entry["id"]] = entry
        recorded = before.get("recorded")
        self.recorded: Dict[str, str] = dict(recorded) if isinstance(recorded, dict) else {}
        self.bundle_sha256 = bundle_sha256

    def _read(self) -> Dict[str, Any]:
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        except UnicodeDecodeError as error:
            return self._put_aside(str(error))
        try:
            state = json.loads(text)
        except ValueError as error:
            return self._put_aside(str(error))
        if not isinstance(state, dict) or state.get("schema") != SCHEMA or not isinstance(state.get("steps"), list):
            return self._put_aside(f"its schema is not {SCHEMA}")
        return state

    def _put_aside(self, reason: str) -> Dict[str, Any]:
        self.broken = reason
        os.replace(self.path, self.path.with_name(self.path.name + ".broken"))
        return {}

    def expect(self, hashes: Dict[str, str]) -> None:
        """Load the bundle's steps in order. A step whose hash changed becomes pending again."""
        steps = {}
        for step, digest in hashes.items():
            entry = self.steps.get(step)
            if entry is None or entry.get("hash") != digest:
                entry = {
                    "id": step,
                    "hash": digest,
                    "status": PENDING,
                    "started": None,
                    "seconds": 0.0,
                    "attempts": 0,
                    "reboots": 0,
                    "failures": 0,
                    "failing_since": None,
                    "final": False,
                    "boot_id": None,
                    "changed": False,
                    "reason": None,
                }
            steps[step] = entry
        self.steps = steps

    def update(self, step: str, **fields: Any) -> None:
        """Change one step's entry and write the journal."""
        self.steps[step].update(fields)
        self.write()

    def write(self) -> None:
        """Write the complete journal."""
        entries: List[Dict[str, Any]] = list(self.steps.values())
        state = {
            "schema": SCHEMA,
            "bundle_sha256": self.bundle_sha256,
            "boot_id": self.boot_id,
            "steps": entries,
            "recorded": dict(sorted(self.recorded.items())),
        }
        write_whole(self.path, json.dumps(state, indent=1) + "\n")


class AnotherRun(Exception):
    """Another run holds the lock; the message names it."""


NOTE_BYTES = 256


class RunLock:
    """Allows one run at a time. The kernel releases the lock when its holder exits for any reason."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._handle = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "r+", encoding="utf-8")
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = self._read().get("pid")
            self._handle.close()
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise AnotherRun(
                    f"another run (process {holder}) holds {path}; wait for it to finish, or terminate that process"
                ) from None
            raise
        self._end_leftover(self._read())
        self._write({"pid": os.getpid()})

    def started(self, group: int) -> None:
        """Record the process group of the running step, so the next run can terminate processes that survived a kill."""
        self._write({"pid": os.getpid(), "group": group, "began": process_began(group)})

    def ended(self) -> None:
        """Record that no step is running."""
        self._write({"pid": os.getpid()})

    def release(self) -> None:
        """Release the lock."""
        self._handle.close()

    def _read(self) -> Dict[str, Any]:
        self._handle.seek(0)
        try:
            content = json.loads(self._handle.read() or "{}")
        except ValueError:
            return {}
        return content if isinstance(content, dict) else {}

    def _write(self, content: Dict[str, Any]) -> None:
        try:
            # One write of constant size, so a concurrent reader sees either the old or the new note.
            os.pwrite(self._handle.fileno(), json.dumps(content).ljust(NOTE_BYTES).encode(), 0)
        except OSError:
            pass  # the disk is full: the lock still holds, only the note is lost

    @staticmethod
    def _end_leftover(content: Dict[str, Any]) -> None:
        group, began = content.get("group"), content.get("began")
        # Process IDs are reused, so the leader's start time must match the note. If the leader has ended while members
        # still run, the kernel does not reuse the group's ID.
        if not isinstance(group, int) or group <= 1 or process_began(group) not in (None, began):
            return
        end_group(group)


def process_began(pid: int) -> Optional[int]:
    """Return the start time of a process in ticks since boot, or None if it does not exist."""
    fields = _stat(str(pid))
    return int(fields[19]) if fields else None


def group_lives(group: int) -> bool:
    """Return True while any process of the group is running. Zombies do not count."""
    for entry in Path("/proc").iterdir():
        fields = _stat(entry.name) if entry.name.isdigit() else []
        if fields and fields[2] == str(group) and fields[0] not in "ZX":
            return True
    return False


KILL_PATIENCE_S = 30.0
"""Maximum time that a killed group takes to exit on a busy machine. A process that hangs in the kernel never exits."""


def end_group(group: int, grace_s: float = LEFTOVER_GRACE_S) -> None:
    """Terminate a process group, and kill it after the grace period."""
    for number, patience in ((signal.SIGTERM, grace_s), (signal.SIGKILL, KILL_PATIENCE_S)):
        try:
            os.killpg(group, number)
        except (ProcessLookupError, PermissionError):
            return
        until = time.monotonic() + patience
        while time.monotonic() < until:
            if not group_lives(group):
                return
            time.sleep(0.02)


def _stat(pid: str) -> List[str]:
    """Return the fields of /proc/PID/stat from the third (state) on, or an empty list if there is no such process."""
    try:
        fields = Path("/proc", pid, "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
    return fields if len(fields) > 19 else []
