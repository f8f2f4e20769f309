"""The forecast of a usage file: reading, interval and commitments. The forecast itself needs statsmodels."""

from __future__ import annotations

import math
from datetime import date, timedelta
from importlib.util import find_spec
from pathlib import Path

import pytest

from gpuinfra.base.errors import UsageError
from gpuinfra.sizing.commitments import committed
from gpuinfra.sizing.throughput import SizeRange
from gpuinfra.sizing.usage import UsageForecast, forecast, read_usage

with_statsmodels = pytest.mark.skipif(find_spec("statsmodels") is None, reason="statsmodels is not installed")
FIRST = date(2026, 6, 1)


def usage(path: Path, hours: list[float]) -> Path:
    """A usage file with one line for each day."""
    lines = [f"{FIRST + timedelta(days=at)},{value:g}" for at, value in enumerate(hours)]
    path.write_text("\n".join(["date,gpu_hours", *lines]) + "\n")
    return path


def weekly(days: int) -> list[float]:
    """Usage that is lower on two of seven days, with a small wave."""
    return [900 - (300 if at % 7 > 4 else 0) + 40 * math.sin(at * 1.7) for at in range(days)]


def test_the_hours_of_a_day_are_added(tmp_path: Path) -> None:
    """Two lines of one day are one day, and missing days have no hours."""
    path = usage(tmp_path / "usage.csv", [8.0] * 40)
    path.write_text(path.read_text() + f"{FIRST},2\n{FIRST + timedelta(days=41)},5\n")
    first, hours = read_usage(path)
    assert (first, hours[0], hours[40], hours[41]) == (FIRST, 10.0, 0.0, 5.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "first line must be date,gpu_hours"),
        ("day,hours\n", "first line must be date,gpu_hours"),
        ("date,gpu_hours\n2026-06-01,5\n", "has 1 days; allowed: at least 28"),
        ("date,gpu_hours\nyesterday,5\n", ":2 is 'yesterday,5'"),
        ("date,gpu_hours\n2026-06-01,-5\n", "gpu_hours is -5"),
        ("date,gpu_hours\n2026-06-01,nan\n", "gpu_hours is nan"),
    ],
    ids=["empty", "header", "short", "date", "negative", "nan"],
)
def test_a_wrong_file_gives_one_error(tmp_path: Path, text: str, words: str) -> None:
    """The error names the line and what is allowed."""
    path = tmp_path / "usage.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        read_usage(path)


@with_statsmodels
def test_the_forecast_continues_the_week() -> None:
    """The mean of the forecast days is the mean of the weeks, and the interval holds it."""
    found = forecast(FIRST, weekly(140))
    assert found.per_day.middle == pytest.approx(814, rel=0.1)
    assert found.per_day.low < 814 < found.per_day.high


@with_statsmodels
def test_a_constant_usage_is_forecast_exactly() -> None:
    """Without variation, the interval is one number."""
    assert forecast(FIRST, [240.0] * 60).base_gpus == pytest.approx(10)


@with_statsmodels
def test_a_break_in_the_usage_widens_the_interval() -> None:
    """If the last days are outside of the interval, the interval grows."""
    assert forecast(FIRST, [*weekly(112), *[value * 3 for value in weekly(28)]]).widened > 1


def test_commitments_cover_what_always_runs() -> None:
    """38 GPUs at the low end are four machines of eight."""
    day = SizeRange(low=920, middle=1128, high=1336)
    known = UsageForecast(
        start=FIRST, days=90, per_day=day, total=day.scaled(90), base_gpus=38.3, tested_days=28, held=0.86, widened=1.0
    )
    rows = committed(known, None, "H100")
    assert rows
    assert all(row.nodes == 4 and row.saved_usd_per_month > 0 for row in rows)


def test_a_commitment_for_an_unknown_gpu_is_refused() -> None:
    """The error lists the GPUs."""
    day = SizeRange(low=1, middle=1, high=1)
    known = UsageForecast(
        start=FIRST, days=90, per_day=day, total=day, base_gpus=1, tested_days=28, held=1.0, widened=1.0
    )
    with pytest.raises(UsageError, match="--gpu is 'H1'"):
        committed(known, None, "H1")
