"""Finds the parallel layout of a job that fits in the memory of a machine, and the smallest number of nodes that has one."""

from __future__ import annotations

from dataclasses import dataclass

from gpuinfra.catalog.records import MachineType
from gpuinfra.sizing.devices import memory_bytes
from gpuinfra.sizing.measured import SizingGoal
from gpuinfra.sizing.memory import MemoryNeed, ParallelLayout, Recompute, adapter, inference, training
from gpuinfra.sizing.request import SizingRequest

PIPELINES = (1, 2, 4, 8, 16)
MOST_NODES = 2048


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedLayout:
    """A layout and its memory on each GPU."""

    layout: ParallelLayout
    need: MemoryNeed
    memory: float
    """Memory of a GPU in bytes."""

    @property
    def fits(self) -> bool:
        """Whether the job fits."""
        return self.need.fits(self.memory)


def memory_of(request: SizingRequest, layout: ParallelLayout) -> MemoryNeed:
    """Return the memory of a job with a layout."""
    if request.goal is SizingGoal.INFERENCE:
        replicas = layout.data
        tokens = request.context * -(-request.concurrency // replicas)
        return inference(request.model, tokens, layout.tensor, request.weight_bits / 8)
    if request.goal.is_adapter:
        return adapter(
            request.model, request.sequence, layout, request.rank, quantized=request.goal is SizingGoal.QLORA
        )
    return training(request.model, request.sequence, layout, request.recipe)


def fitted(request: SizingRequest, gpus: int, per_node: int, memory: float) -> FittedLayout:
    """Return the simplest layout of a job on a number of GPUs that fits, or the one that needs the least memory if none does.

    Tensor parallelism stays within a node. `request.recompute` of None tries without recomputation first.
    """
    best: FittedLayout | None = None
    modes = (request.recompute,) if request.recompute else (Recompute.NONE, Recompute.FULL)
    serving = request.goal is SizingGoal.INFERENCE
    pipelines = (1,) if serving or request.goal.is_adapter else PIPELINES
    sequences = max(1, int(request.batch_tokens // request.sequence))
    for split in sorted(
        {(tensor * pipeline, pipeline, tensor) for tensor in (1, 2, 4, 8, 16) for pipeline in pipelines}
    ):
        product, pipeline, tensor = split
        if tensor > per_node or gpus % product or pipeline > request.model.layers or request.model.heads % tensor:
            continue
        for mode in modes[:1] if serving else modes:
            layout = ParallelLayout(
                gpus=gpus, tensor=tensor, pipeline=pipeline, micro_batch=request.micro_batch, recompute=mode
            )
            if (
                not serving
                and layout.data * request.micro_batch > sequences
                and gpus // product > 1
                and product < per_node * PIPELINES[-1]
            ):
                continue
            candidate = FittedLayout(layout=layout, need=memory_of(request, layout), memory=memory)
            if candidate.fits:
                return candidate
            if best is None or candidate.need.total < best.need.total:
                best = candidate
    if best is None:
        layout = ParallelLayout(gpus=gpus, micro_batch=request.micro_batch, recompute=modes[-1])
        best = FittedLayout(layout=layout, need=memory_of(request, layout), memory=memory)
    return best


def fits_host(machine: MachineType, layout: FittedLayout) -> bool:
    """Return whether the states that a recipe keeps in host memory fit in 85 percent of it."""
    return layout.need.host * machine.gpus <= 0.85 * machine.memory_gib * 2**30


def allowed_counts(machine: MachineType) -> tuple[int, ...]:
    """Return the numbers of nodes to try: powers of two and the numbers between them, or the units in which the machine is sold."""
    if machine.unit_nodes:
        return machine.unit_nodes
    return tuple(
        sorted({count for power in range(12) for count in (2**power, 3 * 2**power // 2) if 1 <= count <= MOST_NODES})
    )


def on_machine(request: SizingRequest, machine: MachineType, nodes: int) -> FittedLayout:
    """Return the layout of a job on a number of nodes."""
    assert machine.gpu is not None
    return fitted(request, machine.gpus * nodes, machine.gpus, memory_bytes(machine.gpu))


def smallest(request: SizingRequest, machine: MachineType) -> tuple[int, FittedLayout] | None:
    """Return the smallest number of nodes on which the job fits, with its layout. None if it fits on no number up to `MOST_NODES`."""
    for nodes in allowed_counts(machine):
        layout = on_machine(request, machine, nodes)
        if layout.fits and fits_host(machine, layout):
            return nodes, layout
    return None
