"""The groups that lack nodes at the end of a wait, and why. `NodesReady` writes them to the state, where a search for capacity reads them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpuinfra.base.words import counted
from gpuinfra.handover.causes import CapacityCause, WaitEnd
from gpuinfra.handover.ports import GroupExpected, GroupProblem, PoolExpected
from gpuinfra.handover.refusals import HINTS
from gpuinfra.handover.watch import WaitOutcome


@dataclass(frozen=True, kw_only=True)
class Shortage:
    """A group that lacks nodes."""

    pool: str
    group: str
    """Name of the group in the plan."""
    kind: str
    """Kind of capacity, as in `GroupExpected`."""
    zone: str
    missing: int
    """Number of nodes that were not launched."""
    cause: CapacityCause
    message: str
    """The unmodified text from the cloud, or a sentence if the cloud reported no reason."""
    hint: str
    """What to do."""

    @property
    def text(self) -> str:
        """The shortage in two lines, for an error message."""
        return f"  {self.group}: {self.message}\n  what to do: {self.hint}"


def shortages(outcome: WaitOutcome, pools: Sequence[PoolExpected]) -> Iterator[Shortage]:
    """Yield the groups that lack nodes. A group without a message is included if the deadline passed and all launched nodes have reported.

    So is a group whose launches are only throttled. Before the deadline, it is omitted, because it tries again.
    """
    verdict = outcome.verdict
    reported = all(node.settled or node.needs_partner for node in verdict.nodes)
    silent = outcome.ended is WaitEnd.DEADLINE and reported
    for pool in pools:
        for group in pool.groups:
            if not (missing := verdict.missing.get(group.name, 0)):
                continue
            own = [problem for problem in outcome.problems if problem.name == group.name]
            if lasting := [problem for problem in own if problem.cause is not CapacityCause.THROTTLING]:
                problem = latest(lasting)
            elif silent:
                problem = latest(own) if own else _silent(group, missing)
            else:
                continue
            yield Shortage(
                pool=pool.name, group=group.name, kind=group.kind, zone=group.zone, missing=missing, cause=problem.cause,
                message=problem.message, hint=problem.hint or HINTS[problem.cause],
            )  # fmt: skip


def latest(problems: Iterable[GroupProblem]) -> GroupProblem:
    """Return the latest of these problems. A group also reports problems of earlier deployments, such as a quota that has since been raised."""
    return max(problems, key=lambda problem: problem.at.timestamp() if problem.at else 0.0)


def _silent(group: GroupExpected, missing: int) -> GroupProblem:
    """Return the problem of a group that launched too few nodes before the deadline, and did not report why."""
    message = f"{counted(missing, 'node')} not launched before the deadline, and the cloud reported no reason"
    return GroupProblem(group=group.group, cause=CapacityCause.NO_MESSAGE, message=message)
