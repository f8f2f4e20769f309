"""Both regions after a failover, for the tests of a failback."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.region.failover import BucketPair, Comparison, Copy, ObjectConflict
from gpuinfra.plan.make import build_plan
from gpuinfra.region.clone.model import Mode
from gpuinfra.region.failover.back import Returning
from gpuinfra.region.failover.steps import SecondStack
from gpuinfra.spec.load import read_stack
from tests.region.clone.stacks import TODAY, file_of
from tests.region.failover.world import RESOURCES, World

NEWER = Copy(key="model", version="2", size=2**30, replaces="e1")
BOTH = ObjectConflict(key="log", reason="was changed in both regions, last in the second region", copy=replace(NEWER, key="log"))  # fmt: skip
AHEAD = ObjectConflict(key="late", reason="is newer in the first region", copy=None)
FIRST = [
    {
        "urn": "urn:pulumi:aws-recovery::gpuinfra::gpuinfra:aws:GpuCluster$aws:autoscaling/group:Group::train-gpu-reserved-0"
    }
]
"""The group in the state of the first region."""
OTHER = {"first": "second", "second": "first"}


class Mirror(World):
    """The same regions for requests with the regions exchanged."""

    def _ask(self, region: str, call: str) -> None:
        super()._ask(OTHER[region], f"{OTHER[region]}: {call}")


@dataclass
class Returned(World):
    """Both regions after a failover. It implements `gpuinfra.clouds.region.failover.Failback`."""

    nodes: int = 0
    copies: list[Copy] = field(default_factory=lambda: [NEWER])
    conflicts: list[ObjectConflict] = field(default_factory=list)
    shortage: str = ""
    """Why the first region has no capacity."""

    def compare(self, pair: BucketPair) -> Comparison:
        self._ask("first", f"compare {pair.source}")
        return Comparison(copies=tuple(self.copies), conflicts=tuple(self.conflicts), deleted=1)

    def copy(self, pair: BucketPair, copies: Iterable[Copy]) -> None:
        for one in copies:
            self._ask("first", f"copy {one.key}")
            self.copies = [other for other in self.copies if other != one]
            self.conflicts = [other for other in self.conflicts if other.copy != one]

    def attach_replica(self, pair: BucketPair) -> None:
        self._ask("second", f"attach {pair.replica}")

    def start_replication(self, pair: BucketPair) -> None:
        self._ask("first", f"replicate {pair.source}")

    def replicate_again(self, pair: BucketPair) -> int:
        self._ask("second", f"replicate {pair.source} again")
        return 1

    def start_group(self, group: str, count: int) -> None:
        self._ask("first", f"start {group} {count}")

    def start_command(self, group: str) -> str:
        return f"start {group}"

    def mirror(self) -> Mirror:
        """The failover in the other direction."""
        return Mirror(calls=self.calls, down=self.down, outcomes=self.outcomes, lines=self.lines)

    def returning(self, mode: Mode = "cold", ignore: str = "", **more: Any) -> Returning:
        """A failback of `aws-recovery` in these regions. `more` are fields of its `Failing`."""
        loaded, mirror = read_stack(file_of("aws-recovery")), self.mirror()
        back = replace(
            self.failing(mode), region="us-west-2", second="us-east-1", cloud=mirror, resources=RESOURCES,
            stacks=(SecondStack(loaded=loaded, plan=build_plan(loaded.spec, TODAY)),), ignore=frozenset({ignore}),
            deploy=lambda name, again: self._ask("first", f"up {name}{' again' if again else ''}"), **more,
        )  # fmt: skip
        return Returning(back=back, forward=self, resources=FIRST, await_nodes=self._await)

    def _await(self, resources: Sequence[Any]) -> str:
        self._ask("first", "wait")
        if self.shortage:
            raise DeploymentError(self.shortage)
        return "2 of 2 nodes verified"

    def second(self, mode: Mode) -> Sequence[SecondStack]:
        """The stacks of the second region."""
        found: Any = self.failing(mode)
        return found.stacks
