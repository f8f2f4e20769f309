"""The steps of a failover, derived from the declaration, the state of the stack, and the stack files of the second region.

Each step can be repeated, because the step that ran during an interruption runs again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from gpuinfra.base.errors import DeploymentError
from gpuinfra.base.words import counted
from gpuinfra.clouds.region.dns import TTL_S, Dns, moved
from gpuinfra.clouds.region.exports import Exports, ScheduledExports
from gpuinfra.clouds.region.failover import BucketPair, Failover, HomePair, ReplicatedHomes, label
from gpuinfra.clouds.region.readiness import FAIL, ReadinessLine
from gpuinfra.engine.up import UpFailed
from gpuinfra.handover.judge import FleetVerdict
from gpuinfra.inventory import shortages_of
from gpuinfra.plan.model import Plan
from gpuinfra.plan.recovery_model import NamesPlan
from gpuinfra.region.clone.storage import with_bucket
from gpuinfra.region.failover import newest
from gpuinfra.region.failover.journal import FENCE
from gpuinfra.remote.drain import JobStop
from gpuinfra.spec.load import LoadedStack
from gpuinfra.spec.storage import Lustre

Resources = Sequence[Mapping[str, Any]]
POLL_S = 15.0
LIMIT_S = 3600.0
"""Maximum time that a step waits for the cloud. A resumed failover waits again."""
ALONE_AFTER_S = 900.0
"""Time after which the replication of home directories is ended without the first region. Its end takes several minutes otherwise."""
JOBS, EXPORT, DRAIN = "jobs", "export", "drain"
REPLICATION, REPLICAS = "replication", "replicas"
SYNC, HOMES = "sync", "homes"
IGNORABLE = (JOBS, FENCE, EXPORT, DRAIN, REPLICATION, REPLICAS, SYNC, HOMES)
"""Steps that `--ignore` accepts."""
IMPORT, SCHEDULE, NAMES = "import", "schedule", "names"
SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class FailoverStep:
    """One step of a failover."""

    name: str
    what: str
    """What the step does, with the names of the resources."""
    run: Callable[[bool], str]
    """Performs the step and returns what was done. The argument is true if an earlier run started the step.

    Raises `gpuinfra.clouds.region.failover.Unreachable` and `GpuinfraError`."""
    where: str = "the second region"
    """The region to which the step sends requests, for the message if it does not respond."""
    first: bool = False
    """Whether the step requires the first region. A failover can continue without this step (`gpuinfra.region.failover.run`)."""
    ignored_as: str = ""
    """Name of the step in `--ignore`, with which the move continues if the step fails. Empty if the move cannot continue without the step."""
    outside: bool = False
    """Whether the step sends its requests to a global service, so that it is attempted even if the first region does not respond."""
    activates: str | None = None
    """The region that is recorded as active when the step starts, or None if the active region does not change."""


def activating(region: str, steps: Iterable[FailoverStep]) -> Iterator[FailoverStep]:
    """Yield steps of which the first one records that a region is active."""
    for number, step in enumerate(steps):
        yield (
            replace(step, activates=region, what=f"{step.what} (from now on, {region} is the active region)")
            if not number
            else step
        )


@dataclass(frozen=True, kw_only=True)
class SecondStack:
    """One stack of the second region."""

    loaded: LoadedStack
    plan: Plan


@dataclass(frozen=True, kw_only=True)
class StackNames:
    """The DNS names of a stack, and how to change them."""

    plan: NamesPlan
    dns: Dns


@dataclass(frozen=True, kw_only=True)
class Failing:
    """A stack that fails over, and how to operate on it."""

    stack: str
    region: str
    second: str
    resources: Resources
    """The state of the stack."""
    stacks: tuple[SecondStack, ...]
    """The stacks of the second region, in the order of their deployment."""
    cloud: Failover
    ask: Callable[[], Iterable[ReadinessLine]]
    """Checks whether the second region is ready."""
    deploy: Callable[[str, bool], None]
    """Deploys a stack. The second argument is true if an earlier run started the deployment."""
    state: Callable[[str], Resources]
    """Returns the state of a stack."""
    verdicts: Callable[[Resources], Sequence[FleetVerdict]]
    """Reads which nodes of a state are verified."""
    names: StackNames | None = None
    """The DNS names that move, or None if the stack has none."""
    exports: Exports | None = None
    """Requests that make the file systems of the first region export, or None if the cloud has none."""
    exports_there: Exports | None = None
    """Requests that resume the scheduled exports of the second region, or None if the cloud has none."""
    stop_jobs: Callable[[], Mapping[str, JobStop]] | None = None
    """Stops the jobs in the first region, with a grace time. Returns the result of each node, keyed by its title. None if no command reaches the nodes."""
    stop_first: bool = False
    """Whether the first region is stopped before the second region has nodes."""
    ignore: frozenset[str] = frozenset()
    """Topics of the check and steps in the first region that do not stop the failover."""
    sleep: Callable[[float], None] = time.sleep


def steps(failing: Failing) -> tuple[FailoverStep, ...]:
    """Return the steps in order."""
    return tuple(_steps(failing))


def _steps(failing: Failing) -> Iterator[FailoverStep]:
    """Yield the steps. Before the first region is stopped, the second one only gets nodes: nothing is imported, and no name points to it."""
    what = f"check whether {failing.second} is ready"
    yield FailoverStep(name="check", what=what, run=lambda _: check_readiness(failing))
    if failing.stop_first:
        yield from jobs_step(failing, failing.cloud.groups(failing.resources))
        yield from activating(failing.second, [*_stopped(failing), *deployed(failing)])
    else:
        yield from _ups(failing, search=True)
        yield from _verified(failing)
        yield from jobs_step(failing, failing.cloud.groups(failing.resources))
        yield from activating(failing.second, [*_stopped(failing), *_imports(failing)])
    yield from resumed(failing.stacks, failing.exports_there, failing.state, where="the second region")
    control = failing.names.dns.control_plane if failing.names else ""
    yield from renamed(failing, first=control == failing.region)


def _stopped(failing: Failing) -> Iterator[FailoverStep]:
    """Yield the steps that stop the first region and make the replicas final."""
    groups, pairs = failing.cloud.groups(failing.resources), failing.cloud.pairs(failing.resources)
    if groups:
        yield fence_step(failing, groups)
    yield from export_step(failing)
    if pairs:
        names = ", ".join(label(pair.source) for pair in pairs)
        what = f"wait until the replicas in {failing.second} contain every object of {names}"
        yield FailoverStep(name=DRAIN, what=what, run=lambda _: _drain(failing), first=True, ignored_as=DRAIN)
        what = f"disable the replication of {names}"
        outside = failing.cloud.global_replication
        yield FailoverStep(
            name=REPLICATION,
            what=what,
            run=lambda _: _stop_replication(failing),
            first=True,
            ignored_as=REPLICATION,
            outside=outside,
        )
        what = f"detach {', '.join(label(pair.replica) for pair in pairs)}, so that nothing that {failing.region} writes from now on reaches them"
        yield FailoverStep(name=REPLICAS, what=what, run=lambda _: detach(failing.cloud, pairs), ignored_as=REPLICAS)
    if isinstance(cloud := failing.cloud, ReplicatedHomes) and (homes := cloud.homes(failing.resources)):
        names = ", ".join(pair.replica for pair in homes)
        what = f"wait until the home directories {names} have the newest files of {failing.region}"
        yield FailoverStep(
            name=SYNC, what=what, run=lambda _: _sync(failing, cloud, homes), first=True, ignored_as=SYNC
        )
        what = (
            f"end the replication of the home directories, so that the nodes in {failing.second} can write to {names}"
        )
        yield FailoverStep(name=HOMES, what=what, run=lambda _: _open(failing, cloud, homes), ignored_as=HOMES)


def each_home(
    failing: Failing, homes: Sequence[HomePair], ended: Callable[[HomePair, float], bool], done: str, left: str
) -> str:
    """Ask for each pair of home directories until it has ended, with the time since the start. Raises `DeploymentError` after the last round."""
    waiting, begun = list(homes), time.monotonic()
    for _ in polls(failing):
        waiting = [pair for pair in waiting if not ended(pair, time.monotonic() - begun)]
        if not waiting:
            return done
    raise DeploymentError(f"after {LIMIT_S / 60:.0f} minutes, {left}: {', '.join(pair.replica for pair in waiting)}")


def _sync(failing: Failing, cloud: ReplicatedHomes, homes: Sequence[HomePair]) -> str:
    since = datetime.now(UTC)
    done = "the replicas of the home directories have the newest files"
    left = "replicas of home directories do not have the newest files"
    return each_home(failing, homes, lambda pair, _: cloud.home_synced(pair, since), done, left)


def _open(failing: Failing, cloud: ReplicatedHomes, homes: Sequence[HomePair]) -> str:
    def opened(pair: HomePair, seconds: float) -> bool:
        return cloud.home_opened(pair, alone=seconds >= ALONE_AFTER_S)

    done = f"nodes can write to {', '.join(pair.replica for pair in homes)}"
    return each_home(failing, homes, opened, done, "the replication of home directories has not ended")


def jobs_step(failing: Failing, groups: Sequence[str]) -> Iterator[FailoverStep]:
    """Yield the step that stops the jobs before their nodes are stopped."""
    stop = failing.stop_jobs
    if groups and stop is not None:
        what = f"stop the jobs in {failing.region}, with time to save a checkpoint"
        yield FailoverStep(
            name=JOBS, what=what, run=lambda _: _stop_jobs(failing, groups, stop), first=True, ignored_as=JOBS
        )


def _stop_jobs(failing: Failing, groups: Sequence[str], stop: Callable[[], Mapping[str, JobStop]]) -> str:
    """Stop the jobs, if the nodes of the second region are still verified."""
    _still_verified(failing)
    return newest.stop_jobs(failing.cloud, groups, stop)


def export_step(failing: Failing) -> Iterator[FailoverStep]:
    """Yield the step that exports the file systems, after the last node ended and before the buckets are compared."""
    exports = failing.exports
    file_systems = exports.exporting(failing.resources) if exports else ()
    if exports and file_systems:
        what = f"wait until {', '.join(map(label, file_systems))} {'has' if len(file_systems) == 1 else 'have'} exported every changed file"
        if isinstance(exports, ScheduledExports) and (schedules := exports.schedules(failing.resources)):
            what = f"pause the scheduled exports {', '.join(map(label, schedules))}, and {what}"
        yield FailoverStep(
            name=EXPORT,
            what=what,
            run=lambda _: newest.export_all(exports, failing.resources, polls(failing), LIMIT_S),
            first=True,
            ignored_as=EXPORT,
        )


def fence_step(failing: Failing, groups: Sequence[str]) -> FailoverStep:
    """Return the step that stops the first region."""
    what = f"scale to zero in {failing.region}, and wait until no nodes are left: {', '.join(map(label, groups))}"
    return FailoverStep(name=FENCE, what=what, run=lambda _: _fence(failing, groups), first=True, ignored_as=FENCE)


def _fence(failing: Failing, groups: Sequence[str]) -> str:
    """Stop the first region, if the nodes of the second one are still verified."""
    _still_verified(failing)
    return fence(failing.cloud, groups, polls(failing))


def _still_verified(failing: Failing) -> None:
    """Raise `DeploymentError` if nodes of the second region ended after their verification. Time can pass between two steps."""
    if not failing.stop_first:
        for second in failing.stacks:
            if second.plan.pools:
                _verify(failing, second, limit_s=0)


def renamed(failing: Failing, *, first: bool) -> Iterator[FailoverStep]:
    """Return the step that points the DNS names to the region in which the nodes are verified. It is the last step.

    With `first`, the failover continues without the step if the control plane of the records does not respond.
    """
    if (names := failing.names) is None:
        return
    yield FailoverStep(
        name=NAMES,
        what=f"point {', '.join(names.plan.hosts)} to {failing.second}",
        where=f"{names.dns.control_plane}, which changes DNS records,",
        first=first,
        ignored_as=NAMES if first else "",
        run=lambda _: _rename(failing, names),
    )


def deployed(
    failing: Failing, what: str = "the replica objects", *, refresh: bool = False, where: str = "the second region"
) -> Iterator[FailoverStep]:
    """Yield the steps that deploy the stacks, import the objects in their buckets, and wait for the nodes."""
    yield from _ups(failing, search=not refresh, where=where)
    yield from _imports(failing, what, where=where)
    yield from _verified(failing, where=where)


def up_step(stack: str) -> str:
    """Return the name of the step that deploys a stack."""
    return f"up {stack}"


def verify_step(stack: str) -> str:
    """Return the name of the step that waits for the nodes of a stack."""
    return f"verify {stack}"


def _ups(failing: Failing, *, search: bool, where: str = "the second region") -> Iterator[FailoverStep]:
    """Yield the deployments. Without `search`, the engine also reverts changes that were made outside the stack."""
    for second in failing.stacks:
        name, alternatives = second.loaded.name, any(pool.fallback for pool in second.loaded.spec.pools)
        how = f"with `pulumi up{'' if search else ' --refresh'} --stack {name}`"
        yield FailoverStep(
            name=up_step(name),
            what=f"deploy {second.loaded.path.name} {how}{', and search for capacity' if search and alternatives else ''}",
            where=where,
            run=lambda again, name=name: _up(failing, name, again),
        )


def _imports(
    failing: Failing, what: str = "the replica objects", *, where: str = "the second region"
) -> Iterator[FailoverStep]:
    for second in failing.stacks:
        mounts = [
            entry.mount
            for _, entry in with_bucket(second.loaded.spec)
            if isinstance(entry, Lustre) and "site" in second.loaded.spec.made_layers
        ]
        if mounts:
            yield FailoverStep(
                name=f"{IMPORT} {second.loaded.name}",
                what=f"import {what} into {', '.join(mounts)}",
                where=where,
                run=lambda _, name=second.loaded.name: _import(failing, name),
            )


def _verified(failing: Failing, *, where: str = "the second region") -> Iterator[FailoverStep]:
    for second in failing.stacks:
        if second.plan.pools:
            yield FailoverStep(
                name=verify_step(second.loaded.name),
                what=f"wait until the nodes of {second.loaded.name} are verified",
                where=where,
                run=lambda _, second=second: _verify(failing, second),
            )


def resumed(
    stacks: Sequence[SecondStack], exports: Exports | None, state: Callable[[str], Resources], *, where: str
) -> Iterator[FailoverStep]:
    """Yield the step that resumes the scheduled exports of stacks, after their file systems have the newest files."""
    scheduled = [one for one in stacks if any(each.export_minutes is not None for each in one.plan.file_systems)]
    if scheduled and isinstance(exports, ScheduledExports):
        mounts = ", ".join(e.mount for one in scheduled for e in one.plan.file_systems if e.export_minutes is not None)
        what = f"resume the scheduled exports of {mounts}"
        yield FailoverStep(name=SCHEDULE, what=what, run=lambda _: _resume(scheduled, exports, state), where=where)


def _resume(stacks: Sequence[SecondStack], exports: Exports, state: Callable[[str], Resources]) -> str:
    states = [state(one.loaded.name) for one in stacks]
    schedules = [one for each in states for one in newest.set_schedules(exports, each, paused=False)]
    return f"scheduled exports resumed: {', '.join(map(label, schedules))}"


def check_readiness(failing: Failing) -> str:
    """Raise `DeploymentError` if a line has the state `fail`. Returns the number of lines for each state."""
    lines = list(failing.ask())
    wrong = [line for line in lines if line.state == FAIL and line.topic not in failing.ignore]
    if wrong:
        listed = "".join(f"\n  {line.topic} {line.name}: {line.reason}; to fix: {line.fix}" for line in wrong)
        topics = " ".join(f"--ignore {topic}" for topic in dict.fromkeys(line.topic for line in wrong))
        raise DeploymentError(
            f"{failing.second} is not ready, and nothing was changed; to continue anyway, add {topics}{listed}"
        )
    counts = {
        state: sum(line.state == state for line in lines) for state in dict.fromkeys(line.state for line in lines)
    }
    return ", ".join(f"{count} {state}" for state, count in counts.items())


def fence(cloud: Failover, groups: Sequence[str], rounds: Iterable[None]) -> str:
    """Scale the groups to zero, and wait until they have no nodes. Raises `DeploymentError` after the last round."""
    for group in groups:
        cloud.stop_group(group)
    left: dict[str, int] = {}
    for _ in rounds:
        left = {group: count for group in groups if (count := cloud.running(group))}
        if not left:
            return f"no nodes are left in {counted(len(groups), 'group')}"
    running = ", ".join(f"{label(group)} {count}" for group, count in left.items())
    raise DeploymentError(
        f"nodes are still running after {LIMIT_S / 60:.0f} minutes: {running}; terminate these nodes in the cloud console"
    )


def _drain(failing: Failing) -> str:
    missing: dict[str, list[str]] = {}
    for _ in polls(failing):
        pairs = failing.cloud.pairs(failing.resources)
        missing = {pair.source: keys for pair in pairs if (keys := failing.cloud.not_replicated(pair))}
        if not missing or DRAIN in failing.ignore:
            break
    total = sum(map(len, missing.values()))
    if not total:
        return "the replicas contain every object"
    by_bucket = "; ".join(
        f"{label(bucket)}: {', '.join(keys[:SHOWN])}{' ...' if len(keys) > SHOWN else ''}"
        for bucket, keys in missing.items()
    )
    text = f"{counted(total, 'object')} {'is' if total == 1 else 'are'} not in the replicas: {by_bucket}"
    if DRAIN in failing.ignore:
        return text
    raise DeploymentError(
        f"after {LIMIT_S / 60:.0f} minutes, {text}; replicate these objects (`gpuinfra ready` prints the command)"
    )


def _stop_replication(failing: Failing) -> str:
    pairs = failing.cloud.pairs(failing.resources)
    for pair in pairs:
        failing.cloud.stop_replication(pair)
    return f"the replication of {counted(len(pairs), 'bucket')} is disabled"


def detach(cloud: Failover, pairs: Sequence[BucketPair]) -> str:
    """Detach replicas from the first region."""
    for pair in pairs:
        cloud.detach_replica(pair)
    return f"{counted(len(pairs), 'replica')} detached"


def _up(failing: Failing, name: str, again: bool) -> str:
    try:
        failing.deploy(name, again)
    except UpFailed as problem:
        judged = {failure.urn for failure in problem.failures if failure.saved}
        short = shortages_of(
            resource for resource in (failing.state(name) if judged else ()) if resource.get("urn") in judged
        )
        raise DeploymentError("\n".join([str(problem), *(shortage.text for shortage in short)])) from None
    return f"{name} is deployed"


def _import(failing: Failing, name: str) -> str:
    file_systems = failing.cloud.file_systems(failing.state(name))
    if not file_systems:
        raise DeploymentError(
            f"the state of {name} contains no file system that imports from a bucket; run `gpuinfra ready {failing.stack}`"
        )
    tasks = {failing.cloud.start_import(file_system): file_system for file_system in file_systems}
    for _ in polls(failing):
        tasks = {task: file_system for task, file_system in tasks.items() if not failing.cloud.import_ended(task)}
        if not tasks:
            return f"imported into {', '.join(map(label, file_systems))}"
    raise DeploymentError(
        f"the import did not finish within {LIMIT_S / 60:.0f} minutes: {', '.join(map(label, tasks))}"
    )


def _verify(failing: Failing, second: SecondStack, limit_s: float | None = None) -> str:
    """Wait until the nodes of a stack are verified. Raises `DeploymentError` after `limit_s`, by default the deadline of the stack."""
    name, handover = second.loaded.name, second.plan.handover
    waiting: list[str] = []
    for _ in polls(failing, handover.deadline_s if limit_s is None else limit_s):
        verdicts = failing.verdicts(failing.state(name))
        verified, expected = sum(v.verified for v in verdicts), sum(v.expected for v in verdicts)
        if not expected:
            raise DeploymentError(
                f"no nodes of {name} are expected, so none are verified; set `count` in {second.loaded.path.name}"
            )
        if verified >= (handover.floor if handover.wait == "floor" and handover.floor else expected):
            return f"{verified} of {counted(expected, 'node')} verified"
        waiting = [
            f"{node.label}: {node.outcome} {node.reason}".strip()
            for v in verdicts
            for node in v.nodes
            if node.outcome != "verified"
        ]
        waiting += [
            f"{group}: {counted(count, 'node')} not launched" for v in verdicts for group, count in v.missing.items()
        ]
        if all(v.settled for v in verdicts):
            break
    raise DeploymentError(
        f"not all nodes of {name} are verified: {'; '.join(waiting[:SHOWN])}; see `gpuinfra verify {name}`"
    )


def _rename(failing: Failing, names: StackNames) -> str:
    resources = [resource for second in failing.stacks for resource in failing.state(second.loaded.name)]
    verdicts = failing.verdicts(resources)
    records = moved(names.dns, names.plan, resources, verdicts)
    login = (
        ""
        if any(v.verified for v in verdicts)
        else f"; {names.plan.login} is unchanged, because {failing.second} has no nodes"
    )
    return f"{'; '.join(map(str, records))}; resolvers keep earlier values for at most {TTL_S} s{login}"


def polls(failing: Failing, limit_s: float = LIMIT_S) -> Iterator[None]:
    """Yield whenever the cloud is to be queried, at least once."""
    until = time.monotonic() + limit_s
    while True:
        yield
        if time.monotonic() >= until:
            return
        failing.sleep(POLL_S)
