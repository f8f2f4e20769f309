"""Sizes jobs: from a model to machines, time, price, checkpoints and storage. Pure decisions without a cloud SDK.

`size(SizingRequest(model=model_of("llama-2-13b"), tokens=2e12, days=90), today)` returns the candidates and the advice that `gpuinfra size` shows.

| module | decides |
| --- | --- |
| `shape` | layers, widths and parameters of a model |
| `memory`, `fit` | memory on each GPU, and the parallel layout that fits |
| `measured`, `scale`, `throughput` | the table of measured rows, the loss with the number of GPUs, and the interpolation |
| `serving` | throughput of inference |
| `candidates`, `advice` | the search over machines, numbers and kinds of capacity, and what to choose |
| `checkpoints`, `energy` | checkpoints, storage, failures, energy and emissions |
| `planned`, `declare` | the forecast of a declared workload, and the declaration of a candidate |
| `usage` | the forecast of GPU-hours from a file |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinfra.base.lazy import lazy_exports

if TYPE_CHECKING:
    from gpuinfra.sizing.advice import SizingAnswer as SizingAnswer
    from gpuinfra.sizing.advice import size as size
    from gpuinfra.sizing.candidates import SizedCandidate as SizedCandidate
    from gpuinfra.sizing.devices import Precision as Precision
    from gpuinfra.sizing.measured import SizingGoal as SizingGoal
    from gpuinfra.sizing.memory import Recipe as Recipe
    from gpuinfra.sizing.memory import Recompute as Recompute
    from gpuinfra.sizing.request import SizingRequest as SizingRequest
    from gpuinfra.sizing.shape import ModelShape as ModelShape
    from gpuinfra.sizing.shape import model_of as model_of

__getattr__, __all__ = lazy_exports(__name__, __file__)
