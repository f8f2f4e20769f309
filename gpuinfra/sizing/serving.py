"""The throughput of inference by the limits of the hardware, compared with the decode times of NVIDIA's aiconfigurator."""

from __future__ import annotations

import math

from gpuinfra.catalog.records import MachineType
from gpuinfra.sizing.devices import DEVICES
from gpuinfra.sizing.fit import FittedLayout
from gpuinfra.sizing.memory import cache_per_token
from gpuinfra.sizing.request import SizingRequest
from gpuinfra.sizing.shape import ModelShape
from gpuinfra.sizing.throughput import FAR, NOTHING_NEAR, PredictedThroughput, range_of

BANDWIDTH = 0.78
"""Share of the memory bandwidth that decoding reaches. With `LAYER_S` and `GPU_S`, it has the smallest mean error against the times in
`tests/sizing/decode_times.json`: decode times of aiconfigurator-core 0.12.0 (PyPI, NVIDIA, Apache-2.0), whose database was measured with vLLM on
these GPUs, retrieved 2026-11-29."""
LAYER_S, GPU_S = 32e-6, 3e-6
"""Seconds of each layer for its kernels and collectives: a constant, and more for each GPU of the tensor-parallel group."""
COMPUTE = 0.6
"""Share of the peak that decoding in large batches reaches (estimate; the recorded times are limited by the memory)."""
COMPARED = frozenset({"A100-80GB", "H100", "H200", "B200", "L40S"})
"""GPUs with decode times in that file."""
NEAR_DECODE = math.log(1.5)
"""Half of the width of the range on these GPUs, as a logarithm. 95 percent of the decode times are inside."""


def decode_s(model: ModelShape, gpu: str, *, tensor: int, batch: int, cached: float, weight_bits: float = 16) -> float:
    """Return the seconds in which each request of a batch gets one token. `cached` is the number of tokens in the cache of a request.

    A step reads all weights and the cache of each request, and needs `2 N` FLOPs per token; the slower of both applies (arXiv 2309.06180). The
    kernels and collectives of each layer add their latency.
    Of a mixture of experts, a batch reads the experts that it uses: the share `1 - (1 - a)^b` if tokens choose the share `a` independently.
    """
    device = DEVICES[gpu]
    used = model.parameters * (1 - (1 - min(1.0, model.active / model.parameters)) ** batch)
    moved = weight_bits / 8 * used + batch * cache_per_token(model) * cached
    by_memory = moved / (device.memory_tb_s * 1e12 * tensor * BANDWIDTH)
    by_compute = batch * 2 * model.active / (device.bf16_tflops * 1e12 * tensor * COMPUTE)
    return max(by_memory, by_compute) + model.layers * (LAYER_S + tensor * GPU_S)


def predict_serving(request: SizingRequest, machine: MachineType, fitted_layout: FittedLayout) -> PredictedThroughput:
    """Return the generated tokens per second of all replicas while they decode, with half of the context in the cache. Prompts take extra time."""
    assert machine.gpu is not None
    gpu, layout, model = machine.gpu.key, fitted_layout.layout, request.model
    batch = max(1, math.ceil(request.concurrency / layout.data))
    step = decode_s(
        model, gpu, tensor=layout.tensor, batch=batch, cached=request.context / 2, weight_bits=request.weight_bits
    )
    near = gpu in COMPARED
    why = (
        f"{layout.data} replicas of {layout.tensor} GPUs, {batch} requests each, one token in {step * 1e3:.3g} ms: {DEVICES[gpu].source}",
        "range: 95% of the decode times of aiconfigurator-core 0.12.0 are inside; 78% of the memory bandwidth and 32 to 56 us per layer fit them best"
        if near
        else f"range: {NOTHING_NEAR} for inference on {gpu}; 78% of the bandwidth and 60% of the peak are estimates",
    )
    rate = range_of(layout.data * batch / step, NEAR_DECODE if near else FAR)
    return PredictedThroughput(tokens_per_s=rate, wall_tokens_per_s=rate, nearest=None, near=near, runs=0, why=why)
