"""Rules about a declared workload: a known model, memory, precision, fabric, time and storage for checkpoints.

The sizing modules are imported only for a stack that declares a workload.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import TYPE_CHECKING

from gpuinfra.base.errors import UsageError
from gpuinfra.base.findings import Finding, error, warn
from gpuinfra.catalog.records import MachineType
from gpuinfra.plan.machines import pools_of
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.pool import Pool
from gpuinfra.spec.rule import rules_in
from gpuinfra.spec.shown import shown
from gpuinfra.spec.storage import Lustre

if TYPE_CHECKING:
    from gpuinfra.sizing.shape import ModelShape
    from gpuinfra.spec.workload import Workload


def workload_model_is_known(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The model of the workload is a known name or a number of parameters."""
    if spec.workload is None:
        return
    if _model(spec.workload) is None:
        from difflib import get_close_matches

        from gpuinfra.sizing.shape import known_models

        near = get_close_matches(spec.workload.model.lower(), known_models(), n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else "use a name of `gpuinfra size --list-models`"
        what = f"is {shown(spec.workload.model)}; allowed: a known model, or parameters such as 13B or 30B-A3B"
        yield error("workload.model", what, hint)


def workload_runs_on_gpus(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A stack with a workload has a pool with GPUs, so that the plan can show what it does."""
    if (
        spec.workload is not None
        and not any(machine.gpu for _, _, machine in pools_of(spec))
        and len(tuple(pools_of(spec))) == len(spec.pools)
    ):
        yield warn("workload", "has no effect, because no pool has GPUs", "add a pool with GPUs, or remove workload")


def workload_precision_is_supported(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The GPUs of the largest pool support the declared precision."""
    largest = _largest(spec)
    if spec.workload is None or spec.workload.precision is None or largest is None:
        return
    from gpuinfra.sizing.devices import DEVICES, Precision

    _, _, machine = largest
    assert machine.gpu is not None
    if not DEVICES[machine.gpu.key].supports(Precision(spec.workload.precision)):
        yield error(
            "workload.precision", f"is {spec.workload.precision}, which {machine.gpu.key} does not support", "use bf16"
        )


def workload_fits_in_memory(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The weights, gradients, optimizer states and activations of the workload fit in the GPUs of the largest pool."""
    largest = _largest(spec)
    if spec.workload is None or largest is None or _model(spec.workload) is None:
        return
    from gpuinfra.sizing.planned import fit_on

    path, pool, machine = largest
    nodes = _nodes(pool)
    layout, least = fit_on(spec.workload, machine, nodes)
    if not layout.fits:
        needed = f"{layout.need.total / 1e9:,.0f} GB on each GPU of {nodes} x {machine.name}"
        what = f"is {spec.workload.model}, which needs {needed}, of {layout.memory / 1e9:,.0f} GB"
        hint = (
            f"use at least {least} nodes in {path}"
            if least
            else "use a machine type with more memory, or a recipe with fewer bytes"
        )
        yield error("workload.model", what, hint)


def workload_nodes_have_fabric(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Training on several nodes uses machines with a fabric of at least 400 Gbit/s, from which published measurements exist."""
    largest = _largest(spec)
    if spec.workload is None or largest is None:
        return
    from gpuinfra.sizing.candidates import has_fabric

    path, pool, machine = largest
    if _nodes(pool) > 1 and not has_fabric(machine):
        gbps = f"a fabric of {machine.fabric.gbps:g} Gbit/s" if machine.fabric else "no fabric"
        hint = "use one node, or a machine type with RDMA, which `gpuinfra catalog` lists"
        yield warn(
            f"{path}.machine",
            f"is {machine.name}, which has {gbps} for {spec.workload.model} on {_nodes(pool)} nodes",
            hint,
        )


def duration_covers_workload(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The planned lifetime is at least the low end of the time that the workload needs."""
    largest = _largest(spec)
    workload = spec.workload
    if workload is None or workload.tokens_billion is None or spec.duration_hours is None or largest is None:
        return
    if _model(workload) is None or any(_wrong(spec)):
        return
    from gpuinfra.sizing.candidates import question_of
    from gpuinfra.sizing.planned import request_of
    from gpuinfra.sizing.throughput import predict

    _, pool, machine = largest
    rate = predict(question_of(request_of(workload), machine, _nodes(pool)))
    hours = workload.tokens_billion * 1e9 / rate.wall_tokens_per_s.high / 3600
    if spec.duration_hours < hours:
        what = f"is {spec.duration_hours}, but {workload.model} on {workload.tokens_billion:g} billion tokens needs at least {hours:,.0f} hours"
        yield warn("duration_hours", what, "raise duration_hours, add nodes, or train on fewer tokens")


def storage_holds_checkpoints(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A created Lustre file system holds five checkpoints of the workload, and a workload on spot nodes has storage for checkpoints."""
    workload = spec.workload
    if workload is None or _model(workload) is None or _largest(spec) is None:
        return
    from gpuinfra.sizing.checkpoints import FULL, KEPT, checkpoint_bytes
    from gpuinfra.sizing.planned import request_of

    request = request_of(workload)
    trained = request.model.lora_parameters(request.rank) if request.goal.is_adapter else None
    size = checkpoint_bytes(request.model, request.recipe, trained)
    need = (KEPT + 2) * size / FULL / 2**30
    for i, entry in enumerate(spec.storage):
        # With several file systems, it is not known which one gets the checkpoints.
        size_gib = entry.capacity_gib if isinstance(entry, Lustre) and len(spec.storage) == 1 else None
        if size_gib and size_gib < need:
            what = f"is {size_gib}, but five checkpoints of {workload.model} need {need:,.0f} GiB"
            yield warn(f"storage[{i}].capacity_gib", what, f"use at least {need:,.0f}")
    if (
        not spec.storage
        and "site" in spec.made_layers
        and any(entry.kind == "spot" for pool in spec.pools for entry in pool.capacity)
    ):
        yield warn(
            "storage",
            f"is empty, but the nodes are spot nodes, which lose {workload.model} when they are reclaimed",
            "add a Lustre file system for checkpoints",
        )


def _model(workload: Workload) -> ModelShape | None:
    from pathlib import Path

    from gpuinfra.sizing.shape import model_of

    if Path(workload.model).exists():
        return None
    try:
        return model_of(workload.model)
    except UsageError:
        return None


def _largest(spec: ClusterSpec) -> tuple[str, Pool, MachineType] | None:
    """Return the pool with the most GPUs whose rates are known, as in the plan."""
    from gpuinfra.sizing.devices import DEVICES

    pools = [
        (path, pool, machine)
        for path, pool, machine in pools_of(spec)
        if machine.gpu and machine.gpu.key in DEVICES and _nodes(pool)
    ]
    return max(pools, key=lambda one: one[2].gpus * _nodes(one[1]), default=None)


def _nodes(pool: Pool) -> int:
    return sum(entry.count for entry in pool.capacity)


def _wrong(spec: ClusterSpec) -> Iterator[Finding]:
    yield from workload_precision_is_supported(spec, date.min)
    yield from workload_fits_in_memory(spec, date.min)


RULES = rules_in(vars())
