"""The journal of a failover: a file in the user's state folder that records which steps are done.

It is written before and after each step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuinfra.errors import UsageError
from gpuinfra.remote.stack_journal import StackJournal, now

SCHEMA = "gpuinfra.failover-journal/1"
DONE, STARTED, FAILED, UNREACHABLE = "done", "started", "failed", "unreachable"
"""States of a step. A step without an entry has not started."""


class Journal(StackJournal):
    """The journal of one stack, locked until `close`."""

    SCHEMA = SCHEMA
    FOLDER = "failover"
    COMMAND = "a failover"
    ENTRIES = "steps"
    ENTRIES_TYPE = dict
    AGAIN = "remove the file and start again; each step can be repeated"

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
        """Start a journal. `files` contains the checksum of each declaration, keyed by stack name."""
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
        """Return the journal entry for a step: `state`, `started`, `ended`, `found`."""
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
