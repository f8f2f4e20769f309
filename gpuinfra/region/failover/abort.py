"""The steps that undo a failover that has not finished, so that the stack runs in its first region again.

They depend on the steps that the failover started. Before the import, no job ran in the second region, so there is no data to copy. The names of the
steps begin with `abort`, because the journal of the failover contains both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from gpuinfra.base.words import counted
from gpuinfra.clouds.region.failover import (
    BucketPair,
    DisabledReplication,
    ReadOnlyReplicas,
    SuspendedGroups,
    label,
)
from gpuinfra.region.failover.back import FIRST, Returning, copy_back, enable_replication, launch
from gpuinfra.region.failover.journal import DONE, FailoverJournal
from gpuinfra.region.failover.steps import (
    DRAIN,
    EXPORT,
    FENCE,
    IMPORT,
    NAMES,
    REPLICAS,
    REPLICATION,
    FailoverStep,
    activating,
    deployed,
    fence,
    renamed,
    up_step,
)


def abort_steps(
    returning: Returning, journal: FailoverJournal, remove: Callable[[bool], None] | None
) -> tuple[FailoverStep, ...]:
    """Return the steps in order.

    `remove` deletes the node groups of the second region, so that a later failover creates them again. Its argument is true if an earlier run
    started the deletion. None keeps the groups, as in mode `hot`.
    """
    return tuple(replace(step, name=f"abort {step.name}") for step in _steps(returning, journal, remove))


def _steps(
    returning: Returning, journal: FailoverJournal, remove: Callable[[bool], None] | None
) -> Iterator[FailoverStep]:
    back, forward, pairs = returning.back, returning.forward, returning.forward.pairs(returning.resources)
    groups, second = forward.groups(returning.resources), back.cloud.groups(back.resources)
    stopped, moved = _stopped(journal), _moved(journal)
    names = ", ".join(label(pair.source) for pair in pairs)
    if moved and second:
        what = f"scale to zero in {back.region}, and wait until no nodes are left: {', '.join(map(label, second))}"
        yield FailoverStep(name=FENCE, what=what, run=lambda _: fence(back, second))
    if journal.state(REPLICAS) not in (None, DONE) and pairs and isinstance(replicas := forward, ReadOnlyReplicas):
        # The time at which the second region began to write is required to compare the buckets.
        what = f"allow writes to {', '.join(label(pair.replica) for pair in pairs)}"
        yield FailoverStep(name=REPLICAS, what=what, run=lambda _: _open(replicas, pairs))
    if stopped and pairs and isinstance(disabled := forward, DisabledReplication):
        what = f"enable the replication of {names}"
        yield FailoverStep(name=REPLICATION, what=what, run=lambda _: enable_replication(disabled, pairs), where=FIRST)
    if moved and pairs:
        what = f"copy the objects that are newer in the replicas to {names}"
        yield FailoverStep(name="copy", what=what, run=lambda _: copy_back(returning, pairs), where="a region")
    started = list[FailoverStep]()
    if stopped and groups and isinstance(suspended := forward, SuspendedGroups):
        what = f"allow {', '.join(map(label, groups))} to launch nodes in {back.second}"
        started.append(FailoverStep(name="launch", what=what, run=lambda _: launch(suspended, groups), where=FIRST))
    if stopped:
        steps = deployed(back, "the copied objects", refresh=True, where=FIRST)
        started += [step for step in steps if moved or not step.name.startswith(IMPORT)]
    yield from activating(back.second, started)
    if journal.state(NAMES) is not None:
        yield from renamed(back, first=False)
    if second and remove is not None:
        what = f"delete the node groups in {back.region}: {', '.join(map(label, second))}"
        yield FailoverStep(name="release", what=what, run=lambda again: _release(remove, second, again))


def _stopped(journal: FailoverJournal) -> bool:
    """Return whether the failover started to stop the first region."""
    return any(journal.state(step) is not None for step in (FENCE, EXPORT, DRAIN, REPLICATION))


def _moved(journal: FailoverJournal) -> bool:
    """Return whether the second region can have written to the replicas."""
    deployments = up_step("") if journal.stop_first else IMPORT
    return any(name in (REPLICAS, NAMES) or name.startswith((IMPORT, deployments)) for name in journal.steps)


def _release(remove: Callable[[bool], None], groups: Sequence[str], again: bool) -> str:
    remove(again)
    return f"{counted(len(groups), 'group')} deleted"


def _open(cloud: ReadOnlyReplicas, pairs: Sequence[BucketPair]) -> str:
    for pair in pairs:
        cloud.open_replica(pair)
    return f"{counted(len(pairs), 'replica')} can be written"
