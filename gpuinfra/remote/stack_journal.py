"""A journal for one stack in the user's state folder. `gpuinfra failover` and `gpuinfra up` define its content.

The file is replaced atomically, so it is complete even after a kill. A lock prevents concurrent runs. The engine inherits the lock, so a run that
was killed while the engine was running cannot be continued before the engine exits.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, ClassVar

from gpuinfra.base.errors import GpuinfraError
from gpuinfra.base.file_errors import naming
from gpuinfra.base.json_text import parsed
from gpuinfra.node.journal import write_whole
from gpuinfra.remote.record import locked_file


class StackJournal:
    """The journal of one stack, locked until `close`."""

    SCHEMA: ClassVar[str]
    FOLDER: ClassVar[str]
    """Folder below the state folder."""
    COMMAND: ClassVar[str]
    """The command in words, for the message about a concurrent run."""
    ENTRIES: ClassVar[str]
    """Key of the entries."""
    ENTRIES_TYPE: ClassVar[type]
    """Type of the entries."""
    AGAIN = "remove the file and start again"
    """What to do if the file is not a journal."""

    def __init__(self, stack_file: Path, folder: Path | None = None) -> None:
        """Open and lock the journal. Raises `GpuinfraError` if a different process holds it, or if the file is not a journal."""
        self.stack_file = stack_file.resolve()
        running = f"{self.COMMAND} of {self.stack_file.name} is running, or the engine of an interrupted run is still running; wait until the run finishes"
        self.path, self._lock = locked_file(self.FOLDER, str(self.stack_file), folder, running)
        try:
            self._body = self._read()
        except GpuinfraError:
            self.close()
            raise

    @property
    def lock(self) -> int:
        """File descriptor of the lock, for child processes that must keep it."""
        return self._lock.fileno()

    def end(self) -> None:
        """Record that the run finished."""
        self._body["ended"] = now()
        self._write()

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()

    def _write(self) -> None:
        with naming(self.path):
            write_whole(self.path, json.dumps(self._body, indent=1) + "\n")

    def _read(self) -> dict[str, Any]:
        document: Any = None
        try:
            document = parsed(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError):
            pass
        is_ours = isinstance(document, dict) and document.get("schema") == self.SCHEMA
        if (
            not is_ours
            or not isinstance(document.get(self.ENTRIES), self.ENTRIES_TYPE)
            or document.get("file") != str(self.stack_file)
        ):
            raise GpuinfraError(
                f"{self.path} is not a journal of {self.stack_file} in the format {self.SCHEMA}; {self.AGAIN}"
            )
        return {str(key): value for key, value in document.items()}


def now() -> str:
    """Return the time in UTC, in ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
