"""A cloud with two regions for the tests of a failover: it records each request, and a region can stop answering."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.region.failover import BucketPair, Unreachable
from gpuinfra.clouds.region.readiness import OK, ReadinessLine
from gpuinfra.handover.judge import FleetVerdict, NodeVerdict
from gpuinfra.plan.make import build_plan
from gpuinfra.region.clone.make import clone
from gpuinfra.region.clone.model import CloneRequest, Mode
from gpuinfra.region.failover.steps import Failing, SecondStack
from gpuinfra.spec.document import parse
from gpuinfra.spec.load import read_stack, stack_in
from tests.region.clone.stacks import TODAY, file_of
from tests.region.failover.shared import MemoryRecord

PAIR = BucketPair(source="scratch-first", replica="scratch-second")
RESOURCES: list[dict[str, Any]] = [{"type": "first"}]
GOOD = ReadinessLine(topic="key", name="k", state=OK, reason="is enabled")


@dataclass
class World:
    """Both regions. It implements `gpuinfra.clouds.region.failover.Failover`."""

    calls: list[str] = field(default_factory=list)
    nodes: int = 2
    """Nodes of the group that are left after it was scaled to zero; one ends per question."""
    missing: list[list[str]] = field(default_factory=list)
    """Objects that are not replicated, for each question. Empty: none."""
    down: set[str] = field(default_factory=set)
    """Regions that do not respond."""
    busy: set[str] = field(default_factory=set)
    """Regions whose services respond with errors for longer than a request is repeated."""
    lines: list[ReadinessLine] = field(default_factory=lambda: [GOOD])
    outcomes: tuple[str, ...] = ("verified", "verified")
    reads: list[tuple[str, ...]] = field(default_factory=list)
    """Outcomes of the next reads of the nodes, before `outcomes`."""
    import_fails: bool = False
    refuses: bool = False
    """Whether the second region refuses the login."""
    slept: int = 0
    record: MemoryRecord = field(default_factory=MemoryRecord)
    """The record of the active region, in the second region."""
    global_replication: bool = False
    """Whether a global service stops the replication. It does not respond if `down` contains `global`."""

    def _ask(self, region: str, call: str) -> None:
        self._fail(region)
        self.calls.append(call)

    def _fail(self, region: str) -> None:
        if region in self.down:
            raise Unreachable(f"{region} timed out")
        if region in self.busy:
            raise DeploymentError(f"{region} returned 503 for 60 s")

    def groups(self, resources: Iterable[Any]) -> tuple[str, ...]:
        return ("gpu-0",)

    def pairs(self, resources: Iterable[Any]) -> tuple[BucketPair, ...]:
        return (PAIR,)

    def file_systems(self, resources: Iterable[Any]) -> tuple[str, ...]:
        return tuple(str(one["id"]) for one in resources if one.get("type") == "lustre")

    def answers(self, pair: BucketPair) -> None:
        if self.refuses:
            raise DeploymentError("ExpiredToken")
        self._ask("second", "answers")

    def services(self, resources: Iterable[Any]) -> dict[str, Callable[[], object]]:
        """Both services of the first region fail in an outage, and one fails on its own if `down` contains its name."""
        return {name: lambda name=name: self._connect(name) for name in ("groups", "objects")}

    def _connect(self, service: str) -> None:
        for name in ("first", service):
            self._fail(name)

    def stop_group(self, group: str) -> None:
        self._connect("groups")
        self._ask("first", f"stop {group}")

    def running(self, group: str) -> int:
        self._ask("first", f"running {group}")
        self.nodes -= 1
        return max(self.nodes + 1, 0)

    def not_replicated(self, pair: BucketPair) -> list[str]:
        self._ask("first", f"compare {pair.source}")
        return self.missing.pop(0) if self.missing else []

    def stop_replication(self, pair: BucketPair) -> None:
        self._ask("global" if self.global_replication else "first", f"disable {pair.source}")

    def detach_replica(self, pair: BucketPair) -> None:
        self._ask("second", f"detach {pair.replica}")

    def beyond_reach(self, resources: Iterable[Any]) -> tuple[str, ...]:
        return ("the nodes of gpu-0",)

    def start_import(self, file_system: str) -> str:
        self._ask("second", f"import {file_system}")
        return "task"

    def import_ended(self, task: str) -> bool:
        if self.import_fails:
            raise DeploymentError("the import task is FAILED")
        return True

    def failing(self, mode: Mode = "cold", **more: Any) -> Failing:
        """A failover of `aws-recovery` in this world."""
        return replace(
            _failing(mode),
            cloud=self,
            ask=lambda: self.lines,
            deploy=self._deploy,
            state=self._state,
            verdicts=self._verdicts,
            sleep=self._sleep,
            **more,
        )

    def _deploy(self, name: str, again: bool) -> None:
        self._ask("second", f"up {name}{' again' if again else ''}")

    def _state(self, name: str) -> Sequence[dict[str, Any]]:
        return [{"type": "lustre", "id": "fs-1"}]

    def _verdicts(self, resources: Sequence[Any]) -> list[FleetVerdict]:
        outcomes = self.reads.pop(0) if self.reads else self.outcomes
        nodes = tuple(
            NodeVerdict(label=f"gpu-{number}", cloud="aws", cause=None, instance_id=f"i-{number}", pool="gpu", group="gpu-0", machine="m", outcome=outcome,
                reason="", settled=True, private_ip=f"10.1.0.{number}")
            for number, outcome in enumerate(outcomes, 1)
        )  # fmt: skip
        return [FleetVerdict(nodes=nodes)]

    def _sleep(self, seconds: float) -> None:
        self.slept += 1


_MADE: dict[str, Failing] = {}


def _failing(mode: Mode) -> Failing:
    if mode not in _MADE:
        path = file_of("aws-recovery")
        loaded = read_stack(path)
        values: tuple[tuple[str, object], ...] = (("storage[0].bucket", PAIR.replica),)
        made = clone(loaded, path.read_text(), CloneRequest(region="us-west-2", mode=mode, values=values), TODAY)
        assert made.ok
        files = [stack_in(parse(one.text, str(one.path)), Path(one.path)) for one in made.files]
        nothing: Any = None
        _MADE[mode] = Failing(
            stack=loaded.name, region="us-east-1", second="us-west-2", resources=RESOURCES,
            stacks=tuple(SecondStack(loaded=one, plan=build_plan(one.spec, TODAY)) for one in files),
            cloud=nothing, ask=nothing, deploy=nothing, state=nothing, verdicts=nothing,
        )  # fmt: skip
    return _MADE[mode]
