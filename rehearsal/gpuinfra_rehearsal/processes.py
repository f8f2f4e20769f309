"""Starts and records the processes of a rehearsal, and terminates the leftover processes of an interrupted run.

Each process exits when its parent exits, and its environment contains a marker, which a later run uses to find it. A process
is terminated only if it has this folder's marker, or if both its ID and its start time match the record, because process
IDs are reused.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from gpuinfra_rehearsal.applied_environment import MARKER
from gpuinfra_rehearsal.folder import Folder, write_json

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, kw_only=True)
class RecordedProcess:
    """A recorded process."""

    name: str
    pid: int
    started: str
    """Start time from /proc, in clock ticks since boot. Together with the ID, it identifies the process."""


def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    stdout: int | IO[Any],
    stderr: int | IO[Any],
    death_signal: int = signal.SIGKILL,
) -> subprocess.Popen[str]:
    """Start a process in a separate session. It exits when this process exits.

    A separate session does not receive Ctrl-C from the terminal. The caller forwards interrupts in order."""
    libc, parent = ctypes.CDLL(None), os.getpid()

    def tie() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, death_signal)
        if os.getppid() != parent:  # this process exited before prctl took effect
            os._exit(1)

    return subprocess.Popen(
        list(argv),
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        text=True,
        start_new_session=True,
        preexec_fn=tie,
    )


def record(folder: Folder, running: Mapping[str, int]) -> None:
    """Record the running processes as a mapping from name to process ID."""
    rows = [{"name": name, "pid": pid, "started": start_time(pid)} for name, pid in running.items()]
    write_json(folder.processes, {"schema": "gpuinfra.processes/1", "leader": os.getpid(), "processes": rows})


def sweep(folder: Folder) -> list[str]:
    """Terminate processes that an earlier run left behind, and return their names."""
    left = {p.pid: p for p in _recorded(folder) if start_time(p.pid) == p.started and p.started}
    names = {pid: p.name for pid, p in left.items()}
    for pid in marked(folder.base):
        names.setdefault(pid, _command(pid))
    names.pop(os.getpid(), None)
    for pid in names:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    limit = time.monotonic() + 10
    while time.monotonic() < limit and any(map(_is_running, names)):
        time.sleep(0.02)
    folder.processes.unlink(missing_ok=True)
    return sorted(set(names.values()))


def marked(root: Path) -> list[int]:
    """Return the IDs of processes whose environment contains this folder's marker."""
    variable = f"{MARKER}={root}".encode()
    pids = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            variables = Path(entry.path, "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if variable in variables:
            pids.append(int(entry.name))
    return pids


def start_time(pid: int) -> str:
    """Return the start time of a process in clock ticks, or an empty string if it does not exist."""
    return "".join(_stat(pid)[19:20])


def _is_running(pid: int) -> bool:
    return _stat(pid)[:1] not in ([], ["Z"])


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name, starting with the state, or an empty list if the process does not exist."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _recorded(folder: Folder) -> list[RecordedProcess]:
    try:
        document = json.loads(folder.processes.read_text(encoding="utf-8"))
        return [
            RecordedProcess(name=str(p["name"]), pid=int(p["pid"]), started=str(p["started"]))
            for p in document["processes"]
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return str(pid)
    return Path(words[0].decode(errors="replace")).name or str(pid)
