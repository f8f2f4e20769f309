"""The steps of a failback, which moves a stack that failed over back to its first region.

A failback is a failover from the second region to the first one: it obtains and verifies the nodes of the first region before it stops the second one.
It differs in two ways. The nodes are launched with requests to the groups of the first region, because a deployment also starts the replication, which must
wait until the objects are copied. And the bucket in the first region is not a replica, so objects are copied one by one, and a newer object in the first
region is never replaced. `gpuinfra.region.failover.run` runs the steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gpuinfra.base.errors import DeploymentError
from gpuinfra.base.naming import logical
from gpuinfra.base.words import counted
from gpuinfra.clouds.region.exports import Exports
from gpuinfra.clouds.region.failover import (
    BucketPair,
    Comparison,
    DisabledReplication,
    Failback,
    ObjectConflict,
    ReplicatedHomes,
    label,
)
from gpuinfra.clouds.region.readiness import ReadinessLine, passes
from gpuinfra.region.failover.journal import DONE, FAILED, FENCE, IGNORED, UNREACHABLE, FailoverJournal, minutes_in
from gpuinfra.region.failover.newest import set_schedules
from gpuinfra.region.failover.steps import (
    DRAIN,
    EXPORT,
    HOMES,
    IMPORT,
    JOBS,
    LIMIT_S,
    REPLICAS,
    REPLICATION,
    SHOWN,
    Failing,
    FailoverStep,
    Resources,
    SecondStack,
    activating,
    check_readiness,
    deployed,
    each_home,
    export_step,
    fence,
    fence_step,
    jobs_step,
    polls,
    renamed,
    up_step,
    verify_step,
)
from gpuinfra.region.failover.steps import (
    resumed as steps_that_resume,
)

SCHEMA = "gpuinfra.failback/1"
CONFLICTS = "conflicts"
PRECOPY, COPY, REPLICATE, LAUNCH, NODES = "precopy", "copy", "replicate", "launch", "nodes"
FIRST = "the first region"
IGNORABLE = (JOBS, EXPORT)
"""Steps that `--ignore` accepts in a failback and an abort."""


@dataclass(frozen=True, kw_only=True)
class Returning:
    """A stack that fails back, and how to operate on it."""

    back: Failing
    """The move from the second region to the first one. `ask` checks the first region, and `ignore` can contain `conflicts`."""
    forward: Failback
    """Requests with the regions named as in the failover."""
    resources: Resources
    """The state of the stack in the first region."""
    await_nodes: Callable[[Resources], str]
    """Waits until the nodes of a state are verified, and runs their fabric tests meanwhile. Raises `DeploymentError` with the reasons of the cloud."""
    exports: Exports | None = None
    """Requests that pause and resume the scheduled exports of the first region, or None if the cloud has none."""


def steps(returning: Returning) -> tuple[FailoverStep, ...]:
    """Return the steps in order."""
    return tuple(_steps(returning))


def _steps(returning: Returning) -> Iterator[FailoverStep]:
    back, pairs = returning.back, returning.forward.pairs(returning.resources)
    names = ", ".join(label(pair.source) for pair in pairs)
    groups = returning.forward.groups(returning.resources)
    what = f"check whether both regions respond and {back.second} has no nodes, and compare the buckets with their replicas"
    yield FailoverStep(
        name="check", what=what, run=lambda _: _check(returning, groups, pairs), where=f"{FIRST}, or a replica,"
    )
    if pairs:
        what = f"copy the objects that are newer in the replicas to {names} while the nodes in {back.region} run"
        yield FailoverStep(name=PRECOPY, what=what, run=lambda _: copy_ahead(returning, pairs), where="a region")
    if not back.stop_first:
        yield from obtained(returning)
    yield from stopped(returning)
    if pairs and isinstance(disabled := returning.forward, DisabledReplication):
        what = f"attach {', '.join(label(pair.replica) for pair in pairs)}, so that they accept what {back.second} replicates"
        yield FailoverStep(name=REPLICAS, what=what, run=lambda _: attach(disabled, pairs))
        what = f"enable the replication of {names}, so that the replicas receive the copies"
        yield FailoverStep(name=REPLICATION, what=what, run=lambda _: enable_replication(disabled, pairs), where=FIRST)
    if pairs:
        what = f"copy the remaining objects, and wait until {names} {'contains' if len(pairs) == 1 else 'contain'} every object"
        yield FailoverStep(name=COPY, what=what, run=lambda _: copy_back(returning, pairs), where="a region")
    yield from replicated_again(returning, pairs)
    yield from homes_returned(returning)
    started = list(deployed(back, "the copied objects", refresh=True, where=FIRST))
    if back.stop_first:
        started = [*launched(returning), *started]
    yield from activating(back.second, started)
    yield from renamed(back, first=False)
    yield from resumed(returning)


def resumed(returning: Returning) -> Iterator[FailoverStep]:
    """Yield the step that resumes the scheduled exports of the first region, after its file systems have the newest files.

    The deployment before this step pauses the schedules that it creates (`gpuinfra.clouds.active_program`)."""
    back = returning.back
    yield from steps_that_resume(back.stacks, returning.exports, back.state, where=FIRST)


def obtained(returning: Returning) -> Iterator[FailoverStep]:
    """Yield the steps that obtain and verify the nodes of the first region while the second one runs."""
    counts = _declared(returning)
    yield from launched(returning)
    for stack in returning.back.stacks if any(counts.values()) else ():
        name = stack.loaded.name
        yield FailoverStep(
            name=f"{NODES} {name}",
            what=f"wait until the nodes of {name} are verified",
            where=FIRST,
            run=lambda _, name=name: returning.await_nodes(returning.back.state(name)),
        )


def launched(returning: Returning) -> Iterator[FailoverStep]:
    """Yield the step that launches the nodes of the first region with requests to their groups."""
    if counts := _declared(returning):
        nodes = ", ".join(f"{label(group)} {count}" for group, count in counts.items())
        what = f"launch the nodes in {returning.back.second}: {nodes}"
        yield FailoverStep(name=LAUNCH, what=what, run=lambda _: launch(returning.forward, counts), where=FIRST)


def stopped(returning: Returning) -> Iterator[FailoverStep]:
    """Yield the steps that stop the second region, if it has groups, and export its file systems."""
    # Queued nodes are requested by the deployment, so there can be nothing to verify before.
    back = returning.back if any(_declared(returning).values()) else replace(returning.back, stop_first=True)
    if second := back.cloud.groups(back.resources):
        yield from (replace(step, first=False) for step in jobs_step(back, second))
        yield replace(fence_step(back, second), first=False, ignored_as="")
    yield from (replace(step, first=False) for step in export_step(back))


def undo_steps(returning: Returning) -> tuple[FailoverStep, ...]:
    """Return the steps that undo a failback that has not stopped the second region: they stop the nodes that it launched in the first region."""
    forward = returning.forward
    if not (groups := forward.groups(returning.resources)):
        return ()
    what = (
        f"scale to zero in {returning.back.second}, and wait until no nodes are left: {', '.join(map(label, groups))}"
    )
    return (
        FailoverStep(
            name=f"abort {LAUNCH}", what=what, where=FIRST, run=lambda _: fence(forward, groups, polls(returning.back))
        ),
    )


def repeat_launch(journal: FailoverJournal, prefix: str = "") -> None:
    """Mark the steps that obtain the nodes of the first region to run again until the second region is stopped, because nodes can end meanwhile.

    `prefix` is the beginning of the names of the steps."""
    # A fence fails before its first change if nodes of the first region ended.
    if journal.state(f"{prefix}{FENCE}") in (None, FAILED):
        for step in journal.steps:
            if step in (f"{prefix}{LAUNCH}", f"{prefix}{JOBS}") or step.startswith(f"{prefix}{NODES} "):
                journal.repeat(step)


def _declared(returning: Returning) -> dict[str, int]:
    """Return the number of nodes that the declaration has for each group of the first region. A stopped group has the size 0, also in a refreshed state."""
    counts = {
        logical(stack.plan.name, group.name): group.count
        for stack in returning.back.stacks
        for pool in stack.plan.pools
        for group in pool.groups
    }
    return {
        group: counts.get(str(resource.get("urn")).rpartition("::")[2], 0)
        for resource in returning.resources
        for group in returning.forward.groups([resource])
    }


def _check(returning: Returning, groups: Sequence[str], pairs: Sequence[BucketPair]) -> str:
    back = returning.back
    summary = check_readiness(back)
    running = {group: count for group in groups if (count := returning.forward.running(group))}
    if running:
        nodes = ", ".join(f"{label(group)} {count}" for group, count in running.items())
        raise DeploymentError(
            f"nodes are running in {back.second}, so the stack did not fail over, or a failback is in progress: {nodes}; "
            f"run `gpuinfra failover {back.stack} --to {back.region} --resume` to stop nodes that were running when {back.second} "
            "did not respond"
        )
    set_schedules(returning.exports, returning.resources, paused=True)
    for pair in pairs:
        back.cloud.answers(BucketPair(source=pair.replica, replica=pair.source))
    for group in back.cloud.groups(back.resources):  # Nodes are launched only if the second region can be stopped.
        back.cloud.running(group)
    compared = _compared(returning, pairs)
    copies = [copy for each in compared.values() for copy in each.copies]
    gib = sum(copy.size for copy in copies) / 2**30
    parts = [summary, f"{counted(len(copies), 'object')} ({gib:.1f} GiB) to copy"]
    return ", ".join(part for part in parts if part)


def _compared(returning: Returning, pairs: Sequence[BucketPair]) -> Mapping[BucketPair, Comparison]:
    """Compare each bucket with its replica. Raises `DeploymentError` if objects are newer in the first region, unless `conflicts` is ignored."""
    compared = {pair: returning.forward.compare(pair) for pair in pairs}
    conflicts = [(pair, conflict) for pair, each in compared.items() for conflict in each.conflicts]
    if conflicts and CONFLICTS not in returning.back.ignore:
        raise DeploymentError(
            f"{counted(len(conflicts), 'object')} in {returning.back.second} {'is' if len(conflicts) == 1 else 'are'} newer than the replica or "
            "differ from it, and must not be replaced; compare both "
            f"versions, or add --ignore {CONFLICTS} to keep both versions and make the version that was written last the current version: {_shown(conflicts)}"
        )
    return compared


def _shown(bucket_pairses: Sequence[tuple[BucketPair, ObjectConflict]]) -> str:
    rows = [f"\n  {label(pair.source)}/{conflict.key} {conflict.reason}" for pair, conflict in bucket_pairses[:SHOWN]]
    return "".join(rows) + (f"\n  and {len(bucket_pairses) - SHOWN} more" if len(bucket_pairses) > SHOWN else "")


def attach(cloud: DisabledReplication, pairs: Sequence[BucketPair]) -> str:
    """Attach replicas to the first region again."""
    for pair in pairs:
        cloud.attach_replica(pair)
    return f"{counted(len(pairs), 'replica')} attached"


def enable_replication(cloud: DisabledReplication, pairs: Sequence[BucketPair]) -> str:
    """Enable the replication of buckets in the first region."""
    for pair in pairs:
        cloud.start_replication(pair)
    return f"the replication of {counted(len(pairs), 'bucket')} is enabled"


def replicated_again(returning: Returning, pairs: Sequence[BucketPair]) -> Iterator[FailoverStep]:
    """Yield the step after which the replicas receive what the first region wrote while its replication was disabled."""
    if pairs and isinstance(cloud := returning.forward, DisabledReplication):
        names = ", ".join(label(pair.source) for pair in pairs)
        what = f"write the objects of {names} again that the replicas lack, because the replication only covers new versions"
        yield FailoverStep(name=REPLICATE, what=what, run=lambda _: replicate_again(cloud, pairs), where="a region")


def replicate_again(cloud: DisabledReplication, pairs: Sequence[BucketPair]) -> str:
    """Write the objects again that the replicas lack."""
    return f"{counted(sum(cloud.replicate_again(pair) for pair in pairs), 'object')} written again"


def homes_returned(returning: Returning) -> Iterator[FailoverStep]:
    """Yield the step after which the home directories of the first region have the files of the second one."""
    if isinstance(cloud := returning.forward, ReplicatedHomes) and (homes := cloud.homes(returning.resources)):
        back, names = returning.back, ", ".join(pair.source for pair in homes)
        what = f"replicate the home directories back to {names}, and delete the files that only {back.second} has"

        def run(_: bool) -> str:
            done, left = f"{names} have the files of {back.region}", "home directories are not replicated back"
            return each_home(back, homes, lambda pair, _: cloud.home_returned(pair), done, left)

        yield FailoverStep(name=HOMES, what=what, run=run, where="a region")


def copy_ahead(returning: Returning, pairs: Sequence[BucketPair]) -> str:
    """Copy the objects that are newer in the replicas while the second region still writes, until the rest no longer gets smaller.

    A conflict that is ignored is left to `copy_back`, because it is decided by the last write."""
    copied = done_bytes = left = 0
    spent, before = 0.0, None
    for _ in polls(returning.back):
        copies = {pair: each.copies for pair, each in _compared(returning, pairs).items() if each.copies}
        left = sum(copy.size for each in copies.values() for copy in each)
        # A pass copies what was written during the pass before.
        if not copies or (before is not None and left > before / 2):
            break
        begun = time.monotonic()
        for pair, each in copies.items():
            returning.forward.copy(pair, each)
            copied += len(each)
        spent, done_bytes, before = spent + time.monotonic() - begun, done_bytes + left, left
    text = f"{counted(copied, 'object')} ({done_bytes / 2**30:.1f} GiB) copied while the nodes ran"
    if not left:
        return text
    rest = (
        f" and take about {counted(round(left * spent / done_bytes / 60), 'minute')}"
        if done_bytes and spent >= 1
        else ""
    )
    return f"{text}; {left / 2**30:.1f} GiB are left{rest}"


def copy_back(returning: Returning, pairs: Sequence[BucketPair]) -> str:
    """Copy the objects that are newer in the replicas until the buckets of the first region contain every object."""
    copied, left = 0, dict[BucketPair, list[str]]()
    for _ in polls(returning.back):
        compared = _compared(returning, pairs)
        left = {}
        for pair, each in compared.items():
            ignored = [conflict.copy for conflict in each.conflicts if conflict.copy]
            if copies := [*each.copies, *ignored]:
                returning.forward.copy(pair, copies)
                copied += len(copies)
                left[pair] = [copy.key for copy in copies]
        if not left:
            return "; ".join([f"{counted(copied, 'object')} copied", *_kept(compared)])
    keys = [key for each in left.values() for key in each]
    raise DeploymentError(
        f"after {LIMIT_S / 60:.0f} minutes, the replicas are still changing: {', '.join(keys[:SHOWN])}; "
        f"stop the programs that write to {', '.join(label(pair.replica) for pair in left)}"
    )


def _kept(compared: Mapping[BucketPair, Comparison]) -> Iterator[str]:
    """Describe the objects that differ from the replica after the copy."""
    conflicts = [(pair, conflict) for pair, each in compared.items() for conflict in each.conflicts]
    if conflicts:
        yield f"{counted(len(conflicts), 'object')} kept in the first region: {_shown(conflicts)}"
    if deleted := sum(each.deleted for each in compared.values()):
        yield f"{counted(deleted, 'object')} deleted in the second region and kept in the first region"


def launch(cloud: Failback, counts: Mapping[str, int]) -> str:
    """Launch the nodes of groups in the first region. `counts` has the number of nodes of each group, which can be 0."""
    for group, count in counts.items():
        cloud.start_group(group, count)
    return f"{counted(sum(counts.values()), 'node')} requested from {counted(len(counts), 'group')}"


def stop_line(failover: Mapping[str, Any], region: str) -> ReadinessLine:
    """Return the line about the stop of a failback to a region. `failover` is the journal in the record of the active region."""
    reason = f"the time during which no job runs is {expected_stop(partial(minutes_in, failover))}"
    return passes("failback", region, reason)


def expected_stop(minutes_of: Callable[..., float | None]) -> str:
    """Return how long no job runs during a failback, from the durations of the same steps of the failover, in words.

    `minutes_of` returns the duration of steps (`FailoverJournal.minutes`)."""
    minutes = {step: minutes_of(*names) for step, names in _STOPS.items()}
    measured = {step: found for step, found in minutes.items() if found is not None}
    rest = "and the time to copy what is written after `precopy`"
    if not measured:
        return f"unknown, because the failover has no durations of these steps, {rest}"
    listed = ", ".join(f"{step} {found:.0f}" for step, found in measured.items())
    return f"about {counted(round(sum(measured.values())), 'minute')}, as in the failover ({listed}), {rest}"


_STOPS = {
    JOBS: (JOBS,),
    FENCE: (FENCE,),
    EXPORT: (EXPORT,),
    "up": (up_step(""),),
    IMPORT: (f"{IMPORT} ",),
    "verify": (verify_step(""),),
}
"""Maps a step during which no job runs to the names, or their beginnings, of the same steps of a failover."""


def steps_not_run(failover: FailoverJournal) -> list[str]:
    """Return the steps of a failover that did not run and without which a failback could lose data."""
    unneeded = set[str]()
    if failover.state(FENCE) == DONE:  # No node is left whose jobs could be stopped.
        unneeded.add(JOBS)
    if failover.state(DRAIN) == IGNORED:  # A failback compares the buckets again.
        unneeded.add(DRAIN)
    return [name for name in failover.steps_in(UNREACHABLE, IGNORED) if name not in unneeded]


def left_to_do(returning: Returning, stacks: Sequence[SecondStack], mode: str) -> list[str]:
    """Return what the user does in the second region after the failback, with commands. `stacks` are those of the second region."""
    back = returning.back
    groups = returning.forward.groups(back.resources)
    with_nodes = [each.loaded.name for each in stacks if each.plan.pools]
    if mode == "hot":
        starts = [command for group in groups if (command := returning.forward.start_command(group))]
        commands = [*starts, *(f"pulumi up --refresh --stack {name}" for name in with_nodes)]
        return (
            [f"start the nodes in {back.region} again, as hot mode requires: {' && '.join(commands)}"] if groups else []
        )
    what = "the nodes" if mode == "pilot-light" else "the stack"
    why = (
        "the groups cannot launch nodes and the resources are billed"
        if any(map(returning.forward.start_command, groups))
        else "the resources are billed"
    )
    return [f"remove {what} in {back.region}, because {why}: pulumi destroy --stack {name}" for name in with_nodes]
