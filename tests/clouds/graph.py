"""The dependency graph that a program registers, and a simulation of the engine that creates its resources."""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from gpuinfra.plan.planned import is_counted
from tests.clouds.recorder import Recording, Registered

PARALLEL = 16
"""Operations that the engine runs at the same time: four for each core of the machine (`defaultParallel` in
pulumi/pkg/v3/cmd/pulumi/operations/up.go, read 2026-11-26), here with four cores."""

Key = tuple[str, str]
"""Type and logical name."""
Edges = Mapping[Key, tuple[Key, ...]]


@dataclass(frozen=True)
class Graph:
    """The resources of a program and their direct dependencies, in the order of registration."""

    resources: Mapping[Key, Registered]
    before: Edges
    """Resource -> the resources that the engine creates first."""

    @cached_property
    def ancestors(self) -> Mapping[Key, frozenset[Key]]:
        """Resource -> its direct and indirect dependencies."""
        found: dict[Key, frozenset[Key]] = {}
        for key in self.resources:
            direct = self.before[key]
            found[key] = frozenset(direct).union(*(found[one] for one in direct))
        return found

    @cached_property
    def reduced(self) -> Edges:
        """The dependencies that no other dependency of the same resource implies."""
        return {
            key: tuple(one for one in direct if not any(one in self.ancestors[other] for other in direct))
            for key, direct in self.before.items()
        }

    def passes_on(self, one: Key, value_of: Key) -> bool:
        """Whether the inputs of a resource contain a value that only exists after the other resource is created."""
        text = json.dumps(self.resources[one].inputs, default=str)
        return any(value in text for value in _values(self.resources[value_of]))


def graph(recording: Recording) -> Graph:
    """The graph of the resources that a cloud, or gpuinfra's provider, creates."""
    known = {one.urn: one for one in recording.resources}
    resources = {
        (one.type, one.name): one
        for one in recording.resources
        if is_counted(one.type, one.custom) or one.type == "gpuinfra:index:NodesReady"
    }
    before: dict[Key, tuple[Key, ...]] = {}
    for key, one in resources.items():
        found = dict.fromkeys(_created(one, known, resources))
        before[key] = tuple(found)
    return Graph(resources, before)


def _created(one: Registered, known: Mapping[str, Registered], resources: Mapping[Key, Registered]) -> Iterable[Key]:
    """Direct dependencies; a value in the state, such as a pinned image, stands for its own dependencies."""
    for urn in one.depends_on:
        other = known.get(urn)
        if other is None:
            continue
        if (other.type, other.name) in resources:
            yield other.type, other.name
        else:
            yield from _created(other, known, resources)


def _values(one: Registered) -> set[str]:
    """Values that name a resource in the inputs of others."""
    physical = [str(one.inputs[name]) for name in _PHYSICAL if isinstance(one.inputs.get(name), str)]
    return {value for value in (one.id, *physical) if len(value) > 3}


_PHYSICAL = ("bucket", "bucketName", "name", "accountName", "vaultName", "keyName", "resourceGroupName", "privateZoneName", "accountId")  # fmt: skip
"""Inputs that contain the name of the resource itself."""


def longest(edges: Edges, seconds: Callable[[Key], float]) -> dict[Key, float]:
    """Seconds until each resource exists, if the engine ran every operation as soon as its dependencies exist."""
    finished: dict[Key, float] = {}
    for key, before in edges.items():
        finished[key] = max((finished[one] for one in before), default=0.0) + seconds(key)
    return finished


def simulated(edges: Edges, seconds: Callable[[Key], float], parallel: int = PARALLEL) -> dict[Key, float]:
    """Seconds until each resource exists, with a limit of operations at the same time, in the order in which they become possible."""
    waiting = {key: len(before) for key, before in edges.items()}
    after: dict[Key, list[Key]] = {key: [] for key in edges}
    for key, before in edges.items():
        for one in before:
            after[one].append(key)
    ready = [key for key, count in waiting.items() if not count]
    running: list[tuple[float, int, Key]] = []
    order = {key: number for number, key in enumerate(edges)}
    finished: dict[Key, float] = {}
    now = 0.0
    while ready or running:
        while ready and len(running) < parallel:
            key = ready.pop(0)
            heapq.heappush(running, (now + seconds(key), order[key], key))
        now, _, done = heapq.heappop(running)
        finished[done] = now
        for one in after[done]:
            waiting[one] -= 1
            if not waiting[one]:
                ready.append(one)
    return finished
