"""A stack file, and a stand-in for the engine and the cloud, for the loop of the search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpuinfra.base.naming import logical
from gpuinfra.clouds.aws.handover.ports import REFUSALS
from gpuinfra.engine.up import EngineFailure, UpFailed
from gpuinfra.handover.ports import GroupProblem, PortUnavailable
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Plan
from gpuinfra.search.journal import SearchJournal
from gpuinfra.search.outcome import MissingNodes, Resources, missing_nodes
from gpuinfra.search.patience import Patience
from gpuinfra.search.run import Search, log, run
from gpuinfra.spec.load import read_stack, stack_in
from tests.rules.cases import TODAY

STOCK_OUT = "Could not launch Spot Instances. InsufficientInstanceCapacity - There is no Spot capacity available that matches your request."
THROTTLED = "RequestLimitExceeded: Request limit exceeded."
INTERNAL = "Server.InternalError: Internal error on launch"
QUOTA = "You have requested more vCPU capacity than your current vCPU limit of 0 allows for the instance bucket"
TEXT = """\
# The training cluster.
config:
  aws:region: us-east-1
  gpuinfra:cluster:
    name: train
    where: {cloud: aws, region: us-east-1, zone: use1-az4}
    pools:
      - name: gpu  # for training
        machine: p4d.24xlarge
        zone: use1-az4
        # agreed with finance
        capacity: {kind: spot, count: 2}
        fallback:
          - {zone: use1-az6}
          - {zone: use1-az6}
          - {zone: use1-az1, capacity: {kind: on_demand, count: 2}}
      - name: small
        machine: p4d.24xlarge
        capacity: {kind: on_demand, count: 1}
"""


class Killed(BaseException):
    """The process is killed."""


@dataclass
class World:
    """The account: which groups exist, and which zones have capacity."""

    path: Path
    refusals: dict[str, str] = field(default_factory=dict)
    """Zone -> message with which the groups of `pools` are refused."""
    pools: tuple[str, ...] = ("gpu",)
    own: dict[str, str] = field(default_factory=dict)
    """Pool -> the message with which its groups are refused instead."""
    running: tuple[str, ...] = ()
    """Pools with nodes from before the run."""
    over: dict[str, str] = field(default_factory=dict)
    """Zone -> why an alternative of pool `gpu` in this zone is over the price limit."""
    groups: dict[str, str] = field(default_factory=dict)
    """URN -> zone of its nodes."""
    calls: list[str] = field(default_factory=list)
    moment: int = 0
    kill_at: int = 0
    """Number of the moment at which the process is killed. 0 means never."""
    lines: list[str] = field(default_factory=list)
    until: float | None = None
    """End of the search, in seconds of the clock of this world."""
    now: float = 0.0
    later: dict[float, dict[str, str]] = field(default_factory=dict)
    """Time -> the refusals from then on."""
    partly: tuple[str, ...] = ()
    """Pools for which some nodes are launched."""
    unread: int = 0
    """How often the cloud does not answer the question why nodes are missing."""

    def sleep(self, seconds: float) -> None:
        """Pass time. Capacity can change."""
        self.now += seconds
        self.calls.append(f"wait {seconds:.0f}")
        for at in [one for one in self.later if one <= self.now]:
            self.refusals = self.later.pop(at)

    def tick(self) -> None:
        """Pass a moment at which the process can be killed."""
        self.moment += 1
        if self.moment == self.kill_at:
            raise Killed

    def plan(self) -> Plan:
        """The plan of the stack file as it is now."""
        return build_plan(read_stack(self.path).spec, TODAY)

    def deploy(self, again: bool) -> None:
        """Create the groups of the plan, and refuse those without capacity. Groups of other plans are deleted, as the engine does."""
        self.tick()
        plan = self.plan()
        groups = {
            f"urn:pulumi:s::p::aws:autoscaling/group:Group::{logical(plan.name, group.name)}": group
            for pool in plan.pools
            for group in pool.groups
        }
        wanted = {urn: group.zone for urn, group in groups.items()}
        moved = [urn for urn, zone in wanted.items() if self.groups.get(urn, zone) != zone]
        assert not moved, "a cluster placement group spans one zone, so a group must be removed before it moves"
        self.calls.append(f"up {' '.join(sorted(set(wanted.values())))}{' again' if again else ''}")
        self.groups = wanted
        self.tick()
        failures = [
            EngineFailure(urn=urn, message=self.own.get(groups[urn].pool, self.refusals[zone]))
            for urn, zone in wanted.items()
            if groups[urn].count and zone in self.refusals and groups[urn].pool in self.pools
        ]
        if failures:
            raise UpFailed("`pulumi up` exited with code 255", failures)

    def remove(self, urns: Sequence[str], again: bool) -> None:
        """Delete groups."""
        self.tick()
        self.calls.append("remove " + " ".join(urn.rpartition("::")[2] for urn in urns))
        for urn in urns:
            del self.groups[urn]
        self.tick()

    def settle(self, patterns: Sequence[str], again: bool) -> None:
        """Deploy the plan without the groups that match."""
        self.tick()
        self.calls.append("without " + " ".join(patterns))
        names = {pattern.rpartition("::")[2] for pattern in patterns}
        self.groups = {urn: zone for urn, zone in self.groups.items() if urn.rpartition("::")[2] not in names}
        self.tick()

    def state(self) -> Resources:
        """Return the state."""
        return [{"urn": urn, "type": "aws:autoscaling/group:Group"} for urn in self.groups]

    def missing_nodes(self, plan: Plan, resources: Resources, failures: Sequence[EngineFailure]) -> MissingNodes | None:
        """Return why nodes are missing."""
        if self.unread:
            self.unread -= 1
            raise PortUnavailable("HTTP 503")
        found = missing_nodes(plan, resources, failures)
        return found and replace(
            found,
            running=tuple(pool for pool in found.pools if pool in self.running),
            partly=tuple(pool for pool in found.pools if pool in self.partly),
        )

    def search(self, journal: SearchJournal, *, searches: bool = True) -> Search:
        """Return the search of this world, with the declared stack of the journal."""
        from gpuinfra.spec.document import parse

        text = journal.original or self.path.read_text()
        return Search(
            declared=stack_in(parse(text, self.path.name), self.path),
            journal=journal,
            plan_of=lambda loaded: build_plan(loaded.spec, TODAY),
            deploy=self.deploy,
            remove=self.remove,
            settle=self.settle,
            state=self.state,
            missing_nodes=self.missing_nodes,
            say=self.lines.append,
            over_limit=lambda loaded: self.over.get(str(loaded.spec.pools[0].zone), ""),
            searches=searches,
            clock=lambda: 0.0,
            patience=Patience(until=self.until, say=self.lines.append, now=lambda: self.now, sleep=self.sleep),
        )


def problem(name: str, message: str) -> GroupProblem:
    """A classified message of AWS."""
    found = REFUSALS.problem(name, message, None)
    return GroupProblem(group=name, cause=found.cause, message=message, hint=found.hint, name=name)


def go(world: World, *, again: bool = False, searches: bool = True) -> list[str]:
    """Run the search with its journal, and return the log of the attempts."""
    journal = SearchJournal(world.path, world.path.parent)
    try:
        if not again:
            journal.begin("find")
        run(world.search(journal, searches=searches), again=again)
        return log(journal)
    finally:
        journal.close()
