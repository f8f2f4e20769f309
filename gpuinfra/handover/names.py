"""What nodes are called: `gpu-1` is the first machine of the pool that was ever seen, `gpu-2` the second.

Every table of a stack takes its labels from here: the state, reports, the live view of a rehearsal, `gpuinfra verify`.
A number is never given twice, so that a name in an old log is that of one machine; the highest one is therefore kept with
the labels, also after its machine is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Names:
    """What is known of names."""

    labels: Mapping[str, str] = field(default_factory=dict)
    """Instance id -> label."""
    last: Mapping[str, int] = field(default_factory=dict)
    """Pool -> highest number ever given."""

    def call(self, pool: str, instances: Sequence[str]) -> Names:
        """Names that also cover these machines of a pool, given in launch order."""
        labels = dict(self.labels)
        last = max([self.last.get(pool, 0), *(_number(pool, label) for label in labels.values())])
        for instance in instances:
            if instance not in labels:
                last += 1
                labels[instance] = f"{pool}-{last}"
        return Names(labels=labels, last={**self.last, pool: last})


def _number(pool: str, label: str) -> int:
    """The number in a label of this pool; 0 for a label of another one."""
    name, _, number = label.rpartition("-")
    return int(number) if name == pool and number.isdigit() else 0
