"""Starts and reaps processes in a node's init, which adopts orphans."""

from __future__ import annotations

import os
import signal
import threading
import time

OF_UNIT, OF_COMMAND = "INVOCATION_ID", "STANDIN_COMMAND"
"""Variables that mark the processes of a unit and of a command. systemd sets the first one, which a login shell does not have."""
_RESET = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT]


class Reaper:
    """Reaps all child processes and keeps the exit codes of those that it started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._expected: dict[int, int | None] = {}

    def spawn(self, argv: list[str], environ: dict[str, str], output: int, folder: str = "/") -> int:
        """Start `argv` in a separate session. stdout and stderr go to the descriptor `output`."""
        path = find_program(argv[0], environ.get("PATH", os.defpath))
        if path is None:
            raise FileNotFoundError(f"{argv[0]}: command not found")
        if folder not in ("", "/"):
            argv = ["/bin/sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", folder, path, *argv[1:]]
            path = "/bin/sh"
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, output, 1),
            (os.POSIX_SPAWN_DUP2, output, 2),
        ]
        with self._lock:
            pid = os.posix_spawn(
                path, argv, environ, file_actions=actions, setsid=True, setsigmask=[], setsigdef=_RESET
            )
            self._expected[pid] = None
        return pid

    def reap(self) -> None:
        """Reap all exited children. The main thread calls this on SIGCHLD."""
        while True:
            with self._lock:
                try:
                    pid, status = os.waitpid(-1, os.WNOHANG)
                except ChildProcessError:
                    return
                if pid == 0:
                    return
                if pid in self._expected:
                    self._expected[pid] = os.waitstatus_to_exitcode(status)
                    self._changed.notify_all()

    def adopt(self, pid: int) -> bool:
        """Keep the exit code of an orphan, so that `wait` returns it. Return whether the process still exists."""
        with self._lock:  # a process that still exists has not been reaped
            if not os.path.exists(f"/proc/{pid}"):
                return False
            self._expected.setdefault(pid, None)
            return True

    def wait(self, pid: int, timeout: float | None = None) -> int | None:
        """Return the exit code of a spawned process (negative for a signal), or None after `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while self._expected.get(pid) is None:
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    return None
                self._changed.wait(left)
            return self._expected.pop(pid)


def find_program(name: str, path: str) -> str | None:
    """Find a program as `execvp` does."""
    if "/" in name:
        return name if os.access(name, os.X_OK) else None
    for folder in path.split(":"):
        if os.access(f"{folder}/{name}", os.X_OK):
            return f"{folder}/{name}"
    return None


def members(invocation: str) -> list[int]:
    """Return the processes of a unit's or a command's invocation, including detached ones. systemd identifies them by their cgroup."""
    needles = {f"{name}={invocation}".encode() for name in (OF_UNIT, OF_COMMAND)}
    pids = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) > 1:
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if not needles.isdisjoint(file.read().split(b"\0")):
                        pids.append(int(name))
            except OSError:
                continue
    return pids


def end_all(invocation: str, patience: float) -> None:
    """Send SIGTERM, then SIGKILL to processes that do not exit in time."""
    for number, seconds in ((signal.SIGTERM, patience), (signal.SIGKILL, 1.0)):
        pids = members(invocation)
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
        until = time.monotonic() + seconds
        while pids and time.monotonic() < until:
            time.sleep(0.02)
            pids = [pid for pid in pids if _alive(pid)]
        if not pids:
            return


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return b") Z" not in file.read()
    except OSError:
        return False
