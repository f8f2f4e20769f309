"""Checkpoints: their size, the storage that they need, how often to write them, and how much of the time failures cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpuinfra.sizing.devices import ARCHITECTURE
from gpuinfra.sizing.memory import RECIPES, Recipe
from gpuinfra.sizing.shape import ModelShape

BYTES_PER_GIB = 2**30
STALL_S = 60.0
"""Time in which a checkpoint is written while training waits."""
KEPT = 3
"""Checkpoints that stay in the file system. One more is being written, and one is a reserve."""
FULL = 0.8
"""Share of a file system that is reliably usable (stas00/ml-engineering:storage at 744d01e1)."""
BYTES_PER_TOKEN = 4
"""Bytes of a token in a prepared data set, as 32-bit integers."""
RESTART_S = 900.0
"""Detection of a failure, restart and reading of the checkpoint: 10 to 15 minutes (changlan.org/posts/optimal-checkpointing uses 10)."""
NOTHING_TO_SAVE_S = 1.0
STEP_GIB = 1200
"""Increment of capacity: the smallest Lustre file system of all three clouds is a multiple of it. The plan rounds up to the increment of the cloud."""
TIERS = (125, 250, 500, 1000)
"""MB/s for each TiB that Lustre offers on AWS and Google Cloud. Azure has 40, 125, 250 and 500."""


@dataclass(frozen=True, slots=True)
class FailureRate:
    """Published failures of nodes with eight GPUs."""

    per_1000_node_days: float
    source: str


FAILURES = {
    "ampere": FailureRate(6.5, "arXiv 2410.21680, RSC-1: 6.50 per 1,000 node-days"),
    "hopper": FailureRate(3.8, "arXiv 2407.21783 table 5: 419 unplanned interruptions of 2,048 nodes in 54 days"),
    "blackwell": FailureRate(2.9, "arXiv 2605.09370: 10 GPU failures of 63 nodes in 55 days"),
}
"""Family of GPUs -> failures. Early clusters fail more: OPT-175B lost about 2 of 128 nodes a day, 15.6 per 1,000 node-days."""
OTHER = FailureRate(6.5, "no published rate for this GPU: arXiv 2410.21680, RSC-1")


def failure_rate(gpu: str) -> FailureRate:
    """Return the published failure rate of a GPU's generation."""
    return FAILURES.get(ARCHITECTURE[gpu].removesuffix("-pcie"), OTHER)


def checkpoint_bytes(model: ModelShape, recipe: Recipe, trained: float | None = None) -> float:
    """Return the size of a checkpoint: weights and optimizer states without gradients.

    14 bytes per parameter with AdamW in mixed precision. BLOOM-176B: 2.3 TB, 13.05 bytes per parameter (stas00/ml-engineering:storage at 744d01e1).
    """
    parts = RECIPES[recipe]
    return (parts.weights + parts.optimizer) * (model.parameters if trained is None else trained)


def hours_between_failures(gpu: str, gpus: int) -> float:
    """Return the mean hours between failures of a job, `24 / (n r)` with n nodes of eight GPUs and r failures per node and day."""
    return 24_000.0 / (failure_rate(gpu).per_1000_node_days * gpus / 8)


def young_s(stall_s: float, between_s: float) -> float:
    """Return the interval between checkpoints in seconds, `sqrt(2 C M)`. Source: J. W. Young, Communications of the ACM 17(9), 1974."""
    return math.sqrt(2 * stall_s * between_s)


def daly_s(stall_s: float, between_s: float) -> float:
    """Return the interval between checkpoints in seconds by Daly's higher-order estimate.

    `sqrt(2 C M) (1 + sqrt(C / 2 M) / 3 + C / 18 M) - C` if C < 2 M, and otherwise M.
    Source: J. T. Daly, Future Generation Computer Systems 22(3), 2006, equation 37.
    """
    if stall_s >= 2 * between_s:
        return between_s
    ratio = stall_s / (2 * between_s)
    return math.sqrt(2 * stall_s * between_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - stall_s


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointPlan:
    """The checkpoints of a job and what failures cost."""

    size_bytes: float
    stall_s: float
    interval_s: float
    """By Daly."""
    young_s: float
    between_failures_h: float
    failures: float
    """Expected failures during the run."""
    goodput: float
    """Share of the time in which training progresses, 0 to 1."""
    source: str


def checkpoint_plan(
    size_bytes: float,
    gpu: str,
    gpus: int,
    days: float,
    bandwidth_gb_s: float | None = None,
    extra_per_hour: float = 0.0,
) -> CheckpointPlan:
    """Return the checkpoints of a job. `extra_per_hour` are interruptions in addition to failures, such as those of spot nodes.

    The lost share is `C / T + T / 2 M + R / M`: writes, half of an interval for each failure, and restarts (arXiv 2410.18124, first order).
    """
    stall = max(NOTHING_TO_SAVE_S, size_bytes / 1e9 / bandwidth_gb_s if bandwidth_gb_s else STALL_S)
    rate = 1 / hours_between_failures(gpu, gpus) + extra_per_hour
    between_s = 3600 / rate
    interval = max(daly_s(stall, between_s), stall)
    lost = stall / (interval + stall) + interval / (2 * between_s) + RESTART_S / between_s
    return CheckpointPlan(
        size_bytes=size_bytes,
        stall_s=stall,
        interval_s=interval,
        young_s=young_s(stall, between_s),
        between_failures_h=1 / rate,
        failures=rate * 24 * days,
        goodput=max(0.0, 1 - lost),
        source=failure_rate(gpu).source,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class StorageNeed:
    """The file system that a stack should declare."""

    capacity_gib: int
    throughput_mb_s_per_tib: int
    write_gb_s: float
    """Bandwidth to write a checkpoint in `STALL_S`."""
    background_gb_s: float
    """Bandwidth to write it within ten minutes while training continues (asynchronous checkpoints)."""
    data_bytes: float
    """Prepared data set, at 4 bytes per token."""
    why: str


MOST_DATA = 50e12
"""Larger data sets stay in object storage, which the file system links."""


def storage_need(size_bytes: float, tokens: float) -> StorageNeed:
    """Return the capacity for checkpoints and data, and the throughput to write a checkpoint in the background within ten minutes.

    Capacity `((kept + 2) S + D) / 0.8`. The throughput of a Lustre file system grows with its capacity.
    """
    data = tokens * BYTES_PER_TOKEN
    held = data if data <= MOST_DATA else 0.0
    gib = ((KEPT + 2) * size_bytes + held) / FULL / BYTES_PER_GIB
    background = size_bytes / 1e9 / 600
    capacity = max(1, math.ceil(gib / STEP_GIB)) * STEP_GIB
    tier = next((tier for tier in TIERS if capacity / 1024 * tier / 1000 >= background), TIERS[-1])
    least = background * 1000 / tier * 1024
    if capacity < least:
        capacity = math.ceil(least / STEP_GIB) * STEP_GIB
    why = (
        f"({KEPT} + 2) checkpoints of {size_bytes / 1e9:,.0f} GB"
        + (f" and {held / 1e12:.1f} TB of tokens" if held else "")
        + ", 80% full"
    )
    return StorageNeed(
        capacity_gib=capacity,
        throughput_mb_s_per_tib=tier,
        write_gb_s=size_bytes / 1e9 / STALL_S,
        background_gb_s=background,
        data_bytes=data,
        why=why,
    )
