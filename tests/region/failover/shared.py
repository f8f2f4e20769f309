"""The record of the active region in memory, which a test can make unreadable or change as another operator."""

from __future__ import annotations

from dataclasses import dataclass

from gpuinfra.clouds.region.active import CLUSTER, ActiveRegion, RecordChanged, StoredRecord, parsed_record
from gpuinfra.clouds.region.failover import Unreachable

CLUSTER_STATE = {
    "type": CLUSTER,
    "urn": f"urn:pulumi:aws-recovery::gpuinfra::{CLUSTER}::recovery",
    "outputs": {"recovery": {"buckets": {"evidence": "evidence-second"}}},
}
"""The component in the state of a stack with a second region."""


@dataclass
class MemoryRecord:
    """The object in the second region. It implements `gpuinfra.clouds.region.active.RecordStore`."""

    held: StoredRecord | None = None
    down: bool = False
    """Whether the second region does not respond."""
    lost: bool = False
    """Whether the response to the next write is lost, so that the request is repeated."""
    writes: int = 0

    def read(self) -> StoredRecord | None:
        if self.down:
            raise Unreachable("second timed out")
        return self.held

    def write(self, text: bytes, tag: str | None) -> str:
        if self.down:
            raise Unreachable("second timed out")
        if tag != (self.held.tag if self.held else None):
            raise RecordChanged
        self.writes += 1
        self.held = StoredRecord(text=text, tag=str(self.writes))
        if self.lost:
            self.lost = False
            return self.write(text, tag)
        return self.held.tag

    def active(self, stack: str = "aws-recovery") -> ActiveRegion:
        """The content."""
        assert self.held is not None
        return parsed_record(self.held.text, stack)
