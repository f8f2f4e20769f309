"""Formats the forecast of a declared workload for the plan as text and as a page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuinfra.sizing.planned import WorkloadForecast
    from gpuinfra.sizing.throughput import SizeRange

NOT_NEAR = "no published measurement near, so the range is wide"


def workload_fields(forecast: WorkloadForecast) -> Iterator[tuple[str, str]]:
    """Yield labels and sentences: throughput, time, price, energy and emissions."""
    near = "" if forecast.near else f"; {NOT_NEAR}"
    memory = (
        f"{forecast.memory_gb:,.0f} of {forecast.of_gb:,.0f} GB per GPU"
        if forecast.fits
        else f"does not fit: {forecast.memory_gb:,.0f} GB per GPU with {forecast.of_gb:,.0f}"
    )
    yield (
        "workload",
        f"{forecast.model}, {forecast.goal}, on {forecast.gpus:,} GPUs of {forecast.pool}: {memory} ({forecast.layout})",
    )
    yield "tokens", f"{_range(forecast.tokens_per_day.scaled(1e-9))} billion a day by wall time{near}"
    if forecast.days:
        yield "days", f"{_range(forecast.days)} for the declared tokens"
    if forecast.usd_per_billion_tokens:
        yield "tokens", f"{_range(forecast.usd_per_billion_tokens)} USD per billion tokens"
    used = forecast.energy_per_day
    co2 = (
        f", {_range(used.co2_kg.scaled(1e-3))} t of CO2" if used.co2_kg else ", no published CO2 factor for the region"
    )
    yield "energy", f"{_range(used.kwh.scaled(1e-3))} MWh a day{co2}"


def _range(value: SizeRange) -> str:
    digits = 0 if value.middle >= 100 else 1 if value.middle >= 1 else 3
    return f"{value.low:,.{digits}f} to {value.high:,.{digits}f} (middle {value.middle:,.{digits}f})"
