"""The journal of a failover: a file in the user's state folder that states which steps are done.

The file is replaced atomically before and after each step, so that it is complete after a kill. A lock prevents concurrent runs. The engine
inherits the lock, so a run that was killed while the engine was running cannot be continued before the engine exits.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuinfra.errors import GpuinfraError, UsageError
from gpuinfra.node.journal import write_whole
from gpuinfra.remote.record import locked_file

SCHEMA = "gpuinfra.failover-journal/1"
DONE, STARTED, FAILED, UNREACHABLE = "done", "started", "failed", "unreachable"
"""States of a step. A step without an entry has not started."""


class Journal:
    """The journal of one stack, locked until `close`."""

    def __init__(self, stack_file: Path, folder: Path | None = None) -> None:
        """Open and lock the journal. Raises `GpuinfraError` if a different process holds it, or if the file is not a journal."""
        self.stack_file = stack_file.resolve()
        running = f"a failover of {self.stack_file.name} is running, or the engine of an interrupted one is still running; wait until it finishes"
        self.path, self._lock = locked_file("failover", str(self.stack_file), folder, running)
        try:
            self._body = self._read()
        except GpuinfraError:
            self.close()
            raise

    @property
    def lock(self) -> int:
        """File descriptor of the lock, for child processes that must keep it."""
        return self._lock.fileno()

    @property
    def exists(self) -> bool:
        """Whether a failover was started."""
        return bool(self._body)

    @property
    def ended(self) -> str | None:
        """Time at which the last step finished, or None."""
        return self._body.get("ended")

    @property
    def region(self) -> str:
        """Region of the failover."""
        return str(self._body.get("to") or "")

    def begin(self, stack: str, region: str, files: Mapping[str, str]) -> None:
        """Start a journal. `files` contains the checksum of each declaration, by the name of its stack."""
        self._body = {
            "schema": SCHEMA, "stack": stack, "file": str(self.stack_file), "to": region, "files": dict(files),
            "began": now(), "ended": None, "steps": {},
        }  # fmt: skip
        self._write()

    def check(self, region: str, files: Mapping[str, str]) -> None:
        """Check that the journal has the same region and the same declarations. Raises `UsageError` otherwise."""
        again = f"or remove {self.path} and start again; each step can be repeated"
        if self.region != region:
            raise UsageError(
                f"--to is {region}, but the failover in progress moves the stack to {self.region}; use --to {self.region}, {again}"
            )
        recorded = self._body.get("files") or {}
        if changed := sorted(name for name in {*recorded, *files} if recorded.get(name) != files.get(name)):
            raise UsageError(
                f"the declaration of {', '.join(changed)} changed after the failover began ({self._body.get('began')}); undo the change, {again}"
            )

    def state(self, step: str) -> str | None:
        """Return the state of a step."""
        entry = self.entry(step)
        return str(entry["state"]) if "state" in entry else None

    def entry(self, step: str) -> Mapping[str, Any]:
        """Return what the journal states about a step: `state`, `started`, `ended`, `found`."""
        steps = self._body.get("steps") or {}
        found = steps.get(step)
        return found if isinstance(found, dict) else {}

    def start(self, step: str) -> None:
        """Record that a step starts."""
        self._body["ended"] = None
        self._body["steps"][step] = {**self.entry(step), "state": STARTED, "started": now(), "ended": None}
        self._write()

    def finish(self, step: str, state: str, found: str) -> None:
        """Record the result of a step."""
        self._body["steps"][step] = {**self.entry(step), "state": state, "ended": now(), "found": found}
        self._write()

    def end(self) -> None:
        """Record that all steps finished."""
        self._body["ended"] = now()
        self._write()

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()

    def _write(self) -> None:
        write_whole(self.path, json.dumps(self._body, indent=1) + "\n")

    def _read(self) -> dict[str, Any]:
        found: Any = None
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError):
            pass
        known = isinstance(found, dict) and found.get("schema") == SCHEMA and isinstance(found.get("steps"), dict)
        if not known or found.get("file") != str(self.stack_file):
            raise GpuinfraError(
                f"{self.path} is not a journal of {self.stack_file} in the format {SCHEMA}; remove it and start again; each step can be repeated"
            )
        return {str(key): value for key, value in found.items()}


def now() -> str:
    """Return the time in UTC, in ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
