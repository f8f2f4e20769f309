"""Compares a forecast of GPU-hours with the commitments in the price data."""

from __future__ import annotations

from dataclasses import dataclass

from gpuinfra.base.errors import UsageError
from gpuinfra.base.registry import CLOUDS
from gpuinfra.catalog.records import CapacityKind
from gpuinfra.cost.compare import break_even_share
from gpuinfra.cost.model import HOURS_PER_MONTH
from gpuinfra.plan.profile import profile_of
from gpuinfra.sizing.devices import DEVICES
from gpuinfra.sizing.usage import UsageForecast


@dataclass(frozen=True, kw_only=True, slots=True)
class CommittedUsage:
    """A commitment for the part of the usage that always runs."""

    machine: str
    region: str
    way: str
    share: float
    """Share of the committed hours above which it is cheaper than on-demand."""
    nodes: int
    """Nodes to commit to: those that run all day at the low end of the forecast."""
    saved_usd_per_month: float
    text: str


def committed(forecast: UsageForecast, machine: str | None, gpu: str | None) -> tuple[CommittedUsage, ...]:
    """Return the commitments of the machine types with a GPU, the largest saving first. Raises `UsageError` for an unknown machine type or GPU."""
    rows, is_priced = [], False
    for cloud in CLOUDS:
        for record in profile_of(cloud).machines.values():
            if record.gpu is None or machine not in (None, record.name) or gpu not in (None, record.gpu.key):
                continue
            is_priced = True
            for price in record.prices:
                usual = record.price(CapacityKind.ON_DEMAND, price.region)
                if not price.term or usual is None:
                    continue
                share = break_even_share(price.usd_per_hour, usual.usd_per_hour)
                nodes = int(forecast.base_gpus // record.gpus)
                saved = nodes * HOURS_PER_MONTH * (usual.usd_per_hour - price.usd_per_hour)
                text = (
                    f"commit to {nodes}; the usage above it stays on demand or spot"
                    if nodes
                    else f"commit to none: {record.gpus} GPUs do not run all day at the low end"
                )
                rows.append(
                    CommittedUsage(
                        machine=record.name,
                        region=price.region,
                        way=f"{price.kind.value.replace('_', '-')} {price.term}",
                        share=share,
                        nodes=nodes,
                        saved_usd_per_month=saved,
                        text=text,
                    )
                )
    if not is_priced:
        given = f"--machine is {machine[:40]!r}" if machine else f"--gpu is {(gpu or '')[:40]!r}"
        raise UsageError(
            f"{given}; allowed: a machine type with GPUs, or one of {', '.join(DEVICES)}; `gpuinfra catalog` lists the machine types"
        )
    return tuple(sorted(rows, key=lambda row: (-row.saved_usd_per_month, row.share, row.machine)))
