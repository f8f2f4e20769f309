"""Predictions agree with published runs, each predicted without the rows of its source."""

from __future__ import annotations

import statistics

import pytest

from gpuinfra.sizing.fit import fitted
from gpuinfra.sizing.measured import MeasuredKind, measured_rows
from gpuinfra.sizing.request import SizingRequest
from gpuinfra.sizing.throughput import leave_out
from tests.sizing.published import of_kind, predicted, shape_of, typical, within

RUNS = [predicted(record) for record in of_kind("pretrain")]
MLPERF = [predicted(record) for record in of_kind("mlperf_pretrain", "mlperf_lora")]
TABLE = leave_out(row for row in measured_rows() if row.kind is MeasuredKind.RUN)


def test_the_days_of_half_of_the_runs_are_within_a_quarter() -> None:
    """The median error of the days of the published runs is at most a factor of 1.25."""
    assert typical([run.ratio for run in RUNS]) <= 1.25


@pytest.mark.parametrize(("factor", "share"), [(1.5, 0.8), (2.0, 0.95)], ids=["1.5", "2"])
def test_the_days_of_most_runs_are_within_a_factor(factor: float, share: float) -> None:
    """80 percent of the runs are within a factor of 1.5, and 95 percent within 2."""
    assert within([run.ratio for run in RUNS], factor) >= share


def test_the_days_are_not_promised_too_short() -> None:
    """The median of predicted relative to published days is near 1: step times alone would promise too few days."""
    assert 0.85 <= statistics.median(run.ratio for run in RUNS) <= 1.2


def test_the_printed_range_holds_the_runs() -> None:
    """The range of the days holds 80 percent of the runs."""
    assert statistics.fmean(run.inside for run in RUNS) >= 0.8


@pytest.mark.parametrize("run", RUNS, ids=[run.name for run in RUNS])
def test_the_printed_range_is_narrow(run: object) -> None:
    """The high end of the range is at most 2.5 times the low end."""
    rate = run.predicted.wall_tokens_per_s  # type: ignore[attr-defined]
    assert rate.high / rate.low <= 2.5


def test_the_throughput_of_mlperf_results_is_within_a_third() -> None:
    """The throughput of 70 percent of the MLPerf results is within a factor of 1.35."""
    assert within([run.throughput_ratio for run in MLPERF], 1.35) >= 0.7


def test_the_whole_runs_of_the_table_meet_the_same_limits() -> None:
    """The rows of the table, each without its source, meet the limits of the published runs."""
    ratios = [one.ratio for one in TABLE]
    assert typical(ratios) <= 1.25
    assert within(ratios, 1.5) >= 0.8
    assert within(ratios, 2.0) >= 0.95
    assert 0.85 <= statistics.median(ratios) <= 1.2


@pytest.mark.parametrize(
    "record",
    [one for one in of_kind("pretrain", "mlperf_pretrain") if one.get("gpu_count")],
    ids=lambda record: record["name"],
)
def test_each_published_count_fits_in_memory(record: dict[str, float]) -> None:
    """A model that was trained on a number of GPUs fits in their memory."""
    request = SizingRequest(
        model=shape_of(record), tokens=record["tokens"], sequence=int(record.get("seq_len_tokens") or 4096)
    )
    assert fitted(request, int(record["gpu_count"]), 8, record["gpu_memory_gb"] * 1e9).fits
