"""The steps of a failback, which moves a stack that failed over back to its first region.

A failback is a failover from the second region to the first one, except for the data: the bucket in the first region is not a replica, so
objects are copied one by one, and a newer object in the first region is never replaced. `gpuinfra.region.failover.run` runs the steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuinfra.base.errors import DeploymentError
from gpuinfra.base.words import counted
from gpuinfra.clouds.region.failover import (
    Comparison,
    Conflict,
    DisabledReplication,
    Failback,
    Pair,
    SuspendedGroups,
    label,
)
from gpuinfra.region.failover.steps import (
    LIMIT_S,
    SHOWN,
    Failing,
    Resources,
    Second,
    Step,
    check,
    deployed,
    fence,
    polls,
    renamed,
)

SCHEMA = "gpuinfra.failback/1"
CONFLICTS = "conflicts"
FIRST = "the first region"


@dataclass(frozen=True, kw_only=True)
class Returning:
    """A stack that fails back, and how to operate on it."""

    back: Failing
    """The move from the second region to the first one. `ask` checks the first region, and `ignore` can contain `conflicts`."""
    forward: Failback
    """Requests with the regions named as in the failover."""
    resources: Resources
    """The state of the stack in the first region."""


def steps(one: Returning) -> tuple[Step, ...]:
    """Return the steps in order."""
    return tuple(_steps(one))


def _steps(one: Returning) -> Iterator[Step]:
    back, pairs = one.back, one.forward.pairs(one.resources)
    groups, second = one.forward.groups(one.resources), back.cloud.groups(back.resources)
    names = ", ".join(label(pair.source) for pair in pairs)
    what = f"check whether {back.second} responds and has no nodes, and compare the buckets with their replicas"
    yield Step(name="check", what=what, run=lambda _: _check(one, groups, pairs), where=f"{FIRST}, or a replica,")
    if second:
        what = f"scale to zero in {back.region}, and wait until no nodes are left: {', '.join(map(label, second))}"
        yield Step(name="fence", what=what, run=lambda _: fence(back, second))
    if pairs and isinstance(disabled := one.forward, DisabledReplication):
        what = f"enable the replication of {names}, so that the replicas receive the copies"
        yield Step(name="replication", what=what, run=lambda _: _replicate(disabled, pairs), where=FIRST)
    if pairs:
        what = f"copy the objects that are newer in the replicas, and wait until {names} {'contains' if len(pairs) == 1 else 'contain'} every object"
        yield Step(name="copy", what=what, run=lambda _: _copy(one, pairs), where="a region")
    if groups and isinstance(suspended := one.forward, SuspendedGroups):
        what = f"allow {', '.join(map(label, groups))} to launch nodes in {back.second}"
        yield Step(name="launch", what=what, run=lambda _: _launch(suspended, groups), where=FIRST)
    yield from deployed(back, "the copied objects", refresh=True, where=FIRST)
    yield from renamed(back, first=False)


def _check(one: Returning, groups: Sequence[str], pairs: Sequence[Pair]) -> str:
    back = one.back
    found = check(back)
    running = {group: count for group in groups if (count := one.forward.running(group))}
    if running:
        nodes = ", ".join(f"{label(group)} {count}" for group, count in running.items())
        raise DeploymentError(
            f"nodes are running in {back.second}, so the stack did not fail over, or a failback is in progress: {nodes}; "
            f"run `gpuinfra failover {back.stack} --to {back.region} --resume` to stop nodes that were running when {back.second} "
            "did not respond"
        )
    for pair in pairs:
        back.cloud.answers(Pair(source=pair.replica, replica=pair.source))
    compared = _compared(one, pairs)
    copies = [copy for each in compared.values() for copy in each.copies]
    gib = sum(copy.size for copy in copies) / 2**30
    parts = [found, f"{counted(len(copies), 'object')} ({gib:.1f} GiB) to copy"]
    return ", ".join(part for part in parts if part)


def _compared(one: Returning, pairs: Sequence[Pair]) -> Mapping[Pair, Comparison]:
    """Compare each bucket with its replica. Raises `DeploymentError` if objects are newer in the first region, unless `conflicts` is ignored."""
    compared = {pair: one.forward.compare(pair) for pair in pairs}
    found = [(pair, conflict) for pair, each in compared.items() for conflict in each.conflicts]
    if found and CONFLICTS not in one.back.ignore:
        raise DeploymentError(
            f"{counted(len(found), 'object')} in {one.back.second} {'is' if len(found) == 1 else 'are'} newer than the replica or "
            "differ from it, and must not be replaced; compare both "
            f"versions, or add --ignore {CONFLICTS} to keep both versions and make the version that was written last the current version: {_shown(found)}"
        )
    return compared


def _shown(found: Sequence[tuple[Pair, Conflict]]) -> str:
    rows = [f"\n  {label(pair.source)}/{conflict.key} {conflict.reason}" for pair, conflict in found[:SHOWN]]
    return "".join(rows) + (f"\n  and {len(found) - SHOWN} more" if len(found) > SHOWN else "")


def _replicate(cloud: DisabledReplication, pairs: Sequence[Pair]) -> str:
    for pair in pairs:
        cloud.start_replication(pair)
    return f"the replication of {counted(len(pairs), 'bucket')} is enabled"


def _copy(one: Returning, pairs: Sequence[Pair]) -> str:
    copied, left = 0, dict[Pair, list[str]]()
    for _ in polls(one.back):
        compared = _compared(one, pairs)
        left = {}
        for pair, each in compared.items():
            ignored = [conflict.copy for conflict in each.conflicts if conflict.copy]
            if copies := [*each.copies, *ignored]:
                one.forward.copy(pair, copies)
                copied += len(copies)
                left[pair] = [copy.key for copy in copies]
        if not left:
            return "; ".join([f"{counted(copied, 'object')} copied", *_kept(compared)])
    keys = [key for each in left.values() for key in each]
    raise DeploymentError(
        f"after {LIMIT_S / 60:.0f} minutes, the replicas are still changing: {', '.join(keys[:SHOWN])}; "
        f"stop the programs that write to {', '.join(label(pair.replica) for pair in left)}"
    )


def _kept(compared: Mapping[Pair, Comparison]) -> Iterator[str]:
    """Describe the objects that differ from the replica after the copy."""
    found = [(pair, conflict) for pair, each in compared.items() for conflict in each.conflicts]
    if found:
        yield f"{counted(len(found), 'object')} kept in the first region: {_shown(found)}"
    if deleted := sum(each.deleted for each in compared.values()):
        yield f"{counted(deleted, 'object')} deleted in the second region and kept in the first region"


def _launch(cloud: SuspendedGroups, groups: Sequence[str]) -> str:
    for group in groups:
        cloud.start_group(group)
    return f"{counted(len(groups), 'group')} can launch nodes"


def left_to_do(one: Returning, stacks: Sequence[Second], mode: str) -> list[str]:
    """Return what the user does in the second region after the failback, with commands. `stacks` are those of the second region."""
    back = one.back
    groups = one.forward.groups(back.resources)
    with_nodes = [each.loaded.name for each in stacks if each.plan.pools]
    if mode == "hot":
        starts = [command for group in groups if (command := one.forward.start_command(group))]
        commands = [*starts, *(f"pulumi up --refresh --stack {name}" for name in with_nodes)]
        return (
            [f"start the nodes in {back.region} again, as hot mode requires: {' && '.join(commands)}"] if groups else []
        )
    what = "the nodes" if mode == "pilot-light" else "the stack"
    why = (
        "the groups cannot launch nodes and the resources are billed"
        if isinstance(one.forward, SuspendedGroups)
        else "the resources are billed"
    )
    return [f"remove {what} in {back.region}, because {why}: pulumi destroy --stack {name}" for name in with_nodes]
