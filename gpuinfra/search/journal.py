"""The journal of `gpuinfra up`: a file in the user's state folder with the attempts and the placements that were chosen.

The file is replaced atomically before each action, so that `--resume` continues after a kill. A lock prevents concurrent runs. The engine
inherits the lock, so a run that was killed while the engine runs cannot be continued before the engine ends.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gpuinfra.errors import GpuinfraError
from gpuinfra.handover.ports import GroupProblem
from gpuinfra.node.journal import write_whole
from gpuinfra.remote.record import locked_file
from gpuinfra.search.placements import Choices

SCHEMA = "gpuinfra.up-journal/1"
STARTED, READY, NO_CAPACITY, FAILED = "started", "ready", "no capacity", "failed"
"""Results of an attempt. An attempt that was interrupted remains `started`."""


class Journal:
    """The journal of one stack, locked until `close`."""

    def __init__(self, stack_file: Path, folder: Path | None = None) -> None:
        """Open and lock the journal. Raises `GpuinfraError` if a different process has it, or if the file is not a journal."""
        self.stack_file = stack_file.resolve()
        running = f"`gpuinfra up` of {self.stack_file.name} is running, or the engine of an interrupted run still runs; wait until it ends"
        self.path, self._lock = locked_file("up", str(self.stack_file), folder, running)
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
    def unfinished(self) -> bool:
        """Whether a run was started and did not end."""
        return bool(self._body) and not self._body.get("ended")

    @property
    def began(self) -> str:
        """Time at which the run began."""
        return str(self._body.get("began") or "")

    @property
    def original(self) -> str | None:
        """Text of the stack file with the declared placements, or None if the file was not edited."""
        found = self._body.get("original")
        return found if isinstance(found, str) else None

    @property
    def choices(self) -> dict[str, int]:
        """Placement of each pool that does not have the declared one."""
        return dict(self._body.get("choices") or {})

    @property
    def before(self) -> dict[str, int]:
        """Placements of the attempt before the last change of `choices`."""
        return dict(self._body.get("before") or {})

    @property
    def removing(self) -> list[str]:
        """Pools whose groups must be removed before the next attempt."""
        return list(self._body.get("removing") or [])

    @property
    def attempts(self) -> list[dict[str, Any]]:
        """Attempts in order: `placements`, `result`, `seconds`, `problems`."""
        return list(self._body.get("attempts") or [])

    def begin(self, stack: str) -> None:
        """Start a journal."""
        self._body = {
            "schema": SCHEMA, "stack": stack, "file": str(self.stack_file), "began": _now(), "ended": None,
            "original": None, "choices": {}, "before": {}, "removing": [], "attempts": [],
        }  # fmt: skip
        self._write()

    def start(self, placements: dict[str, str]) -> None:
        """Record that an attempt starts. An attempt that was interrupted is started again."""
        attempts = self._body["attempts"]
        if attempts and attempts[-1]["result"] == STARTED and attempts[-1]["placements"] == placements:
            attempts.pop()
        attempts.append({"placements": placements, "result": STARTED, "started": _now(), "seconds": None, "problems": []})  # fmt: skip
        self._write()

    def finish(self, result: str, seconds: float, problems: Iterable[GroupProblem] = ()) -> None:
        """Record the result of the last attempt."""
        rows = [{"group": one.name, "kind": str(one.kind), "message": one.message} for one in problems]
        self._body["attempts"][-1] |= {"result": result, "seconds": round(seconds), "problems": rows}
        self._write()

    def remove(self, pools: Iterable[str], choices: Choices, original: str) -> None:
        """Record that the groups of these pools are removed, and the placements of the next attempt."""
        self._body |= {
            "removing": list(pools), "before": self.choices, "choices": dict(choices), "original": self.original or original,
        }  # fmt: skip
        self._write()

    def removed(self) -> None:
        """Record that the groups are removed."""
        self._body["removing"] = []
        self._write()

    def end(self) -> None:
        """Record that the run ended, so that `--resume` has nothing to do."""
        self._body["ended"] = _now()
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
        known = isinstance(found, dict) and found.get("schema") == SCHEMA and isinstance(found.get("attempts"), list)
        if not known or found.get("file") != str(self.stack_file):
            raise GpuinfraError(
                f"{self.path} is not a journal of {self.stack_file} in the format {SCHEMA}; remove it and start again"
            )
        return {str(key): value for key, value in found.items()}


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
