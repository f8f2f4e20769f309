"""Searches all machine types, numbers of nodes and kinds of capacity for those that do a job, with their time and price."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import TYPE_CHECKING

from gpuinfra.base.registry import CLOUDS
from gpuinfra.catalog.records import CapacityKind, MachineType, Price
from gpuinfra.plan.profile import profile_of
from gpuinfra.sizing.checkpoints import CheckpointPlan, StorageNeed, checkpoint_bytes, checkpoint_plan, storage_need
from gpuinfra.sizing.devices import DEVICES, Precision, default_precision
from gpuinfra.sizing.fit import FittedLayout, allowed_counts, fits_host, on_machine, smallest
from gpuinfra.sizing.measured import SizingGoal
from gpuinfra.sizing.request import SizingRequest
from gpuinfra.sizing.serving import predict_serving
from gpuinfra.sizing.throughput import PredictedThroughput, SizeRange, TrainingQuestion, predict

if TYPE_CHECKING:
    from gpuinfra.cost.file import PriceFile

LEAST_FABRIC_GBPS = 400
"""Bandwidth between nodes from which published training runs exist."""
SPOT_PER_MONTH = {"p4d.24xlarge": 0.10, "p4de.24xlarge": 0.10}
"""Machine type -> share of spot nodes that are interrupted in a month: upper edge of the band (thundercompute.com/blog, 2026-02-24)."""
SPOT_OTHER = 0.20
"""The same for p5 (10 to 20 percent), and assumed for machine types without a published band."""
MOST_EXTRA = 1.5
"""Longest time on spot nodes relative to nodes without interruptions. A job that loses more than a third of its time does not run on spot nodes."""
FLEX_DAYS = 7.0
"""Longest run of a flex-start node (Google Cloud)."""
BLOCK_DAYS, BLOCK_NODES = 182.0, 64
"""Longest Capacity Block, and most instances in one."""


class LimitedBy(StrEnum):
    """What keeps a candidate from being smaller or cheaper."""

    MEMORY = "memory"
    DEADLINE = "deadline"
    BUDGET = "budget"
    GIVEN = "number of GPUs"
    UNITS = "units of the machine"
    CONCURRENCY = "concurrency"


@dataclass(frozen=True, kw_only=True)
class SizedCandidate:
    """A machine type, a number of nodes and a kind of capacity that do the job."""

    cloud: str
    region: str
    machine: MachineType
    nodes: int
    kind: CapacityKind
    term: str
    """`1y` or `3y` for a commitment, otherwise empty."""
    price: Price
    fitted: FittedLayout
    precision: Precision
    throughput: PredictedThroughput
    days: SizeRange
    """By wall time, with the interruptions of spot nodes. For inference, the days that are priced."""
    usd: SizeRange
    limited_by: LimitedBy
    checkpoints: CheckpointPlan | None
    storage: StorageNeed | None
    extra_days: float
    """Days that interruptions of spot nodes cost, in `days`."""

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return self.machine.gpus * self.nodes

    @property
    def usd_per_hour(self) -> float:
        """Price of all nodes."""
        return self.price.usd_per_hour * self.nodes

    @property
    def way(self) -> str:
        """Kind of capacity with its term, as in `ComparisonRow.way`."""
        return f"{self.kind.value} {self.term}".strip()


def candidates(request: SizingRequest, today: date, prices: PriceFile | None = None) -> tuple[SizedCandidate, ...]:
    """Return one candidate for each machine type and kind of capacity that can do the job, the cheapest first."""
    sized = [one for cloud in request.clouds or tuple(CLOUDS) for one in _of_cloud(request, cloud, prices)]
    return tuple(sorted(sized, key=lambda one: (one.usd.middle, one.days.middle, one.machine.name)))


def machines_of_request(request: SizingRequest, cloud: str) -> Iterator[MachineType]:
    """Yield the machine types of a cloud that the request allows."""
    for machine in profile_of(cloud).machines.values():
        if machine.gpu is None or machine.gpu.key not in DEVICES:
            continue
        if request.gpu in (None, machine.gpu.key) and request.machine in (None, machine.name):
            if request.precision and not DEVICES[machine.gpu.key].supports(request.precision):
                continue
            yield machine


def _of_cloud(request: SizingRequest, cloud: str, prices: PriceFile | None) -> Iterator[SizedCandidate]:
    for machine in machines_of_request(request, cloud):
        ways = tuple(_ways(request, machine, prices))
        if not ways:
            continue
        least = smallest(request, machine) if request.gpus is None else None
        if request.gpus is None and least is None:
            continue
        rates: dict[int, PredictedThroughput] = {}
        for kind, term, price in ways:
            if candidate := _sized(request, cloud, machine, least, kind, term, price, rates):
                yield candidate


def _ways(
    request: SizingRequest, machine: MachineType, prices: PriceFile | None
) -> Iterator[tuple[CapacityKind, str, Price]]:
    """Yield the kinds of capacity of a machine type, each with its price in the cheapest region or in the region of the request."""
    best: dict[tuple[CapacityKind, str], Price] = {}
    listed = [price for price in machine.prices if request.region in (None, price.region)]
    newest: dict[tuple[CapacityKind, str, str], Price] = {}
    for price in listed:
        key = (price.kind, price.term, price.region)
        if key not in newest or newest[key].read < price.read:
            newest[key] = price
    for (kind, term, region), price in newest.items():
        own = prices.node(machine.name, kind, region) if prices and not term else None
        price = own or price
        if (kind, term) not in best or price.usd_per_hour < best[kind, term].usd_per_hour:
            best[kind, term] = price
    if (
        CapacityKind.RESERVED in machine.capacity
        and (CapacityKind.ON_DEMAND, "") in best
        and (CapacityKind.RESERVED, "") not in best
    ):
        best[CapacityKind.RESERVED, ""] = best[CapacityKind.ON_DEMAND, ""]
    if (
        CapacityKind.FLEX in machine.capacity
        and (CapacityKind.ON_DEMAND, "") in best
        and (CapacityKind.FLEX, "") not in best
    ):
        best[CapacityKind.FLEX, ""] = best[CapacityKind.ON_DEMAND, ""]
    for (kind, term), price in best.items():
        if (kind in machine.capacity or term) and (not request.kinds or kind in request.kinds):
            yield kind, term, price


def question_of(request: SizingRequest, machine: MachineType, nodes: int) -> TrainingQuestion:
    """Return the question for the throughput of a machine type."""
    assert machine.gpu is not None
    fabric = nodes == 1 or has_fabric(machine)
    precision = request.precision or default_precision(machine.gpu)
    return TrainingQuestion(
        model=request.model,
        goal=request.goal,
        sequence=request.sequence,
        gpu=machine.gpu.key,
        gpus=machine.gpus * nodes,
        precision=precision,
        fabric=fabric,
    )


def _sized(
    request: SizingRequest,
    cloud: str,
    machine: MachineType,
    least: tuple[int, FittedLayout] | None,
    kind: CapacityKind,
    term: str,
    price: Price,
    rates: dict[int, PredictedThroughput],
) -> SizedCandidate | None:
    """Return the candidate with the fewest nodes for the deadline, or the most nodes for the budget."""

    def made(nodes: int) -> SizedCandidate | None:
        layout = least[1] if least and nodes == least[0] else None
        return _made(request, cloud, machine, nodes, kind, term, price, layout, rates)

    def in_budget(candidate: SizedCandidate | None) -> bool:
        return request.usd is None or (candidate is not None and candidate.usd.middle <= request.usd)

    counts = tuple(_counts(request, machine, least[0] if least else 1))
    if request.gpus is not None or request.goal is SizingGoal.INFERENCE:
        chosen = made(counts[0]) if counts else None
    elif request.usd is not None and request.days is None:
        # The price grows slowly with the number of nodes, because the utilization falls.
        chosen = _last(counts, lambda nodes: in_budget(made(nodes)), made)
    else:
        chosen = _first(counts, lambda nodes: _in_time(made(nodes), request), made)
    if chosen is None or not in_budget(chosen):
        return None
    return chosen if _allowed(chosen) else _shorter(chosen, counts, made, in_budget)


def _in_time(candidate: SizedCandidate | None, request: SizingRequest) -> bool:
    return candidate is not None and candidate.days.middle <= request.deadline * 1.0001


def _first(
    counts: Sequence[int], good: Callable[[int], bool], made: Callable[[int], SizedCandidate | None]
) -> SizedCandidate | None:
    """Return the candidate with the fewest nodes that is good. More nodes than that are good as well."""
    low, high = 0, len(counts)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if good(counts[middle]) else (middle + 1, high)
    return made(counts[low]) if low < len(counts) else None


def _last(
    counts: Sequence[int], good: Callable[[int], bool], made: Callable[[int], SizedCandidate | None]
) -> SizedCandidate | None:
    """Return the candidate with the most nodes that is good. Fewer nodes than that are good as well."""
    low, high = 0, len(counts)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if good(counts[middle]) else (low, middle)
    return made(counts[low - 1]) if low else None


def _shorter(
    chosen: SizedCandidate,
    counts: Sequence[int],
    made: Callable[[int], SizedCandidate | None],
    in_budget: Callable[[SizedCandidate | None], bool],
) -> SizedCandidate | None:
    """Return a candidate with more nodes that ends within the longest time for which the kind of capacity is sold."""
    for nodes in counts:
        if nodes > chosen.nodes and (candidate := made(nodes)) and _allowed(candidate) and in_budget(candidate):
            return candidate
    return None


def _counts(request: SizingRequest, machine: MachineType, least: int) -> Iterator[int]:
    """Yield the numbers of nodes to try, the smallest first."""
    if request.gpus is not None:
        counts = (request.gpus // machine.gpus,) if request.gpus % machine.gpus == 0 else ()
        if machine.unit_nodes:
            counts = tuple(count for count in counts if count in machine.unit_nodes)
    else:
        counts = tuple(count for count in allowed_counts(machine) if count >= least)
    yield from (count for count in counts if is_connected(request, machine, count))


def is_connected(request: SizingRequest, machine: MachineType, nodes: int) -> bool:
    """Return whether nodes of a machine type can train together: one node, or a fabric. A machine type that you name is accepted without one."""
    return nodes == 1 or has_fabric(machine) or request.machine == machine.name or request.goal is SizingGoal.INFERENCE


def has_fabric(machine: MachineType) -> bool:
    """Return whether nodes of a machine type are connected as in published runs."""
    return machine.fabric is not None and machine.fabric.gbps >= LEAST_FABRIC_GBPS


def _allowed(made: SizedCandidate) -> bool:
    """Return whether the kind of capacity is sold for so long and for so many nodes."""
    if made.kind is CapacityKind.FLEX:
        return made.days.middle <= FLEX_DAYS
    if made.kind is CapacityKind.BLOCK and not made.machine.unit_nodes:
        return made.days.middle <= BLOCK_DAYS and made.nodes <= BLOCK_NODES
    return True


def _made(
    request: SizingRequest,
    cloud: str,
    machine: MachineType,
    nodes: int,
    kind: CapacityKind,
    term: str,
    price: Price,
    layout: FittedLayout | None,
    rates: dict[int, PredictedThroughput],
) -> SizedCandidate | None:
    assert machine.gpu is not None
    if layout is None:
        layout = on_machine(request, machine, nodes)
    if not (layout.fits and fits_host(machine, layout)):
        return None
    question = question_of(request, machine, nodes)
    serving = request.goal is SizingGoal.INFERENCE
    rate = rates.get(nodes) or (
        predict_serving(request, machine, layout) if serving else predict(question, request.without)
    )
    rates[nodes] = rate
    extra = 1.0
    checkpoints = storage = None
    if serving:
        span = request.days or 30.0
        days = SizeRange(low=span, middle=span, high=span)
    else:
        days = rate.wall_tokens_per_s.inverted(request.tokens / 86_400)
        trained = request.model.lora_parameters(request.rank) if request.goal.is_adapter else None
        size = checkpoint_bytes(request.model, request.recipe, trained)
        storage = storage_need(size, request.tokens)
        bandwidth = storage.capacity_gib / 1024 * storage.throughput_mb_s_per_tib / 1000
        steady = checkpoint_plan(size, machine.gpu.key, layout.layout.gpus, days.middle, bandwidth)
        checkpoints = steady
        if kind is CapacityKind.SPOT:
            checkpoints = checkpoint_plan(
                size, machine.gpu.key, layout.layout.gpus, days.middle, bandwidth, nodes * spot_rate(machine.name)
            )
            extra = max(1.0, steady.goodput / max(0.01, checkpoints.goodput))
            if extra > MOST_EXTRA:
                return None
    longer = days.scaled(extra)
    hours = longer.scaled(24)
    if term:
        whole = 8760.0 * int(term[0])
        hours = SizeRange(low=max(hours.low, whole), middle=max(hours.middle, whole), high=max(hours.high, whole))
    elif kind is CapacityKind.BLOCK:
        hours = SizeRange(low=_block_hours(hours.low), middle=_block_hours(hours.middle), high=_block_hours(hours.high))
    limited = LimitedBy.GIVEN if request.gpus else LimitedBy.CONCURRENCY if serving else LimitedBy.DEADLINE
    if request.usd is not None and request.days is None:
        limited = LimitedBy.BUDGET
    if not request.gpus and machine.unit_nodes:
        limited = LimitedBy.UNITS
    elif not request.gpus and nodes == 1 and limited is LimitedBy.DEADLINE:
        limited = LimitedBy.MEMORY
    return SizedCandidate(
        cloud=cloud,
        region=_region(request, cloud, machine, kind, price),
        machine=machine,
        nodes=nodes,
        kind=kind,
        term=term,
        price=price,
        fitted=layout,
        precision=question.precision,
        throughput=rate,
        days=longer,
        usd=hours.scaled(price.usd_per_hour * nodes),
        limited_by=limited,
        checkpoints=checkpoints,
        storage=storage,
        extra_days=days.middle * (extra - 1),
    )


def _region(request: SizingRequest, cloud: str, machine: MachineType, kind: CapacityKind, price: Price) -> str:
    """Return the region of a candidate: of the request, of the price, or for a price of all regions the first that offers the machine type."""
    if request.region or price.region != "*":
        return request.region or price.region
    offered = machine.block_regions if kind is CapacityKind.BLOCK else ()
    return next(iter((*offered, *machine.zones, *profile_of(cloud).regions)))


def spot_rate(machine: str) -> float:
    """Return the interruptions of a spot node per hour, `-ln(1 - q) / 730`, for the share q of nodes that are interrupted in a month."""
    return -math.log(1 - SPOT_PER_MONTH.get(machine, SPOT_OTHER)) / 730


def _block_hours(hours: float) -> float:
    """Return the hours of a Capacity Block: whole days up to 14, then whole weeks. It ends 30 minutes early."""
    days = max(1, math.ceil((hours + 0.5) / 24))
    return 24.0 * (days if days <= 14 else -(-days // 7) * 7)
