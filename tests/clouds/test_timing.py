"""The chain of a plan is the longest chain of the resources that the program registers, and nothing on it waits without need."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest

from gpuinfra.base.registry import CLOUDS
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.timing import BURN_IN, DRIVER, STEPS, ready_time
from gpuinfra.plan.planned import ResourceKind
from tests.clouds.engine_time import VARIANTS, both, end, graph_of, plan_named, seconds_of, short
from tests.clouds.graph import Key, longest
from tests.clouds.required import KEPT, REQUIRED
from tests.clouds.stacks import shipped_stacks
from tests.typed import present

STACKS = [(cloud, stack) for cloud in CLOUDS for stack in shipped_stacks(cloud)]
STACKS += [(cloud, stack) for stack, (cloud, _) in VARIANTS.items()]
each_stack = pytest.mark.parametrize(("cloud", "stack"), STACKS, ids=[stack for _, stack in STACKS])


@functools.cache
def rows_of(cloud: str, stack: str) -> dict[Key, ResourceKind[Any]]:
    """Resource -> its row, for each resource whose type has a duration and for the resource that waits for nodes."""
    timing = present(cloud_of(cloud).timing)
    kinds = {(one.type, one.name): one.kind for one in cloud_of(cloud).resources(plan_named(stack))}
    return {
        key: kind for key in graph_of(stack).resources if (kind := kinds.get(key)) and (kind.type in timing.durations or kind is timing.ready)
    }  # fmt: skip


@each_stack
def test_the_order_is_the_order_of_the_registered_resources(cloud: str, stack: str) -> None:
    """Each wait in the plan's order is a dependency of a registered resource, and each dependency between resources with a duration follows from the order."""
    rows, found = rows_of(cloud, stack), graph_of(stack)
    registered = {
        (_row(rows[key]), _row(rows[one])) for key in rows for one in found.ancestors[key] if one in rows and rows[one] != rows[key]
    }  # fmt: skip
    used = set(rows.values())
    after = present(cloud_of(cloud).timing).after

    def before(row: ResourceKind[Any]) -> Iterator[ResourceKind[Any]]:
        for one in after.get(row, ()):
            if one in used:
                yield one
                yield from before(one)

    direct = {(_row(row), _row(one)) for row in used for one in after.get(row, ()) if one in used}
    implied = {(_row(row), _row(one)) for row in used for one in before(row)}
    assert direct - registered == set(), "the plan's order has waits that the program does not have"
    assert registered - implied == set(), "the program has waits that the plan's order does not have"


def _row(row: ResourceKind[Any]) -> str:
    return f"{row.type} {row.name}"


@each_stack
def test_the_chain_is_the_longest_chain_of_the_registered_resources(cloud: str, stack: str) -> None:
    """The minutes of the plan are those of the longest chain that the engine receives, and each resource of the chain depends on the one before it."""
    found = graph_of(stack)
    expected = end(longest(found.before, seconds_of(cloud, stack)))
    time = ready_time(plan_named(stack), cloud_of(cloud).timing)
    if time is None:
        assert expected == 0
        return
    assert time.minutes == pytest.approx(expected / 60, abs=0.05)
    chain = [(part.type, part.name) for part in time.parts if part.type]
    assert chain
    for earlier, later in itertools.pairwise(chain):
        assert earlier in found.ancestors[later], f"{later} does not wait for {earlier}"


@each_stack
def test_each_wait_has_a_reason(cloud: str, stack: str) -> None:
    """A resource waits for another one only if it needs a value of it, an API requires it, or the reason for the wait is stated."""
    found = graph_of(stack)
    unexplained = {
        (short(key), short(one))
        for key, direct in found.reduced.items()
        for one in direct
        if not found.passes_on(key, one)
        and (short(key), short(one)) not in REQUIRED[cloud]
        and (short(key), short(one)) not in KEPT[cloud]
    }
    assert unexplained == set()


@pytest.mark.parametrize("unknown", [60.0, 1800.0])
@each_stack
def test_the_simulated_time_is_close_to_the_longest_required_chain(cloud: str, stack: str, unknown: float) -> None:
    """With the engine's limit of parallel operations, the time is at most 1.10 times the longest chain of required waits,
    whatever the unknown durations are."""
    total, required = both(cloud, stack, unknown)
    assert total <= 1.10 * required


@pytest.mark.parametrize("cloud", CLOUDS)
def test_durations_belong_to_the_resource_table_and_cite_a_source(cloud: str) -> None:
    """Each duration is of a type that the cloud's table has, and names a source and the day on which it was read."""
    timing = present(cloud_of(cloud).timing)
    types = {row.type for row in cloud_of(cloud).resource_kinds}
    assert set(timing.durations) <= types
    for name, duration in [*timing.durations.items(), ("driver", DRIVER), *BURN_IN.items()]:
        assert re.search(r"(retrieved|searched|on) 20\d\d-\d\d-\d\d", duration.source), name
        assert duration.seconds is None or "http" in duration.source or "log of" in duration.source, name
    assert STEPS.seconds is None


@pytest.mark.parametrize("cloud", CLOUDS)
def test_each_reason_applies_to_a_stack(cloud: str) -> None:
    """No reason outlives the wait that it explains."""
    pairs = {
        (short(key), short(one)) for _, stack in STACKS if _ == cloud for key, direct in graph_of(stack).before.items() for one in direct
    }  # fmt: skip
    assert set(REQUIRED[cloud]) - pairs == set()
    assert set(KEPT[cloud]) - pairs == set()
