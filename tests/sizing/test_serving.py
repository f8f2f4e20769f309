"""The throughput of inference against decode times that NVIDIA measured and interpolated."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path

import pytest

from gpuinfra.sizing import serving
from gpuinfra.sizing.serving import COMPARED, NEAR_DECODE, decode_s
from gpuinfra.sizing.shape import model_of

TIMES = json.loads(Path(__file__).with_name("decode_times.json").read_text())
CACHED = TIMES["prompt"] + TIMES["answer"] / 2


def ratios(gpu: str | None = None) -> list[float]:
    """Predicted by recorded time, of one GPU or of all."""
    return [
        decode_s(model_of(model), row_gpu, tensor=tensor, batch=batch, cached=CACHED) / (milliseconds / 1e3)
        for row_gpu, model, tensor, batch, milliseconds in TIMES["rows"]
        if gpu in (None, row_gpu)
    ]


def test_the_range_contains_the_recorded_decode_times() -> None:
    """At least 95 percent of the times are in the range, and the median is not biased."""
    every = sorted(ratios())
    low, high = 2.718281828**-NEAR_DECODE, 2.718281828**NEAR_DECODE
    assert sum(low <= ratio <= high for ratio in every) >= 0.95 * len(every)
    assert 0.9 <= statistics.median(every) <= 1.1


@pytest.mark.parametrize("gpu", sorted(COMPARED))
def test_no_gpu_is_biased(gpu: str) -> None:
    """Each GPU with a narrow range has recorded times, and their median is near."""
    assert 0.75 <= statistics.median(ratios(gpu)) <= 1.33


def error(layer_s: float, bandwidth: float) -> float:
    """The mean error of the recorded times with other constants."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serving, "LAYER_S", layer_s)
        patch.setattr(serving, "BANDWIDTH", bandwidth)
        return statistics.mean(abs(math.log(ratio)) for ratio in ratios())


def test_the_constants_fit_the_recorded_times() -> None:
    """Other values of the constants have a larger error."""
    best = error(serving.LAYER_S, serving.BANDWIDTH)
    assert best < 0.13
    assert all(error(serving.LAYER_S * factor, serving.BANDWIDTH) > best for factor in (0.5, 1.5))
    assert all(error(serving.LAYER_S, serving.BANDWIDTH * factor) > best for factor in (0.9, 1.1))
