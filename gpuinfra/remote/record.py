"""The record of a bootstrap run: a file in the user's state folder that stays consistent if the process is killed.

The journal on each host is authoritative. The record prevents concurrent runs from one account. After a crash, the next run reads from the record
which hosts the interrupted run had finished.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from gpuinfra.base.errors import GpuinfraError
from gpuinfra.base.file_errors import naming
from gpuinfra.base.json_text import parsed
from gpuinfra.node.journal import write_whole

SCHEMA = "gpuinfra.bootstrap-run/1"
_EVERY_S = 1.0


def state_folder() -> Path:
    """Return the folder for gpuinfra's persistent state, by default `~/.local/state/gpuinfra`."""
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path("~/.local/state").expanduser()) / "gpuinfra"


def locked_file(kind: str, what: str, folder: Path | None, running: str) -> tuple[Path, IO[str]]:
    """Return the path of the file for `what` in the state folder, and an open handle that holds its lock.

    `kind` is the name of the subfolder. Raises `GpuinfraError` with the message `running` if a different process has the lock.
    """
    path = (folder or state_folder()) / kind / f"{hashlib.sha256(what.encode()).hexdigest()[:16]}.json"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = path.with_suffix(".lock").open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise GpuinfraError(running) from None
    return path, lock


class Record:
    """The record for one target, which is a stack or a hosts file."""

    def __init__(self, what: str, folder: Path | None = None) -> None:
        running = f"another `gpuinfra bootstrap` is running on {what}; wait until it finishes, or stop it"
        self.path, self._lock = locked_file("bootstrap", what, folder, running)
        self._guard = threading.Lock()
        self._written = 0.0
        self.before = self._read()
        """The previous run, if it was interrupted."""
        self._hosts: dict[str, dict[str, Any]] = {}
        self._body: dict[str, Any] = {"schema": SCHEMA, "what": what, "started": _now(), "ended": None}

    def begin(self, bundles: Mapping[str, str]) -> None:
        """Record the requested bundles, as a mapping from pool to checksum."""
        self._body["bundles"] = dict(bundles)
        self._write()

    def host(self, name: str, **fields: Any) -> None:
        """Record the state of one host."""
        with self._guard:
            self._hosts.setdefault(name, {}).update(fields, at=_now())
            if time.monotonic() - self._written >= _EVERY_S:
                self._write()

    def end(self, interrupted: bool) -> None:
        """Record that the run ended, and release the lock."""
        with self._guard:
            self._body["ended"] = None if interrupted else _now()
            self._write()
        self._lock.close()

    def _write(self) -> None:
        self._written = time.monotonic()
        with naming(self.path):
            write_whole(self.path, json.dumps({**self._body, "hosts": self._hosts}, indent=1) + "\n")

    def _read(self) -> dict[str, Any] | None:
        try:
            document = parsed(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        unfinished = isinstance(document, dict) and document.get("schema") == SCHEMA and document.get("ended") is None
        return document if unfinished else None


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
