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
    Failback,
    ReplicatedHomes,
    label,
)
from gpuinfra.region.failover.back import (
    FIRST,
    Returning,
    attach,
    copy_back,
    enable_replication,
    homes_returned,
    launched,
    obtained,
    replicated_again,
    resumed,
    stopped,
)
from gpuinfra.region.failover.journal import DONE, FailoverJournal
from gpuinfra.region.failover.steps import (
    DRAIN,
    EXPORT,
    FENCE,
    HOMES,
    IMPORT,
    NAMES,
    REPLICAS,
    REPLICATION,
    FailoverStep,
    activating,
    deployed,
    detach,
    each_home,
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
    second = back.cloud.groups(back.resources)
    fenced, moved = _fenced(journal), _moved(journal, forward)
    names = ", ".join(label(pair.source) for pair in pairs)
    if moved:
        # The second region can have jobs, so it is stopped when the first one has nodes.
        yield from obtained(returning) if fenced and not back.stop_first else ()
        yield from stopped(returning)
    replicas = _replicas(returning, journal, pairs)
    if moved:
        yield from replicas
    if fenced and pairs and isinstance(disabled := forward, DisabledReplication):
        what = f"enable the replication of {names}"
        yield FailoverStep(name=REPLICATION, what=what, run=lambda _: enable_replication(disabled, pairs), where=FIRST)
    if moved and pairs:
        what = f"copy the objects that are newer in the replicas to {names}"
        yield FailoverStep(name="copy", what=what, run=lambda _: copy_back(returning, pairs), where="a region")
    if moved:
        yield from replicated_again(returning, pairs)
    if journal.state(HOMES) is not None:
        yield from homes_returned(returning) if moved else _homes_accept(returning)
    started = list[FailoverStep]()
    if fenced:
        started += launched(returning) if not moved or back.stop_first else ()
        steps = deployed(back, "the copied objects", refresh=True, where=FIRST)
        started += [step for step in steps if moved or not step.name.startswith(IMPORT)]
    yield from activating(back.second, started)
    yield from resumed(returning) if fenced else ()
    if not moved:
        # A second region that does not respond must not keep the first one stopped.
        yield from replicas
        yield from replicated_again(returning, pairs) if fenced else ()
    if journal.state(NAMES) is not None:
        yield from renamed(back, first=False)
    if second and remove is not None:
        what = f"delete the node groups in {back.region}: {', '.join(map(label, second))}"
        yield FailoverStep(name="release", what=what, run=lambda again: _release(remove, second, again))


def _fenced(journal: FailoverJournal) -> bool:
    """Return whether the failover started to stop the first region."""
    return any(journal.state(step) is not None for step in (FENCE, EXPORT, DRAIN, REPLICATION))


def _moved(journal: FailoverJournal, forward: Failback) -> bool:
    """Return whether the second region can have written to the replicas."""
    deployments = up_step("") if journal.stop_first else IMPORT
    # Where `up` attaches the replicas again, the second region can write to them only after they are detached.
    opened = (NAMES,) if isinstance(forward, DisabledReplication) else (NAMES, REPLICAS)
    return any(name in opened or name.startswith((IMPORT, deployments)) for name in journal.steps)


def _replicas(returning: Returning, journal: FailoverJournal, pairs: Sequence[BucketPair]) -> Iterator[FailoverStep]:
    """Yield the step that attaches the replicas to the first region, on clouds where `up` does not."""
    if journal.state(REPLICAS) is None or not pairs:
        return
    forward, names = returning.forward, ", ".join(label(pair.replica) for pair in pairs)
    if isinstance(attached := forward, DisabledReplication):
        what = f"attach {names}, so that they accept what {returning.back.second} replicates"
        yield FailoverStep(name=REPLICAS, what=what, run=lambda _: attach(attached, pairs))
    elif journal.state(REPLICAS) != DONE:
        # The time at which the second region began to write is required to compare the buckets.
        yield FailoverStep(name=REPLICAS, what=f"detach {names}", run=lambda _: detach(forward, pairs))


def _homes_accept(returning: Returning) -> Iterator[FailoverStep]:
    """Yield the step after which the deployment of the first region replicates the home directories again. No job wrote to their replicas."""
    if isinstance(cloud := returning.forward, ReplicatedHomes) and (homes := cloud.homes(returning.resources)):
        names = ", ".join(pair.replica for pair in homes)

        def run(_: bool) -> str:
            done, left = f"{names} can be replicated to again", "the replication of home directories has not ended"
            return each_home(returning.back, homes, lambda pair, _: cloud.home_accepts(pair), done, left)

        yield FailoverStep(name=HOMES, what=f"allow {returning.back.second} to replicate to {names} again", run=run)


def _release(remove: Callable[[bool], None], groups: Sequence[str], again: bool) -> str:
    remove(again)
    return f"{counted(len(groups), 'group')} deleted"
