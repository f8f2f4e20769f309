"""Energy of a job, and its emissions where a factor for the region is published."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpuinfra.sizing.devices import DEVICES
from gpuinfra.sizing.throughput import SizeRange

_FILE = Path(__file__).with_name("carbon.json")
NODE = 1.35
"""Power of a node relative to its GPUs: processors, memory, NICs and fans. A DGX H100 has 10.2 kW for eight GPUs of 700 W at most, 1.8; under
training, published measurements are nearer to 1.35 (NVIDIA DGX H100 data sheet; arXiv 2104.10350 table 4 includes them at 0.7 to 0.9 of TDP)."""
LOAD = (0.65, 0.8, 1.0)
"""Power of a GPU while training relative to its TDP: low, middle, high. Patterson et al. measured 330 W per V100 with its share of the host
(arXiv 2104.10350 table 4)."""
PUE = (1.1, 1.15, 1.25)
"""Overhead of the data center: 1.1 Google, 1.135 AWS and 1.185 Azure on average (cloud-carbon-footprint at b7a049c7)."""
UNCERTAIN = 0.2
"""A yearly average of the grid differs by about this share from the hours of a job."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EnergyUse:
    """Energy and emissions of a number of GPU-hours."""

    kwh: SizeRange
    co2_kg: SizeRange | None
    """None if no factor for the region is published."""
    source: str


@cache
def _content() -> Mapping[str, Any]:
    content: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return content


def energy(gpu: str, gpu_hours: float, cloud: str, region: str) -> EnergyUse:
    """Return the energy at the wall, `TDP x load x 1.35 x PUE`, and the emissions by the grid factor of the region."""
    kw = DEVICES[gpu].watts / 1000 * NODE * gpu_hours
    low, middle, high = (kw * load * pue for load, pue in zip(LOAD, PUE, strict=True))
    used = SizeRange(low=low, middle=middle, high=high)
    factor = _content()["regions"].get(cloud, {}).get(region)
    if factor is None:
        return EnergyUse(kwh=used, co2_kg=None, source=f"TDP of {gpu}: {DEVICES[gpu].source}")
    kg = factor / 1000
    co2 = SizeRange(low=low * kg * (1 - UNCERTAIN), middle=middle * kg, high=high * kg * (1 + UNCERTAIN))
    return EnergyUse(
        kwh=used,
        co2_kg=co2,
        source=f"TDP of {gpu}: {DEVICES[gpu].source}; {factor:g} g of CO2 per kWh: {_content()['sources'][cloud]}",
    )
