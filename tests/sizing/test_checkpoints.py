"""Checkpoint sizes, intervals and failures agree with published figures."""

from __future__ import annotations

import pytest

from gpuinfra.sizing.candidates import spot_rate
from gpuinfra.sizing.checkpoints import (
    checkpoint_bytes,
    checkpoint_plan,
    daly_s,
    hours_between_failures,
    storage_need,
    young_s,
)
from gpuinfra.sizing.memory import Recipe
from gpuinfra.sizing.shape import model_of


@pytest.mark.parametrize(
    ("name", "gigabytes"), [("llama-3.1-8b", 112), ("llama-3.1-70b", 988), ("llama-3.1-405b", 5682)]
)
def test_a_checkpoint_has_fourteen_bytes_per_parameter(name: str, gigabytes: float) -> None:
    """BF16 weights, an FP32 copy and two moments."""
    assert checkpoint_bytes(model_of(name), Recipe.ADAMW) / 1e9 == pytest.approx(gigabytes, rel=0.01)


def test_bloom_saved_about_as_much() -> None:
    """BLOOM-176B saved 2.3 TB (stas00/ml-engineering)."""
    assert checkpoint_bytes(model_of("bloom-176b"), Recipe.ADAMW) == pytest.approx(2.3e12, rel=0.1)


@pytest.mark.parametrize(
    ("gpu", "gpus", "hours"),
    [("H100", 16384, 3.09), ("A100-80GB", 16384, 1.80), ("B200", 504, 132)],
    ids=["Llama 3", "RSC-1", "Lablup"],
)
def test_hours_between_failures_are_the_published_ones(gpu: str, gpus: int, hours: float) -> None:
    """The rates per node and day give the mean time between failures that their sources print."""
    assert hours_between_failures(gpu, gpus) == pytest.approx(hours, rel=0.01)


@pytest.mark.parametrize(("nodes", "stall", "minutes"), [(16, 60, 218), (128, 60, 77), (128, 5, 22), (2048, 60, 19)])
def test_young_gives_the_interval(nodes: int, stall: float, minutes: float) -> None:
    """The interval is sqrt(2 C M), in minutes for 3.8 failures per 1,000 nodes and day."""
    assert young_s(stall, hours_between_failures("H100", nodes * 8) * 3600) / 60 == pytest.approx(minutes, rel=0.03)


def test_daly_is_near_young_for_rare_failures() -> None:
    """The higher-order terms vanish if failures are much rarer than checkpoints."""
    assert daly_s(1, 1e8) == pytest.approx(young_s(1, 1e8), rel=0.001)


def test_daly_adds_the_higher_order_terms() -> None:
    """A stall of a minute and a failure per hour give 617.9 seconds, by hand from equation 37."""
    assert daly_s(60, 3600) == pytest.approx(617.87, abs=0.05)


def test_daly_saves_once_per_failure_if_saving_takes_longer() -> None:
    """If a checkpoint takes twice the time between failures, the interval is that time."""
    assert daly_s(200, 100) == 100


def test_llama_3_keeps_nine_tenths_of_the_time() -> None:
    """Llama 3 kept more than 90 percent of the time on 16,384 GPUs with checkpoints of seconds (arXiv 2407.21783 section 3.3.4)."""
    size = checkpoint_bytes(model_of("llama-3.1-405b"), Recipe.ADAMW)
    assert 0.85 < checkpoint_plan(size, "H100", 16384, 54, bandwidth_gb_s=2000).goodput < 0.97


def test_olmo_kept_97_percent_on_64_nodes() -> None:
    """64 B200 nodes were active for 97 percent of the time."""
    assert checkpoint_plan(100e9, "B200", 512, 6.19).goodput == pytest.approx(0.97, abs=0.02)


def test_spot_nodes_fail_more() -> None:
    """Interruptions of spot nodes are added to failures."""
    steady, spot = (
        checkpoint_plan(100e9, "H100", 128, 10, extra_per_hour=rate) for rate in (0.0, 16 * spot_rate("p5.48xlarge"))
    )
    assert spot.failures > steady.failures
    assert spot.goodput < steady.goodput


@pytest.mark.parametrize("size", [1e9, 182e9, 1e12, 6e12])
def test_the_file_system_takes_a_checkpoint_in_ten_minutes(size: float) -> None:
    """Capacity and throughput together write a checkpoint within ten minutes, and hold five of them."""
    need = storage_need(size, 0)
    assert need.capacity_gib / 1024 * need.throughput_mb_s_per_tib * 1e6 * 600 >= size
    assert need.capacity_gib * 2**30 * 0.8 >= 5 * size
