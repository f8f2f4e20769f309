"""The output of `gpuinfra size --usage`: a forecast of GPU-hours, compared with the commitments of a machine type."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from gpuinfra.sizing.commitments import CommittedUsage
    from gpuinfra.sizing.usage import UsageForecast

SCHEMA = "gpuinfra.usage/1"


def show(path: Path, machine: str | None, gpu: str | None, as_json: bool) -> int:
    """Print the forecast of a usage file and the commitments that it pays for."""
    from gpuinfra.sizing.commitments import committed
    from gpuinfra.sizing.usage import forecast, read_usage

    first, hours = read_usage(path)
    forecasted = forecast(first, hours)
    rows = committed(forecasted, machine, gpu)
    if as_json:
        click.echo(json.dumps(_as_dict(forecasted, rows), indent=2))
        return 0
    from gpuinfra.report.tables import Column, Table, text

    day, total = forecasted.per_day, forecasted.total
    click.echo(f"{len(hours)} days from {first}; forecast for {forecasted.days} days from {forecasted.start}")
    click.echo(
        f"GPU-hours a day: {day.low:,.0f} to {day.high:,.0f} (middle {day.middle:,.0f}); "
        f"in total {total.low:,.0f} to {total.high:,.0f} (middle {total.middle:,.0f})"
    )
    wide = f", so it was widened {forecasted.widened:.1f} times" if forecasted.widened > 1 else ""
    click.echo(
        f"80% interval; in a test on the last {forecasted.tested_days} days, it held {forecasted.held:.0%} of them{wide}"
    )
    click.echo(f"always running at the low end: {forecasted.base_gpus:,.1f} GPUs")
    columns = [
        "machine",
        "region",
        "commitment",
        Column("break-even", right=True),
        Column("nodes", right=True),
        Column("saved USD/month", right=True),
        Column("advice", wrap=True),
    ]
    cells = [
        (row.machine, row.region, row.way, f"{row.share:.0%}", row.nodes, f"{row.saved_usd_per_month:,.0f}", row.text)
        for row in rows
    ]
    if cells:
        click.echo("\n".join(text(Table(columns, cells))))
    else:
        click.echo("no commitment with a known price; use --machine or --gpu to select one")
    return 0


def _as_dict(forecasted: UsageForecast, rows: tuple[CommittedUsage, ...]) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "start": forecasted.start.isoformat(),
        "days": forecasted.days,
        "gpu_hours_per_day": {
            "low": forecasted.per_day.low,
            "middle": forecasted.per_day.middle,
            "high": forecasted.per_day.high,
        },
        "gpu_hours": {"low": forecasted.total.low, "middle": forecasted.total.middle, "high": forecasted.total.high},
        "base_gpus": forecasted.base_gpus,
        "tested_days": forecasted.tested_days,
        "held": forecasted.held,
        "widened": forecasted.widened,
        "commitments": [asdict(row) for row in rows],
    }
