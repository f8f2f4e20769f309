"""The forecast of a declared workload on the nodes of a plan: tokens per day, energy, emissions and price."""

from __future__ import annotations

from dataclasses import dataclass

from gpuinfra.catalog.records import MachineType
from gpuinfra.cost.model import Cost
from gpuinfra.plan.model import Plan, PoolPlan
from gpuinfra.plan.profile import profile_of
from gpuinfra.sizing.candidates import question_of
from gpuinfra.sizing.devices import DEVICES, Precision
from gpuinfra.sizing.energy import EnergyUse, energy
from gpuinfra.sizing.fit import FittedLayout, on_machine, smallest
from gpuinfra.sizing.measured import SizingGoal
from gpuinfra.sizing.memory import Recipe
from gpuinfra.sizing.request import SizingRequest
from gpuinfra.sizing.shape import model_of
from gpuinfra.sizing.throughput import PredictedThroughput, SizeRange, predict
from gpuinfra.spec.workload import Workload


@dataclass(frozen=True, kw_only=True)
class WorkloadForecast:
    """What the largest pool with GPUs of a plan does for the declared workload."""

    model: str
    goal: str
    pool: str
    machine: str
    gpus: int
    fits: bool
    memory_gb: float
    of_gb: float
    layout: str
    tokens_per_day: SizeRange
    """By wall time."""
    days: SizeRange | None
    """For the declared tokens."""
    energy_per_day: EnergyUse
    usd_per_billion_tokens: SizeRange | None
    """Price of the whole stack per billion tokens, or None if the price of the nodes is unknown."""
    near: bool
    source: tuple[str, ...]


def request_of(workload: Workload) -> SizingRequest:
    """Return the sizing request of a declared workload. Raises `UsageError` if the model is not known."""
    return SizingRequest(
        model=model_of(workload.model),
        goal=SizingGoal(workload.goal),
        tokens=(workload.tokens_billion or 1.0) * 1e9,
        sequence=workload.sequence,
        precision=Precision(workload.precision) if workload.precision else None,
        recipe=Recipe(workload.recipe),
    )


def trained_pool(pools: tuple[PoolPlan, ...], machines: dict[str, MachineType]) -> PoolPlan | None:
    """Return the pool with the most GPUs whose rates are known."""
    candidates = [
        pool
        for pool in pools
        if pool.machine in machines and (gpu := machines[pool.machine].gpu) and gpu.key in DEVICES and nodes_of(pool)
    ]
    return max(candidates, key=lambda pool: machines[pool.machine].gpus * nodes_of(pool), default=None)


def nodes_of(pool: PoolPlan) -> int:
    """Return the nodes of a pool when all of its groups run."""
    return sum(group.max_count for group in pool.groups)


def fit_on(workload: Workload, machine: MachineType, nodes: int) -> tuple[FittedLayout, int | None]:
    """Return the layout of a workload on a number of nodes, and the smallest number of nodes on which it fits."""
    request = request_of(workload)
    layout = on_machine(request, machine, nodes)
    least = None if layout.fits else smallest(request, machine)
    return layout, least[0] if least else None


def forecast_of(workload: Workload, plan: Plan, cost: Cost) -> WorkloadForecast | None:
    """Return the forecast, or None if no pool has GPUs with known rates."""
    machines = dict(profile_of(plan.cloud).machines)
    pool = trained_pool(plan.pools, machines)
    if pool is None:
        return None
    machine, nodes = machines[pool.machine], nodes_of(pool)
    assert machine.gpu is not None
    request = request_of(workload)
    if request.precision and not DEVICES[machine.gpu.key].supports(request.precision):
        return None
    layout = on_machine(request, machine, nodes)
    rate: PredictedThroughput = predict(question_of(request, machine, nodes))
    day = rate.wall_tokens_per_s.scaled(86_400)
    usd = day.scaled(1e-9).inverted(cost.usd_per_hour * 24) if cost.nodes_priced and cost.usd_per_hour else None
    return WorkloadForecast(
        model=request.model.name,
        goal=workload.goal,
        pool=pool.name,
        machine=pool.machine,
        gpus=machine.gpus * nodes,
        fits=layout.fits,
        memory_gb=layout.need.total / 1e9,
        of_gb=layout.memory / 1e9,
        layout=str(layout.layout),
        tokens_per_day=day,
        days=day.inverted(workload.tokens_billion * 1e9) if workload.tokens_billion else None,
        energy_per_day=energy(machine.gpu.key, 24.0 * machine.gpus * nodes, plan.cloud, plan.region),
        usd_per_billion_tokens=usd,
        near=rate.near,
        source=rate.why,
    )
