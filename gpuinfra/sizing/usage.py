"""Forecasts GPU-hours from a usage file with exponential smoothing, tests the interval on the end of the file, and compares commitments.

The model is the state-space form of exponential smoothing (ETS) of statsmodels, with a damped trend and the week as the season. Its interval is
widened until it holds the share of days that it promises, in a test on the last days of the file.
"""

from __future__ import annotations

import csv
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from gpuinfra.base.errors import EnvironmentMissing, UsageError
from gpuinfra.sizing.throughput import SizeRange

LEAST_DAYS = 28
"""Fewer days hold less than four weeks, from which no weekly pattern follows."""
MOST_ROWS = 20_000
WEEK = 7
SHARE = 0.8
"""Share of the days that the interval promises to hold."""
WIDEST = 8.0


@dataclass(frozen=True, kw_only=True, slots=True)
class UsageForecast:
    """GPU-hours of the next days."""

    start: date
    days: int
    per_day: SizeRange
    """Mean of the forecast days, with the interval of a single day."""
    total: SizeRange
    base_gpus: float
    """GPUs that run all day at the low end of the interval: the part of the usage that a commitment can cover."""
    tested_days: int
    held: float
    """Share of the tested days inside the interval, before it was widened."""
    widened: float
    """Factor by which the interval was widened. 1 if it held what it promises."""


def read_usage(path: Path) -> tuple[date, tuple[float, ...]]:
    """Return the first day and the GPU-hours of each day. Missing days are 0, and rows of one day are added. Raises `UsageError`."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [row for row, _ in zip(csv.reader(file), range(MOST_ROWS + 2), strict=False)]
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise UsageError(
            f"--usage {path} cannot be read: {type(problem).__name__}; specify a CSV file with the columns date,gpu_hours"
        ) from None
    if not rows or [cell.strip().lower() for cell in rows[0][:2]] != ["date", "gpu_hours"]:
        raise UsageError(f"--usage {path}: the first line must be date,gpu_hours; add it")
    if len(rows) > MOST_ROWS + 1:
        raise UsageError(f"--usage {path} has more than {MOST_ROWS:,} lines; sum the hours of each day")
    days: dict[date, float] = {}
    for number, row in enumerate(rows[1:], 2):
        if not row:
            continue
        try:
            day, hours = date.fromisoformat(row[0].strip()), float(row[1])
        except (ValueError, IndexError):
            raise UsageError(
                f"--usage {path}:{number} is {','.join(row)[:60]!r}; allowed: a date and GPU-hours, such as 2026-11-01,192"
            ) from None
        if not 0 <= hours < 1e9:
            raise UsageError(f"--usage {path}:{number}: gpu_hours is {hours:g}; allowed: 0 to 1,000,000,000")
        days[day] = days.get(day, 0.0) + hours
    first, last = min(days, default=date.min), max(days, default=date.min)
    count = (last - first).days + 1 if days else 0
    if count < LEAST_DAYS:
        raise UsageError(
            f"--usage {path} has {count} days; allowed: at least {LEAST_DAYS}; a shorter series has no weekly pattern to forecast"
        )
    if count > 3 * MOST_ROWS:
        raise UsageError(f"--usage {path} spans {count:,} days; check its dates")
    return first, tuple(days.get(first + timedelta(days=at), 0.0) for at in range(count))


def forecast(first: date, hours: Sequence[float], days: int = 90) -> UsageForecast:
    """Return the forecast for the next days. Raises `EnvironmentMissing` without statsmodels."""
    test = min(28, len(hours) // 4)
    low, _, high = _interval(hours[:-test], test)
    actual = hours[-test:]
    held = sum(a <= x <= b for a, x, b in zip(low, actual, high, strict=True)) / test
    widened = _widening(low, high, actual)
    low, middle, high = _interval(hours, days)
    wide = [
        (max(0.0, m - (m - a) * widened), max(0.0, m), m + (b - m) * widened)
        for a, m, b in zip(low, middle, high, strict=True)
    ]
    mean = SizeRange(
        low=_mean([one[0] for one in wide]),
        middle=_mean([one[1] for one in wide]),
        high=_mean([one[2] for one in wide]),
    )
    return UsageForecast(
        start=first + timedelta(days=len(hours)),
        days=days,
        per_day=mean,
        total=mean.scaled(days),
        base_gpus=mean.low / 24,
        tested_days=test,
        held=held,
        widened=widened,
    )


def _widening(low: Sequence[float], high: Sequence[float], actual: Sequence[float]) -> float:
    """Return the factor from 1 by which the interval must grow to hold the promised share of the days."""
    factor = 1.0
    while factor < WIDEST:
        inside = 0
        for a, b, x in zip(low, high, actual, strict=True):
            middle, half = (a + b) / 2, max(1e-9, (b - a) / 2 * factor)
            inside += abs(x - middle) <= half
        if inside / len(actual) >= SHARE:
            break
        factor *= 1.1
    return factor


def _interval(hours: Sequence[float], days: int) -> tuple[list[float], list[float], list[float]]:
    """Return the low end, the mean and the high end of each forecast day."""
    try:
        from statsmodels.tsa.exponential_smoothing.ets import ETSModel
    except ImportError:
        raise EnvironmentMissing(
            "--usage needs statsmodels; install it with: pip install 'gpuinfra[forecast]'"
        ) from None
    import pandas as pd

    series = pd.Series([float(value) for value in hours])
    if math.isclose(float(series.std()), 0.0, abs_tol=1e-9):
        constant = [float(series[0])] * days
        return constant, constant, constant
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ETSModel(series, error="add", trend="add", damped_trend=True, seasonal="add", seasonal_periods=WEEK)
        fitted = model.fit(disp=False, maxiter=300)
        frame = fitted.get_prediction(start=len(series), end=len(series) + days - 1).summary_frame(alpha=1 - SHARE)
    return frame["pi_lower"].tolist(), frame["mean"].tolist(), frame["pi_upper"].tolist()


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
