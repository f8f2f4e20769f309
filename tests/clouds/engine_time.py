"""How long the engine needs for a stack: simulated, and by the longest chain that cannot be avoided."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.timing import Duration, node_steps
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Plan
from gpuinfra.spec import parse_spec
from tests.clouds.graph import Graph, Key, graph, longest, simulated
from tests.clouds.required import REQUIRED
from tests.clouds.stacks import TODAY, plan_of, recording_of, recording_of_spec
from tests.rules.cases import Case, declaration, lustre
from tests.typed import present

READY = "gpuinfra:index:NodesReady"
QUICK = 5.0
"""Seconds of a resource whose type has no duration."""
UNKNOWN = 300.0
"""Seconds of a resource or a step whose duration is unknown."""


_HOME = {"kind": "home", "mount": "/home", "capacity_gib": 1024}
_BUCKET = {"kind": "object", "mount": "/data", "bucket": "auto"}
VARIANTS: dict[str, Case] = {
    "aws homes": ("aws", {"storage": [{"kind": "home", "mount": "/home"}, _BUCKET]}),
    "aws openzfs": ("aws", {"storage": [{"kind": "home", "service": "openzfs"}]}),
    "aws endpoints": ("aws", {"network.egress": "endpoints", "storage": lustre(bucket="auto")}),
    "aws plain": ("aws", {"software.image": "plain", "handover": {"burn_in": 3, "deadline_minutes": 120}}),
    "azure homes": ("azure", {"access": {"evidence_from": ["203.0.113.0/24"]}, "storage": [_HOME, _BUCKET]}),
    "azure netapp": (
        "azure",
        {
            "access": {"evidence_from": ["203.0.113.0/24"]},
            "storage": [{"kind": "home", "service": "netapp", "snapshot_days": 7}],
        },
    ),
    "gcp homes": ("gcp", {"storage": [_HOME, _BUCKET]}),
}
"""Declarations whose resources differ from those of the shipped stacks."""


@functools.cache
def plan_named(stack: str) -> Plan:
    """The plan of a shipped stack or of a variant."""
    return build_plan(parse_spec(declaration(VARIANTS[stack])), TODAY) if stack in VARIANTS else plan_of(stack)


@functools.cache
def graph_of(stack: str) -> Graph:
    """The graph of a shipped stack or of a variant."""
    return graph(recording_of_spec(declaration(VARIANTS[stack])) if stack in VARIANTS else recording_of(stack))


def seconds_of(cloud: str, stack: str, unknown: float = 0.0, quick: float = 0.0) -> Callable[[Key], float]:
    """Function that returns the seconds of a resource, including the steps on the nodes that a group launches."""
    timing, plan = present(cloud_of(cloud).timing), plan_named(stack)
    steps = max((sum(_known(one.duration, unknown) for one in node_steps(pool)) for pool in plan.pools), default=0.0)

    def seconds(key: Key) -> float:
        duration = timing.durations.get(key[0])
        own = quick if duration is None else _known(duration, unknown)
        return own + steps if key[0] == timing.group.type else own

    return seconds


def _known(duration: Duration, unknown: float) -> float:
    return unknown if duration.seconds is None else duration.seconds


def end(finished: Mapping[Key, float]) -> float:
    """Seconds until the nodes are verified, or until all resources of a stack without nodes exist."""
    ready = [value for key, value in finished.items() if key[0] == READY]
    return ready[0] if ready else max(finished.values())


def both(cloud: str, stack: str, unknown: float = UNKNOWN) -> tuple[float, float]:
    """The simulated seconds, and the seconds of the longest chain of required waits."""
    found = graph_of(stack)
    seconds = seconds_of(cloud, stack, unknown, QUICK)

    def required(key: Key, one: Key) -> bool:
        return key[0] == READY or found.passes_on(key, one) or (short(key), short(one)) in REQUIRED[cloud]

    edges = {key: tuple(one for one in direct if required(key, one)) for key, direct in found.before.items()}
    return end(simulated(found.before, seconds)), end(longest(edges, seconds))


def short(key: Key) -> str:
    """The type of a resource without package and module."""
    return key[0].rsplit(":", 1)[-1]
