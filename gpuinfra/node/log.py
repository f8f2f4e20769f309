"""The step runner's log: a file on the node, standard output, and the system console, which you can read remotely."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import List, Optional


class StepLog:
    """The log file on the node, standard output (which systemd stores) and the console."""

    def __init__(self, log: Path, console: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.log_path = log
        self._console: Optional[int] = None
        try:
            self._console = os.open(console, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_APPEND | os.O_CLOEXEC)
        except OSError:
            pass  # no console: the log file contains everything

    def write(self, text: str) -> None:
        """Write one line to all targets. A full disk or a closed pipe does not stop a run."""
        line = "".join(c if c.isprintable() else " " for c in text)
        stamped = f"{utc_now()} {line}\n"
        for target, content in (
            (self.log, stamped),
            (1, f"gpuinfra: {line}\n"),
            (self._console, f"gpuinfra: {line}\r\n"),
        ):
            if target is None:
                continue
            try:
                os.write(target, content.encode("utf-8", "replace"))
            except OSError:
                pass

    def size(self) -> int:
        """Return the current end of the log file."""
        return os.fstat(self.log).st_size

    def last_line(self, since: int) -> str:
        """Return the last line after the given position."""
        return "".join(self.last_lines(since, 1))

    def last_lines(self, since: int, most: int) -> List[str]:
        """Return the last lines after the given position that are not empty, each with at most 300 characters."""
        try:
            with self.log_path.open("rb") as handle:
                handle.seek(max(since, self.size() - 65536))
                lines = [line.strip() for line in handle.read().decode("utf-8", "replace").splitlines() if line.strip()]
        except OSError:
            return []
        return [line[:300] for line in lines[-most:]]


def utc_now() -> str:
    """Return the current UTC time, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
