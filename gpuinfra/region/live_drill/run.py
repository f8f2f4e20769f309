"""Runs the parts of a live drill, measures them, and removes what was created, also after a failure or an interrupt."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gpuinfra.base.errors import GpuinfraError
from gpuinfra.base.words import counted
from gpuinfra.clouds.region.checkpoints import ReplicatedCheckpoint
from gpuinfra.clouds.region.drill import CopiedObject, DrillCopies
from gpuinfra.clouds.region.failover import Unreachable
from gpuinfra.region.live_drill.journal import DrillJournal, Part
from gpuinfra.region.live_drill.script import script
from gpuinfra.region.live_drill.stack import DrillStack

Resources = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class LiveDrill:
    """A live drill, with the functions that reach the engine and the cloud."""

    stack: DrillStack
    journal: DrillJournal
    found: ReplicatedCheckpoint
    copies: DrillCopies
    create: Callable[[], None]
    """Writes the stack file without nodes."""
    complete: Callable[[str, int], None]
    """Adds the nodes and the script, for a checkpoint of this size, to the stack file."""
    deploy: Callable[[], None]
    """Deploys the stack file. Raises `DeploymentError` with the reasons if the nodes are not verified."""
    state: Callable[[], Resources]
    read_seconds: Callable[[Resources], float | None]
    """Returns how long the slowest node read the checkpoint, from the evidence of the nodes."""
    remove: Callable[[], None]
    """Removes everything that the drill created. Can be repeated."""
    say: Callable[[str], None]


@dataclass(kw_only=True)
class LiveResult:
    """What a live drill measured, and why it failed."""

    seconds: dict[Part, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    interrupted: bool = False
    removed: bool = False

    @property
    def ok(self) -> bool:
        """Whether the nodes are verified, each file was read, and everything is removed."""
        return not self.problems and self.removed


def run(drill: LiveDrill) -> LiveResult:
    """Run a drill. The result has a problem for each part that failed."""
    result = LiveResult()
    try:
        for part, work in _parts(drill, result):
            with _measured(drill, result, part):
                work()
    finally:
        with _measured(drill, result, Part.REMOVE):
            drill.remove()
            drill.journal.end()
            result.removed = True
    return result


def _parts(drill: LiveDrill, result: LiveResult) -> Iterator[tuple[Part, Callable[[], None]]]:
    """Yield the parts until one fails."""
    copied: list[CopiedObject] = []

    def site() -> None:
        drill.create()
        drill.deploy()

    def copy() -> None:
        bucket = drill.copies.bucket(drill.state(), drill.stack.mount_component)
        copied.extend(drill.copies.copy(drill.found.replica, bucket, drill.found.objects))

    def nodes() -> None:
        drill.complete(script(copied), sum(one.size for one in copied))
        drill.deploy()
        seconds = drill.read_seconds(drill.state())
        if seconds is not None:
            result.seconds[Part.READ] = round(seconds, 1)

    for part, work in ((Part.SITE, site), (Part.COPY, copy), (Part.NODES, nodes)):
        yield part, work
        if result.problems:
            return
    if Part.READ in result.seconds:
        # The nodes read before they are verified.
        result.seconds[Part.NODES] = round(max(0.0, result.seconds[Part.NODES] - result.seconds[Part.READ]), 1)


@contextmanager
def _measured(drill: LiveDrill, result: LiveResult, part: Part) -> Iterator[None]:
    drill.say(f"drill  {part}: {_TEXTS[part].format(nodes=counted(drill.stack.nodes, 'node'))}")
    began = time.monotonic()
    try:
        yield
    except (GpuinfraError, Unreachable) as problem:
        result.problems.append(f"{part}: {problem}")
        drill.say(f"failed {part}: {problem}")
        return
    except KeyboardInterrupt:
        result.problems.append(f"{part}: interrupted")
        result.interrupted = True
        drill.say(f"failed {part}: interrupted")
        return
    seconds = round(time.monotonic() - began, 1)
    result.seconds[part] = seconds
    drill.journal.measured(part, seconds)
    drill.say(f"ok     {part}: {seconds:,.1f} s")


_TEXTS = {
    Part.SITE: "create the network, the keys and the bucket",
    Part.COPY: "copy the checkpoint from the replica to the bucket of the drill",
    Part.NODES: "start and verify {nodes}, which mount the bucket and read each file",
    Part.READ: "read each file",
    Part.REMOVE: "remove everything that the drill created",
}
