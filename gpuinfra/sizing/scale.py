"""How the utilization falls with the number of GPUs, from published pairs: the same model, machine and precision on two numbers of GPUs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from gpuinfra.sizing.measured import MeasuredKind, MeasuredRow, SizingGoal

SMALLEST = 64
"""Pairs on fewer GPUs measure the network within one or two racks, which is not what limits a larger job."""
SMALLEST_MODEL = 1e9
SMALLEST_BENCHMARK = 1e10
"""Parameters. The batch of an MLPerf result of a smaller model does not grow with the number of GPUs."""
FALLBACK = -0.035
"""Loss per doubling without pairs: 43 % on 8,192 GPUs to 41 % on 16,384 (arXiv 2407.21783 table 4)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalingPair:
    """The same job on two numbers of GPUs."""

    small: MeasuredRow
    large: MeasuredRow

    @property
    def change_per_doubling(self) -> float:
        """Natural logarithm of the ratio of the throughput per GPU, for each doubling of the GPUs."""
        assert self.small.gpus
        assert self.large.gpus
        return math.log(self.large.tokens_per_s / self.small.tokens_per_s) / math.log2(
            self.large.gpus / self.small.gpus
        )


def scaling_pairs(rows: Iterable[MeasuredRow]) -> tuple[ScalingPair, ...]:
    """Return the pairs of neighboring numbers of GPUs."""
    jobs: dict[tuple[object, ...], list[MeasuredRow]] = {}
    for row in rows:
        small_batch = row.kind is MeasuredKind.BENCHMARK and row.parameters < SMALLEST_BENCHMARK
        if (
            row.gpus
            and row.gpus >= SMALLEST
            and row.active >= SMALLEST_MODEL
            and row.goal is SizingGoal.PRETRAIN
            and not small_batch
        ):
            key = (
                row.source.source,
                row.parameters,
                row.gpu,
                row.precision,
                row.sequence,
                row.kind,
                row.model,
            )
            jobs.setdefault(key, []).append(row)
    pairs = []
    for job in jobs.values():
        ordered = sorted(job, key=lambda row: row.gpus or 0)
        pairs += [ScalingPair(small=a, large=b) for a, b in pairwise(ordered) if a.gpus != b.gpus]
    return tuple(pairs)


def change_per_doubling(rows: Iterable[MeasuredRow]) -> float:
    """Return the median change of the logarithm of the throughput per GPU for each doubling. It is negative."""
    changes = [pair.change_per_doubling for pair in scaling_pairs(rows)]
    return statistics.median(changes) if changes else FALLBACK
