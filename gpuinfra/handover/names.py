"""Node labels: `gpu-1` is the first instance seen in pool `gpu`, `gpu-2` the second.

The state, the reports, the live view of a rehearsal and the verification commands all use these labels.
Numbers are never reused, so a label in an old log identifies exactly one instance. The state therefore keeps each pool's
highest number even after the instance with this number is deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class NodeNames:
    """Labels assigned so far."""

    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels, keyed by instance ID."""
    last: Mapping[str, int] = field(default_factory=dict)
    """Highest number assigned in each pool, keyed by pool."""

    def assign(self, pool: str, instances: Sequence[str]) -> NodeNames:
        """Return labels that also include these instances of a pool. `instances` must be in launch order."""
        labels = dict(self.labels)
        last = max([self.last.get(pool, 0), *(_number(pool, label) for label in labels.values())])
        for instance in instances:
            if instance not in labels:
                last += 1
                labels[instance] = f"{pool}-{last}"
        return NodeNames(labels=labels, last={**self.last, pool: last})


def _number(pool: str, label: str) -> int:
    """Return the number in a label if the label belongs to this pool, otherwise 0."""
    name, _, number = label.rpartition("-")
    return int(number) if name == pool and number.isdigit() else 0
