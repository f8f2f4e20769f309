"""Estimates how long `up` takes until the nodes are verified: the longest chain of resources and steps that wait for each other. Pure.

Each cloud's `timing.py` has the durations, by resource type, and the order, by row of the resource table. A resource without a known duration
counts as zero and makes the sum a lower limit. Resources whose type has no duration are left out; a test compares the order with the resources
that the program registers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from gpuinfra.base import naming
from gpuinfra.base.words import counted
from gpuinfra.plan.model import Plan, PoolPlan
from gpuinfra.plan.planned import ResourceKind


@dataclass(frozen=True, kw_only=True)
class Duration:
    """How long a resource or a step takes."""

    seconds: float | None
    """None if no public figure is known."""
    source: str
    """Where the figure was published, with the date of retrieval, or what is known instead of a figure."""
    at_least: bool = False
    """Whether `seconds` is a lower limit."""

    @property
    def exact(self) -> bool:
        """Whether the duration is known, and not only its lower limit."""
        return self.seconds is not None and not self.at_least


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The durations of a cloud, and which resources wait for which."""

    durations: Mapping[str, Duration]
    """Pulumi type -> duration of its creation."""
    after: Mapping[ResourceKind[Any], Sequence[ResourceKind[Any]]]
    """Row -> the rows with a duration that its resources wait for, directly or through resources without a duration."""
    group: ResourceKind[Any]
    """Row of the groups that launch the nodes."""
    ready: ResourceKind[Any]
    """Row of the resource that waits for verified nodes."""
    lustre: ResourceKind[Any]
    """Row of the Lustre file systems."""


@dataclass(frozen=True, kw_only=True)
class ChainPart:
    """A resource or a step of the chain."""

    step: str
    """What happens: `create`, `launch and first boot`, or a step on the nodes."""
    name: str
    """Logical name of the resource, or an empty string for a step on the nodes."""
    type: str
    """Pulumi type, or an empty string for a step on the nodes."""
    minutes: float | None
    """None if no public figure is known."""
    at_least: bool
    """Whether `minutes` is a lower limit."""
    source: str


@dataclass(frozen=True, kw_only=True)
class ReadyTime:
    """The longest chain of a plan."""

    minutes: float
    """Sum of the known minutes."""
    complete: bool
    """False if `minutes` is a lower limit, because the duration of a part is unknown."""
    until: str
    """What exists at the end of the chain: `verified nodes`, or `all resources exist` for a stack without nodes."""
    parts: tuple[ChainPart, ...]

    @property
    def in_words(self) -> str:
        """The time as text: `at least 12.5 minutes until verified nodes; the duration of 2 steps is unknown`."""
        if not self.minutes:
            return f"an unknown time until {self.until}"
        least = "" if self.complete else "at least "
        unknown = sum(one.minutes is None for one in self.parts)
        steps = f"; the duration of {counted(unknown, 'step')} is unknown" if unknown else ""
        return f"{least}{self.minutes:,.1f} minutes until {self.until}{steps}"


@dataclass(frozen=True, kw_only=True)
class ChainLink:
    """A candidate for a part of the chain: the resources of a row, or a step on the nodes."""

    does: str
    duration: Duration
    type: str = ""
    names: tuple[str, ...] = ()
    """Logical names of the resources. They are created at the same time."""


CREATE, LAUNCH = "create", "launch and first boot"
DRIVER = Duration(
    seconds=180,
    at_least=True,
    source="building the modules of the NVIDIA driver: 3 to 5 minutes until the driver container is ready, "
    "https://github.com/NVIDIA/gpu-operator/issues/707, retrieved 2026-11-26",
)
"""Step `30-driver` on an image without a driver."""
STEPS = Duration(
    seconds=None,
    source="no public figure; the time depends on the image and on the package servers",
)
"""The other bootstrap steps, and the checks."""
_DCGM = "https://docs.nvidia.com/datacenter/dcgm/latest/reference/command-line-reference/dcgmi/dcgmi-diag.html, retrieved 2026-11-26"
BURN_IN = {
    2: Duration(seconds=120, source=f"dcgmi diag -r 2: about 2 minutes, {_DCGM}", at_least=True),
    3: Duration(seconds=900, source=f"dcgmi diag -r 3: about 15 minutes, {_DCGM}", at_least=True),
    4: Duration(seconds=900, source=f"dcgmi diag -r 4: longer than -r 3, which takes about 15 minutes, {_DCGM}", at_least=True),
}  # fmt: skip
"""Level of `handover.burn_in` -> duration of the diagnostics. Level 1 takes seconds."""


FABRIC_TEST = Duration(
    seconds=30,
    source="each step between the handover and a node takes seconds (gpuinfra/handover/pairing.py); no duration of an all-reduce on real nodes is known",
    at_least=True,
)


def node_steps(pool: PoolPlan) -> tuple[ChainLink, ...]:
    """Return the steps on the nodes of a pool after their first boot, in order."""
    links = [ChainLink(does="other bootstrap steps and checks", duration=STEPS)]
    if not pool.image.prebuilt and any(step.id == "30-driver" for step in pool.steps):
        links.insert(0, ChainLink(does="bootstrap step 30-driver", duration=DRIVER))
    level = pool.expectation.get("burn_in", 1)
    if level in BURN_IN:
        links.append(ChainLink(does=f"DCGM diagnostics, level {level}", duration=BURN_IN[level]))
    if pool.fabric_test and pool.count > 1:
        links.append(ChainLink(does="fabric test", duration=FABRIC_TEST))
    return tuple(links)


def ready_time(plan: Plan, timing: Timing | None) -> ReadyTime | None:
    """Return the longest chain of a plan, or None if none of its resources has a duration. `timing` is that of the plan's cloud."""
    if timing is None:
        return None
    estimate = _Estimate(plan, timing)
    chain = estimate.longest()
    if not chain:
        return None
    parts = tuple(_parts(chain))[::-1]
    return ReadyTime(
        minutes=round(sum(one.minutes or 0 for one in parts), 2),
        complete=all(one.minutes is not None and not one.at_least for one in parts),
        until="verified nodes" if estimate.has_nodes else "all resources exist",
        parts=parts,
    )


class _Estimate:
    """Finds the longest chain of a plan."""

    def __init__(self, plan: Plan, timing: Timing) -> None:
        rows = dict.fromkeys((*timing.after, *(row for before in timing.after.values() for row in before)))
        self._timing = timing
        self._names = {row: names for row in rows if (names := _names(row, plan))}
        self._known: dict[ResourceKind[Any], tuple[ChainLink, ...]] = {}
        self._steps: tuple[ChainLink, ...] = ()
        self._restores = any(one.restore_from for one in plan.file_systems)
        self.has_nodes = timing.ready in self._names
        if self.has_nodes:
            self._steps = longest(node_steps(pool) for pool in plan.pools)
            pool = next(pool for pool in plan.pools if node_steps(pool) == self._steps)
            self._names[timing.group] = tuple(naming.logical(plan.name, group.name) for group in pool.groups)

    def longest(self) -> tuple[ChainLink, ...]:
        """Return the longest chain: until the nodes are verified or, without nodes, until all resources exist."""
        return self._until(self._timing.ready) if self.has_nodes else longest(map(self._until, self._names))

    def _until(self, row: ResourceKind[Any]) -> tuple[ChainLink, ...]:
        """Return the longest chain that ends with a resource of a row."""
        if row not in self._known:
            before = [one for one in self._timing.after.get(row, ()) if one in self._names]
            self._known[row] = (*longest(map(self._until, before)), *self._own(row))
        return self._known[row]

    def _own(self, row: ResourceKind[Any]) -> tuple[ChainLink, ...]:
        """Return the parts of a row: its resource, and the steps on the nodes that a group launches."""
        duration = self._timing.durations.get(row.type)
        if duration and row == self._timing.lustre and self._restores:
            duration = replace(
                duration,
                at_least=True,
                source=f"{duration.source}; this figure is for an empty file system; AWS documents the same time for a restore, but no measured time is known",
            )
        launches = row == self._timing.group
        does = LAUNCH if launches else CREATE
        own = (ChainLink(does=does, duration=duration, type=row.type, names=self._names[row]),) if duration else ()
        return (*own, *self._steps) if launches else own


def longest(chains: Iterable[tuple[ChainLink, ...]]) -> tuple[ChainLink, ...]:
    """Return the chain with the most known seconds and then the most parts without a known duration. Of equal chains, return the first."""
    return max(chains, key=lambda chain: (seconds(chain), sum(not one.duration.exact for one in chain)), default=())


def seconds(chain: Iterable[ChainLink]) -> float:
    """Return the known seconds of a chain."""
    return sum(one.duration.seconds or 0 for one in chain)


def _names(row: ResourceKind[Any], plan: Plan) -> tuple[str, ...]:
    """Return the logical names of the resources of a row."""
    return tuple(row.logical(one.component, **one.values) for one in row.each(plan))


def _parts(chain: Sequence[ChainLink]) -> Iterator[ChainPart]:
    """Yield the parts in reverse order. If a row has several resources, a part shows the one that the next part waits for.

    The name of a file system shares most with the names of its own bucket. Other resources wait for the evidence store, and not for the other buckets.
    """
    after = ""
    for link in reversed(chain):
        after = max(link.names, key=lambda name: (_shared(name, after), "-evidence-" in name), default="")
        duration_s = link.duration.seconds
        yield ChainPart(
            step=link.does,
            name=after,
            type=link.type,
            minutes=None if duration_s is None else round(duration_s / 60, 2),
            at_least=link.duration.at_least,
            source=link.duration.source,
        )


def _shared(word: str, other: str) -> int:
    """Return the number of characters at the start of two names that are the same."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(word, other, strict=False)))
