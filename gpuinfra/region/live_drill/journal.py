"""The journal of a live drill: that one was started, and the seconds of its parts. It remains until everything is removed."""

from __future__ import annotations

from enum import StrEnum

from gpuinfra.remote.stack_journal import StackJournal, now


class Part(StrEnum):
    """The parts of a live drill, in their order."""

    SITE = "site"
    COPY = "copy"
    NODES = "nodes"
    READ = "read"
    REMOVE = "remove"


class DrillJournal(StackJournal):
    """The journal of a stack, locked until `close`."""

    SCHEMA = "gpuinfra.live-drill-journal/1"
    FOLDER = "live-drill-runs"
    COMMAND = "`gpuinfra drill --live`"
    ENTRIES = "seconds"
    ENTRIES_TYPE = dict

    @property
    def unfinished(self) -> bool:
        """Whether a drill was started and not everything is removed."""
        return bool(self._body) and not self._body.get("ended")

    @property
    def began(self) -> str:
        """Time at which the drill began."""
        return str(self._body.get("began") or "")

    @property
    def cluster(self) -> str:
        """Name of the cluster of the drill."""
        return str(self._body.get("cluster") or "")

    def begin(self, cluster: str) -> None:
        """Record a new drill, before it creates anything."""
        self._body = {
            "schema": self.SCHEMA, "file": str(self.stack_file), "cluster": cluster, "began": now(), "ended": None, "seconds": {},
        }  # fmt: skip
        self._write()

    def measured(self, part: Part, seconds: float) -> None:
        """Record how long a part took."""
        self._body["seconds"][part.value] = round(seconds, 1)
        self._write()
