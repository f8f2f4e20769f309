"""Labels of nodes: `gpu-1` is the first instance of the pool `gpu` that was seen, `gpu-2` the second.

All outputs of a stack use these labels: the state, reports, the live view of a rehearsal and the verification commands.
A number is never reused, so a label in an old log always means one instance. The state therefore keeps each pool's
highest number after its instance is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Names:
    """Labels assigned so far."""

    labels: Mapping[str, str] = field(default_factory=dict)
    """Instance id -> label."""
    last: Mapping[str, int] = field(default_factory=dict)
    """Pool -> highest number assigned."""

    def assign(self, pool: str, instances: Sequence[str]) -> Names:
        """Labels that also cover these instances of a pool, given in launch order."""
        labels = dict(self.labels)
        last = max([self.last.get(pool, 0), *(_number(pool, label) for label in labels.values())])
        for instance in instances:
            if instance not in labels:
                last += 1
                labels[instance] = f"{pool}-{last}"
        return Names(labels=labels, last={**self.last, pool: last})


def _number(pool: str, label: str) -> int:
    """The number in a label of this pool; 0 for labels of other pools."""
    name, _, number = label.rpartition("-")
    return int(number) if name == pool and number.isdigit() else 0
