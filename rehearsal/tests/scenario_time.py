"""The simulated minutes of a scenario: the documented durations of the resources of each attempt, and the time that the search waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.timing import ChainLink as Part
from gpuinfra.clouds.timing import Duration, longest, node_steps, seconds
from gpuinfra.handover.watch import STOCKOUT_PATIENCE_S
from gpuinfra.plan.model import Plan
from gpuinfra.plan.planned import ResourceKind
from tests.typed import present


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One attempt: its plan, and how it ended."""

    plan: Plan
    waited: bool
    """Whether the handover waited for capacity. Otherwise, the cloud refused the group, or there was capacity."""
    silent: bool
    """Whether the cloud reported no reason, so that the handover waited until its deadline."""
    launched: bool
    """Whether a node was launched and reported."""


def minutes(attempts: Sequence[Tried], delay_s: float = 0, *, deployed: bool = False) -> tuple[float, bool]:
    """Return the minutes of these attempts, and whether they are complete. If not, they are a lower limit.

    The first attempt creates all resources, or none if the stack is `deployed`.
    Each later attempt creates those that no earlier attempt created. An attempt without capacity waits for
    5 minutes, or for half of the declared deadline, or until the deadline if the cloud reports no reason. The removal of the
    groups between two attempts has no public figure.
    """
    total, complete, count = delay_s, True, 0
    existing = _names(attempts[0].plan) if deployed else set[str]()
    for one in attempts:
        chain = _until_groups(one.plan, existing)
        existing |= _names(one.plan)
        steps = [_group(one.plan), *(part.duration for part in longest(map(node_steps, one.plan.pools)))] if one.launched else []  # fmt: skip
        deadline = one.plan.handover.deadline_s
        patience = deadline if one.silent else min(STOCKOUT_PATIENCE_S, deadline / 2) if one.waited else 0.0
        # Nodes start while the handover waits for the other nodes of their group.
        total += seconds(chain) + max(patience, sum(step.seconds or 0 for step in steps))
        complete = complete and all(part.duration.exact for part in chain) and all(step.exact for step in steps)
        count += 1
    return round(total / 60, 1), complete and count < 2


def _group(plan: Plan) -> Duration:
    timing = present(cloud_of(plan.cloud).timing)
    return timing.durations[timing.group.type]


def _names(plan: Plan) -> set[str]:
    timing = present(cloud_of(plan.cloud).timing)
    return {name for before in timing.after.values() for row in before for name in _logical(row, plan)}


def _logical(row: ResourceKind[Any], plan: Plan) -> set[str]:
    return {row.logical(one.component, **one.values) for one in row.each(plan)}


def _until_groups(plan: Plan, existing: set[str]) -> tuple[Part, ...]:
    """Return the longest chain of new resources that the groups wait for."""
    timing = present(cloud_of(plan.cloud).timing)
    durations: Mapping[str, Duration] = timing.durations

    def until(row: ResourceKind[Any]) -> tuple[Part, ...]:
        before = longest(until(one) for one in timing.after.get(row, ()) if _logical(one, plan))
        new = row.type in durations and row != timing.group and bool(_logical(row, plan) - existing)
        return (*before, *([Part(does="create", duration=durations[row.type])] if new else []))

    return until(timing.group)
