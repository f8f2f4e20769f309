"""The throughput of inference by the limits of the hardware. The table has no measured rows for it, so the range is wide and says so."""

from __future__ import annotations

import math

from gpuinfra.catalog.records import MachineType
from gpuinfra.sizing.devices import DEVICES
from gpuinfra.sizing.fit import FittedLayout
from gpuinfra.sizing.memory import cache_per_token
from gpuinfra.sizing.request import SizingRequest
from gpuinfra.sizing.throughput import FAR, NOTHING_NEAR, PredictedThroughput, range_of

BANDWIDTH = 0.6
"""Share of the memory bandwidth that decoding reaches (estimate)."""
COMPUTE = 0.4
"""Share of the peak that decoding in large batches reaches (estimate)."""


def predict_serving(request: SizingRequest, machine: MachineType, found: FittedLayout) -> PredictedThroughput:
    """Return the generated tokens per second of all replicas.

    Each token of a batch reads all weights once and its own cache: `b / ((W + b K c) / B)`, and needs `2 N` FLOPs. The smaller limit applies.
    Source: arXiv 2309.06180; W bytes of weights, K bytes of cache per token, c tokens of context (half of them on average), B bandwidth, b batch.
    """
    assert machine.gpu is not None
    device, layout, model = DEVICES[machine.gpu.key], found.layout, request.model
    replicas = layout.data
    batch = max(1, math.ceil(request.concurrency / replicas))
    # Of a mixture of experts, a small batch reads only the experts that it uses.
    used = min(model.parameters, model.active * batch)
    moved = request.weight_bits / 8 * used + batch * cache_per_token(model) * request.context / 2
    by_memory = batch / (moved / (device.memory_tb_s * 1e12 * layout.tensor * BANDWIDTH))
    by_compute = device.bf16_tflops * 1e12 * layout.tensor * COMPUTE / (2 * model.active)
    total = min(by_memory, by_compute) * replicas
    limit = "memory bandwidth" if by_memory < by_compute else "compute"
    why = (
        f"{replicas} replicas of {layout.tensor} GPUs, {batch} requests each; limited by {limit}: {device.source}",
        f"range: {NOTHING_NEAR} for inference; 60% of the bandwidth and 40% of the peak are estimates",
    )
    wide = range_of(total, FAR)
    return PredictedThroughput(tokens_per_s=wide, wall_tokens_per_s=wide, nearest=None, near=False, runs=0, why=why)
