"""What to choose among the candidates: the cheapest for the deadline, the fastest for the budget, a mix, and whether a commitment pays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING

from gpuinfra.base.errors import UsageError
from gpuinfra.base.registry import CLOUDS
from gpuinfra.base.words import counted
from gpuinfra.catalog.records import CapacityKind
from gpuinfra.cost.compare import break_even_share
from gpuinfra.plan.profile import profile_of
from gpuinfra.sizing.candidates import SizedCandidate, candidates, is_connected, machines_of_request
from gpuinfra.sizing.fit import FittedLayout, allowed_counts, on_machine, smallest
from gpuinfra.sizing.measured import SizingGoal
from gpuinfra.sizing.request import SizingRequest
from gpuinfra.spec.messages import nearest

if TYPE_CHECKING:
    from gpuinfra.catalog.records import MachineType
    from gpuinfra.cost.file import PriceFile


@dataclass(frozen=True, kw_only=True, slots=True)
class MixedCapacity:
    """A reserved or on-demand base with spot nodes on top, of one machine type in one region."""

    base: SizedCandidate
    spot: SizedCandidate
    base_nodes: int
    spot_nodes: int
    usd: float
    """Price if all spot nodes run for the whole time."""
    days: float
    days_without_spot: float
    """Time if no spot node ever runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitmentAdvice:
    """Whether a commitment or a Capacity Block is cheaper than on-demand nodes for this job."""

    way: str
    machine: str
    region: str
    share: float
    """Share of the committed hours above which it is cheaper than on-demand."""
    pays: bool
    text: str


@dataclass(frozen=True, kw_only=True)
class SizingAnswer:
    """The answer to a request."""

    request: SizingRequest
    candidates: tuple[SizedCandidate, ...]
    cheapest: SizedCandidate
    fastest: SizedCandidate
    mix: MixedCapacity | None
    commitments: tuple[CommitmentAdvice, ...]


def size(request: SizingRequest, today: date, prices: PriceFile | None = None) -> SizingAnswer:
    """Return the answer to a request. Raises `UsageError` with the smallest layout that works if no machine does the job."""
    request.check()
    sized = candidates(request, today, prices)
    if not sized:
        raise _refusal(request, today, prices)
    fastest = min(sized, key=lambda one: (one.days.middle, one.usd.middle))
    return SizingAnswer(
        request=request,
        candidates=sized,
        cheapest=sized[0],
        fastest=fastest,
        mix=_mix(sized, request),
        commitments=tuple(_commitments(sized)),
    )


def _mix(sized: Sequence[SizedCandidate], request: SizingRequest) -> MixedCapacity | None:
    """Return the cheapest mix: half of the nodes of a candidate as a base that the cloud does not reclaim, and the rest on spot."""
    if request.goal is SizingGoal.INFERENCE:
        return None
    best: MixedCapacity | None = None
    spots = {(one.cloud, one.machine.name): one for one in sized if one.kind is CapacityKind.SPOT and one.nodes > 1}
    for base in sized:
        spot = spots.get((base.cloud, base.machine.name))
        if (
            spot is None
            or base.term
            or base.kind not in (CapacityKind.RESERVED, CapacityKind.ON_DEMAND, CapacityKind.BLOCK)
        ):
            continue
        base_nodes = max(math.ceil(spot.nodes / 2), _least_nodes(request, base))
        rest = spot.nodes - base_nodes
        if rest < 1 or (base.machine.unit_nodes and base_nodes not in base.machine.unit_nodes):
            continue
        days = base.days.middle * base.nodes / spot.nodes + spot.extra_days * rest / spot.nodes
        usd = 24 * days * (base_nodes * base.price.usd_per_hour + rest * spot.price.usd_per_hour)
        if best is None or usd < best.usd:
            alone = base.days.middle * base.nodes / base_nodes
            best = MixedCapacity(
                base=base,
                spot=spot,
                base_nodes=base_nodes,
                spot_nodes=rest,
                usd=usd,
                days=days,
                days_without_spot=alone,
            )
    return best


def _least_nodes(request: SizingRequest, base: SizedCandidate) -> int:
    layout = smallest(request, base.machine)
    return layout[0] if layout else base.nodes


def _commitments(sized: Sequence[SizedCandidate]) -> Iterator[CommitmentAdvice]:
    """Yield the break-even of each commitment and Capacity Block against on-demand nodes, in the region of the commitment."""
    for candidate in sized:
        if not (candidate.term or candidate.kind is CapacityKind.BLOCK):
            continue
        usual = candidate.machine.price(CapacityKind.ON_DEMAND, candidate.region)
        if usual is None:
            continue
        share = break_even_share(candidate.price.usd_per_hour, usual.usd_per_hour)
        if candidate.term:
            months = 12 * int(candidate.term[0]) * share
            job = candidate.days.middle / 30.4
            pays = job >= months
            text = f"pays from {months:.1f} months of full use; the job needs {job:.1f}"
        else:
            billed = candidate.usd.middle / (candidate.price.usd_per_hour * candidate.nodes)
            pays = candidate.days.middle * 24 / billed >= share
            text = f"costs {share:.0%} of on-demand per hour; the job uses {candidate.days.middle * 24 / billed:.0%} of the hours billed"
        yield CommitmentAdvice(
            way=candidate.way,
            machine=candidate.machine.name,
            region=candidate.region,
            share=share,
            pays=pays,
            text=text,
        )


def _refusal(request: SizingRequest, today: date, prices: PriceFile | None) -> UsageError:
    """Return the error about a request that no machine satisfies, with the layout, time or budget that works."""
    job = f"{request.model.name} ({request.goal.value})"
    machines = [machine for cloud in request.clouds or tuple(CLOUDS) for machine in machines_of_request(request, cloud)]
    if not machines:
        return UsageError(
            f"no machine type in the catalog is or has {request.machine or request.gpu or 'this GPU'} on {', '.join(request.clouds) or 'any cloud'}; "
            "`gpuinfra catalog` lists them"
        )
    if request.region and not any(
        profile_of(cloud).is_region(request.region) for cloud in request.clouds or tuple(CLOUDS)
    ):
        near = nearest(request.region, [region for cloud in CLOUDS for region in profile_of(cloud).regions])
        hint = f"did you mean {near}?" if near else "use a region of `gpuinfra catalog`"
        return UsageError(
            f"--region is {request.region[:40]!r}, which is not a region of {' or '.join(request.clouds or tuple(CLOUDS))}; {hint}"
        )
    elsewhere = (
        candidates(replace(request, region=None, kinds=()), today, prices) if request.region or request.kinds else ()
    )
    if elsewhere:
        return UsageError(
            f"no machine type with a known price does {job} in this region or with this kind of capacity; {_described(elsewhere[0])} does; "
            "remove --region or --capacity"
        )
    if request.gpus is not None:
        return _refused_count(request, job, machines)
    if all(smallest(request, machine) is None for machine in machines):
        best = min(
            (on_machine(request, machine, allowed_counts(machine)[-1]) for machine in machines),
            key=lambda one: one.need.total / one.memory,
        )
        return UsageError(f"{job} {_too_large(best)}; {_fix(request)}")
    relaxed = candidates(replace(request, days=None, usd=None, region=None, kinds=()), today, prices)
    if request.goal is SizingGoal.INFERENCE:
        relaxed = ()
    if relaxed and request.usd is not None:
        least = min(relaxed, key=lambda one: one.usd.middle)
        within = f" in {request.days:g} days" if request.days else ""
        return UsageError(
            f"--usd is {request.usd:,.0f}, but {job} on {request.tokens:.3g} tokens needs more{within}; "
            f"{_described(least)} costs {least.usd.middle:,.0f} USD in {least.days.middle:,.1f} days; raise --usd, or train on fewer tokens"
        )
    if relaxed and request.days is not None:
        fast = candidates(replace(request, days=None, usd=1e12, region=None, kinds=()), today, prices) or relaxed
        best = min(fast, key=lambda one: one.days.middle)
        return UsageError(
            f"--days is {request.days:g}, but the fastest machines need {best.days.middle:,.1f} days for {job} on {request.tokens:.3g} tokens: "
            f"{_described(best)}; raise --days, or train on fewer tokens"
        )
    return UsageError(
        f"no machine type with a known price does {job} under these conditions; remove --region, --capacity or --cloud, or set your prices with --prices FILE"
    )


def _refused_count(request: SizingRequest, job: str, machines: Sequence[MachineType]) -> UsageError:
    assert request.gpus is not None
    fitting = [machine for machine in machines if request.gpus % machine.gpus == 0]
    if not fitting:
        sizes = sorted({machine.gpus for machine in machines})
        return UsageError(
            f"--gpus is {request.gpus}; allowed: multiples of the GPUs of a machine, {', '.join(map(str, sizes))}; change --gpus or --gpu"
        )
    tried = [on_machine(request, machine, request.gpus // machine.gpus) for machine in fitting]
    best = min(tried, key=lambda one: one.need.total / one.memory)
    least = _smallest_layout(request, machines)
    if best.fits:
        return UsageError(
            f"--gpus is {request.gpus}: {job} fits, but no machine type has a known price under these conditions; {least}"
        )
    return UsageError(f"--gpus is {request.gpus}: {job} {_too_large(best)}; the smallest layout that works: {least}")


def _smallest_layout(request: SizingRequest, machines: Sequence[MachineType]) -> str:
    """Return the layout with the fewest GPUs on which a job fits, in words."""
    options = []
    for machine in machines:
        fitted_layout = smallest(replace(request, gpus=None), machine)
        if fitted_layout and is_connected(request, machine, fitted_layout[0]):
            options.append((fitted_layout[1].layout.gpus, machine.name, fitted_layout[0], fitted_layout[1], machine))
    if not options:
        return f"none up to 2,048 nodes; {_fix(request)}"
    gpus, name, nodes, fitted_layout, machine = min(options, key=lambda one: one[:3])
    assert machine.gpu is not None
    return f"{gpus} x {machine.gpu.key} ({nodes} x {name}), {fitted_layout.layout}"


def _too_large(layout: FittedLayout) -> str:
    need, memory = layout.need, layout.memory
    if need.host and need.fits(memory):
        return f"needs {need.host / 1e9:,.0f} GB of host memory for each GPU"
    largest = getattr(need, need.largest) / 1e9
    count = counted(layout.layout.gpus, "GPU")
    return f"needs {need.total / 1e9:,.0f} GB on each of {count} with {memory / 1e9:,.0f} GB, of which {largest:,.0f} GB are {need.largest}"


def _fix(request: SizingRequest) -> str:
    if request.goal is SizingGoal.INFERENCE:
        return "lower --context or --concurrency, or use --weight-bits 8"
    return "lower --sequence or --micro-batch, or use --recompute full"


def _described(candidate: SizedCandidate) -> str:
    return f"{candidate.nodes} x {candidate.machine.name} {candidate.way.replace('_', '-')} in {candidate.region}"
