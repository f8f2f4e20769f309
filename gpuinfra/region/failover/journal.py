"""The journal of a failover or a failback, which records which steps are done. It is written before and after each step.

The journal is part of the record of the active region (`gpuinfra.clouds.region.active`), so that a different machine can continue the move. The file in the
user's state folder is a copy, and its lock prevents concurrent runs on one machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from gpuinfra.base.errors import GpuinfraError, UsageError
from gpuinfra.clouds.region.active import SharedRecord
from gpuinfra.clouds.region.reach import ConnectionFailure
from gpuinfra.remote.stack_journal import StackJournal, now

SCHEMA = "gpuinfra.failover-journal/1"
FAILBACK_SCHEMA = "gpuinfra.failback-journal/1"
FENCE = "fence"
"""Name of the step that stops the nodes of a region."""
DONE, STARTED, FAILED, UNREACHABLE, IGNORED = "done", "started", "failed", "unreachable", "ignored"
"""States of a step. A step without an entry has not started. `ignored` is a failed step that `--ignore` skips."""


def minutes_in(body: Mapping[str, Any], *names: str) -> float | None:
    """Return the duration of the steps of a journal, as `FailoverJournal.minutes` does. `body` is the journal in the record of the active region."""
    durations = [
        (datetime.fromisoformat(str(entry["ended"])) - datetime.fromisoformat(str(entry["started"]))).total_seconds()
        for step, entry in (body.get("steps") or {}).items()
        if step in names or step.startswith(tuple(name for name in names if name.endswith(" ")))
        if isinstance(entry, dict) and entry.get("state") == DONE and entry.get("started") and entry.get("ended")
    ]
    return sum(durations) / 60 if durations else None


class FailoverJournal(StackJournal):
    """The journal of one stack, locked until `close`."""

    SCHEMA = SCHEMA
    FOLDER = "failover"
    COMMAND = "a failover"
    MOVE = "failover"
    """The move in words, for messages."""
    BACK = "failback"
    """The command that moves the stack back after the move."""
    ENTRIES = "steps"
    ENTRIES_TYPE = dict
    AGAIN = "remove the file and start again; each step can be repeated"
    _record: SharedRecord | None = None

    def share(self, record: SharedRecord) -> None:
        """Write to the record of the active region from now on. Its journal replaces that of this machine, because a different machine can have continued.

        Without a record, the journal of this machine counts. Raises `GpuinfraError` if the record does not contain a journal in this format.
        """
        self._record = record
        if record.active is None:
            return
        body = record.move(self.MOVE)
        if body is None:
            self._set_aside()
            return
        if body.get("schema") != self.SCHEMA or not isinstance(body.get(self.ENTRIES), self.ENTRIES_TYPE):
            raise GpuinfraError(
                f"the record of the active region contains no journal of a {self.MOVE} in the format {self.SCHEMA}; use the version of gpuinfra that wrote it"
            )
        self._body = {**body, "file": str(self.stack_file)}
        super()._write()

    def _write(self, region: str | None = None) -> None:
        # The record first: the copy on this machine is never ahead of it.
        if self._record is not None:
            self._record.update(self.MOVE, {key: value for key, value in self._body.items() if key != "file"}, region)
        super()._write()

    @property
    def active_region(self) -> str | None:
        """The active region in the record, or None if there is no record."""
        return self._record.active.region if self._record is not None and self._record.active else None

    @property
    def exists(self) -> bool:
        """Whether the move was started."""
        return bool(self._body)

    @property
    def ended(self) -> str | None:
        """Time at which the last step finished, or None."""
        return self._body.get("ended")

    @property
    def region(self) -> str:
        """Region to which the stack moves."""
        return str(self._body.get("to") or "")

    @property
    def began(self) -> str:
        """Time at which the first step started, or an empty string."""
        return str(self._body.get("began") or "")

    def steps_in(self, *states: str) -> tuple[str, ...]:
        """Return the steps with one of these states."""
        return tuple(name for name in self._body.get("steps") or {} if self.state(name) in states)

    @property
    def evidence(self) -> tuple[Mapping[str, str], ...]:
        """The failed connections that prove that the first region is unreachable: `service`, `at`, `error`."""
        return tuple(self._body.get("evidence") or ())

    def prove(self, evidence: Iterable[ConnectionFailure]) -> None:
        """Record the evidence that the first region is unreachable. It replaces earlier evidence."""
        self._body["evidence"] = [one.as_dict() for one in evidence]
        self._write()

    @property
    def undo(self) -> str:
        """What else to do, for messages about a move that cannot continue, or an empty string if it cannot be undone."""
        return f", or undo the {self.MOVE} with --abort"

    @property
    def stop_first(self) -> bool:
        """Whether a region is stopped before the other one has nodes."""
        return bool(self._body.get("stop_first"))

    def begin(self, stack: str, region: str, files: Mapping[str, str], *, stop_first: bool = False) -> None:
        """Start a journal. `files` contains the checksum of each declaration, keyed by stack name."""
        self._body = {
            "schema": self.SCHEMA, "stack": stack, "file": str(self.stack_file), "to": region, "files": dict(files),
            "began": now(), "ended": None, "stop_first": stop_first, "steps": {},
        }  # fmt: skip
        self._write()

    def check(self, region: str, files: Mapping[str, str]) -> None:
        """Check that the journal has the same region and the same declarations. Raises `UsageError` otherwise."""
        if self.region != region:
            raise UsageError(
                f"--to is {region}, but the {self.MOVE} in progress moves the stack to {self.region}; use --to {self.region}{self.undo}"
            )
        recorded = self._body.get("files") or {}
        if changed := sorted(name for name in {*recorded, *files} if recorded.get(name) != files.get(name)):
            raise UsageError(
                f"the declaration of {', '.join(changed)} changed after the {self.MOVE} began ({self._body.get('began')}); undo the change{self.undo}"
            )

    def state(self, step: str) -> str | None:
        """Return the state of a step."""
        entry = self.entry(step)
        return str(entry["state"]) if "state" in entry else None

    def entry(self, step: str) -> Mapping[str, Any]:
        """Return the journal entry for a step: `state`, `started`, `ended`, `found`."""
        steps = self._body.get("steps") or {}
        entry = steps.get(step)
        return entry if isinstance(entry, dict) else {}

    def minutes(self, *names: str) -> float | None:
        """Return the duration of the steps that are done and that have one of these names, or begin with it and a space. None without such a step."""
        return minutes_in(self._body, *names)

    def start(self, step: str, region: str | None = None) -> None:
        """Record that a step starts, and that `region` is the active one from now on."""
        self._body["ended"] = None
        self._body["steps"][step] = {**self.entry(step), "state": STARTED, "started": now(), "ended": None}
        self._write(region)

    @property
    def steps(self) -> tuple[str, ...]:
        """Steps that were started, in order."""
        return tuple(self._body.get("steps") or {})

    @property
    def aborting(self) -> bool:
        """Whether the move is being undone."""
        return bool(self._body.get("aborting"))

    def abort(self) -> None:
        """Record that the move is undone."""
        self._body["aborting"] = now()
        self._write()

    def stop_now(self) -> None:
        """Record that a region is stopped next, before the other one has nodes."""
        self._body["stop_first"] = True
        self._write()

    def repeat(self, step: str) -> None:
        """Record that a step runs again, as after an interruption."""
        if self.state(step) is not None:
            self._body["steps"][step] |= {"state": STARTED, "ended": None}
            self._write()

    @property
    def placements(self) -> Mapping[str, str]:
        """Checksum of the capacity and placement with which each stack was last deployed, keyed by stack name."""
        return dict(self._body.get("placements") or {})

    def place(self, stack: str, checksum: str) -> None:
        """Record the capacity and placement with which a stack is deployed."""
        self._body["placements"] = {**self.placements, stack: checksum}
        self._write()

    def finish(self, step: str, state: str, found: str) -> None:
        """Record the result of a step."""
        self._body["steps"][step] = {**self.entry(step), "state": state, "ended": now(), "found": found}
        self._write()

    def retire(self) -> None:
        """Rename the file, so that the next move starts with the first step."""
        if self.exists:
            if self._record is not None:
                self._record.update(self.MOVE, None)
            self._set_aside()

    def _set_aside(self) -> None:
        if self.exists:
            self.path.replace(self.path.with_suffix(f".{str(self.ended or now()).replace(':', '')}.old"))
            self._body = {}


class FailbackJournal(FailoverJournal):
    """The journal of a failback of one stack, locked until `close`."""

    SCHEMA = FAILBACK_SCHEMA
    FOLDER = "failback"
    COMMAND = "a failback"
    MOVE = "failback"
    BACK = "failover"

    @property
    def undo(self) -> str:
        """As for a failover, until the failback stops the second region."""
        return "" if self.has_stopped else super().undo

    @property
    def has_stopped(self) -> bool:
        """Whether the failback started to stop the nodes of the second region."""
        return self.state(FENCE) is not None
