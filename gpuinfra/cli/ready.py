"""`gpuinfra ready`: checks whether the second region of a stack is ready."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuinfra.base.errors import DeploymentError, EnvironmentMissing, GpuinfraError, SpecError, UsageError
from gpuinfra.cli.options import stack_options
from gpuinfra.cli.stack_context import readable_stack
from gpuinfra.cli.stacks import Resources, Stacks, as_argument, exported

if TYPE_CHECKING:
    from gpuinfra.clouds.region.active import RecordStore
    from gpuinfra.clouds.region.checkpoints import ReplicatedCheckpoint
    from gpuinfra.clouds.region.readiness import ReadinessLine
    from gpuinfra.handover.judge import FleetVerdict
    from gpuinfra.plan.model import Plan
    from gpuinfra.plan.recovery_model import RecoveryPlan
    from gpuinfra.region.readiness import DeclaredSecond
    from gpuinfra.spec.load import LoadedStack


@click.command("ready")
@click.argument("stack")
@click.option(
    "--record",
    is_flag=True,
    help="Store the result, and the last drill of this machine, in the second region, where each machine reads them.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@stack_options
def command(stack: str, record: bool, as_json: bool, stacks: Stacks) -> int:
    """Check whether the second region of STACK is ready for a failover now.

    STACK declares the second region in `recovery`. The command reads the replication and its lag, the replicas, keys, roles and
    bundles, and the quotas, machine types, reservations and images that the nodes need in the second region. It compares the stack file
    of the second region with the stack file of STACK. For each line that is not ok, it prints the command that fixes it. It changes
    nothing, except that --record replaces the result in the replica of the evidence bucket. Run it daily with --record.

    The exit code is 0 if the second region is ready, 1 if it is not, and 3 if some data could not be read and the rest is ready.
    """
    from gpuinfra.clouds.region.readiness import FAIL, UNREAD
    from gpuinfra.report import ready_text

    with opened(declared(stack), stacks) as paired:
        name, region, lines = paired.loaded.name, paired.recovery.region, (*paired.ask(), *_failback(paired))
        if record:
            _record(paired, lines)
    if as_json:
        document = {**ready_text.document(name, region, lines), **stacks.marks}
        click.echo(json.dumps(document, indent=2, ensure_ascii=True))
    else:
        if stacks.notice:
            click.echo(stacks.notice)
        for line in ready_text.text(region, lines):
            click.echo(line)
    states = {one.state for one in lines}
    return 1 if FAIL in states else EnvironmentMissing.exit_code if UNREAD in states else 0


def _failback(paired: Paired) -> Iterator[ReadinessLine]:
    """Yield the line about the stop of a failback, if the record of the active region says that the stack failed over."""
    from gpuinfra.cli.active import record_of
    from gpuinfra.region.failover.back import stop_line
    from gpuinfra.region.failover.journal import FailoverJournal

    try:
        record = record_of(paired.loaded, paired.resources)
    except DeploymentError:
        return  # Other lines state that the second region does not respond.
    if record is not None and record.active and record.region == paired.recovery.region:
        yield stop_line(record.move(FailoverJournal.MOVE) or {}, paired.plan.region)


def _record(paired: Paired, lines: Sequence[ReadinessLine]) -> None:
    """Store the result of this command in the second region. Raises `DeploymentError`."""
    from gpuinfra.clouds.region.checkpoints import TOPIC
    from gpuinfra.region import shared_results
    from gpuinfra.report import ready_text

    store = _results_store(paired.loaded, paired.resources)
    if store is None:
        raise UsageError(
            f"the state of {paired.loaded.name} contains no replica of the evidence bucket, which contains the results; deploy the stack, or omit --record"
        )
    document = ready_text.document(paired.loaded.name, paired.recovery.region, lines)
    counts = ", ".join(f"{count} {state}" for state, count in document["totals"].items() if count)
    summary = "; ".join([counts, *(f"{one.name}: {one.reason}" for one in lines if one.topic == TOPIC)])
    shared_results.write(
        store,
        paired.loaded.name,
        shared_results.results_of(
            document["ready"], summary, paired.drill(), datetime.now(UTC), live_drill=paired.live_drill()
        ),
    )
    if document["ready"]:
        _report(paired.loaded, paired.resources)
    click.echo(f"the result is recorded in {paired.recovery.region}", err=True)


def _live_drill(
    loaded: LoadedStack, plan: Plan, stack: str, shared: Mapping[str, Any] | None, now: datetime
) -> Iterator[ReadinessLine]:
    """Yield the line about the last live drill, with the recovery time that follows from what it measured."""
    from gpuinfra.plan.profile import profile_of
    from gpuinfra.plan.recovery import recovery_time
    from gpuinfra.remote import live_drills

    recovery, replication = loaded.spec.recovery, profile_of(plan.cloud).replication
    drill = live_drills.newest(loaded, shared)
    if drill is None or recovery is None or replication is None:
        return
    measured, deadline = live_drills.measured(drill), loaded.spec.handover.deadline_minutes
    rto = recovery_time(recovery, replication, plan.file_systems, deadline, measured)
    command = f"gpuinfra drill {as_argument(stack)} --live"
    yield from live_drills.lines(loaded, f"{recovery.region} live", command, rto, drill, now)


def _report(loaded: LoadedStack, resources: Resources) -> None:
    """Report to the monitoring of the cloud that the second region is ready. Raises `DeploymentError`."""
    from gpuinfra.clouds.cloud import cloud_of
    from gpuinfra.clouds.region.active import place_of
    from gpuinfra.clouds.region.failover import Unreachable

    place, recovery = place_of(resources), loaded.spec.recovery
    if place is None or recovery is None:
        return
    try:
        cloud_of(loaded.spec.cloud).report_ready(place, recovery.region, loaded.settings, resources)
    except (DeploymentError, Unreachable) as problem:
        raise DeploymentError(
            f"the result is recorded, but the cloud did not accept the report that {recovery.region} is ready, so an alarm follows after two days: "
            f"{problem}; correct this, and run the command again"
        ) from None


def _last_search(file: LoadedStack) -> str:
    """Return the time of the last search on this machine that found capacity for a stack file, or an empty text. A search that is running is not asked."""
    from gpuinfra.search.journal import SearchJournal

    try:
        with closing(SearchJournal(file.path)) as journal:
            return journal.succeeded
    except GpuinfraError:
        return ""


def _results_store(loaded: LoadedStack, resources: Resources) -> RecordStore | None:
    """Return the requests for the recorded results, or None if the state contains no second region."""
    from gpuinfra.clouds.cloud import cloud_of
    from gpuinfra.clouds.region.active import REPORT_KEY, place_of

    place, recovery = place_of(resources), loaded.spec.recovery
    if place is None or recovery is None:
        return None
    return cloud_of(loaded.spec.cloud).record(place, recovery.region, loaded.settings, REPORT_KEY)


@dataclass(frozen=True, kw_only=True)
class Declared:
    """A stack with `recovery`, before its state is read."""

    stack: str
    """The name or the path in the command."""
    loaded: LoadedStack
    plan: Plan
    recovery: RecoveryPlan


@dataclass(frozen=True, kw_only=True)
class Paired(Declared):
    """A deployed stack with `recovery`, and the files of its second region."""

    project: Path
    """The folder of the Pulumi project, which also contains the stacks of the second region."""
    second: DeclaredSecond
    resources: Resources
    ask: Callable[[], tuple[ReadinessLine, ...]]
    """Reads the cloud and returns the lines."""
    drill: Callable[[], Mapping[str, Any] | None]
    """Returns the record of the last drill, of this machine or of the recorded results."""
    live_drill: Callable[[], Mapping[str, Any] | None]
    """Returns the record of the last live drill, as `drill`."""
    checkpoints: Callable[[], tuple[ReadinessLine, ...]]
    """Reads the newest complete checkpoint in each replica. Empty if the stack declares no checkpoints."""
    newest: Callable[[], ReplicatedCheckpoint | None]
    """Reads the newest complete checkpoint of all replicas, with its objects. Raises `Unreachable` and `DeploymentError`."""


def declared(stack: str) -> Declared:
    """Read a stack that declares a second region. Raises `UsageError` if it has no `recovery`, and `SpecError` if it has errors."""
    from gpuinfra.base.day import today
    from gpuinfra.base.findings import Level
    from gpuinfra.plan.make import build_plan
    from gpuinfra.rules import check_stack
    from gpuinfra.rules.stack import STATE_RULE
    from gpuinfra.spec.load import read_stack

    day, loaded = today(), read_stack(stack)
    # The report has a line about a state backend in the region that can fail.
    errors = [one for one in check_stack(loaded, day) if one.level is Level.ERROR and one.rule != STATE_RULE]
    if errors:
        raise SpecError(errors)
    plan = build_plan(loaded.spec, day)
    if plan.recovery is None or loaded.spec.recovery is None:
        raise UsageError(
            f"{stack} has no `recovery`, so it has no second region; add `recovery` to the declaration (docs/reference/recovery.md)"
        )
    return Declared(stack=stack, loaded=loaded, plan=plan, recovery=plan.recovery)


@contextmanager
def opened(given: Declared, stacks: Stacks) -> Iterator[Paired]:
    """Open a stack whose second region is to be checked. The cloud is reachable until the `with` block ends."""
    from gpuinfra.base.day import today
    from gpuinfra.clouds.region import dns
    from gpuinfra.clouds.region.readiness import MOVE, OK, PREFLIGHT, SKIPPED, ReadinessQuestion, of_preflight
    from gpuinfra.doctor.cloud import live_rows
    from gpuinfra.region import shared_results
    from gpuinfra.region.clone.replicas import image_lines, replicas_of
    from gpuinfra.region.coverage import coverage
    from gpuinfra.region.newest_checkpoint import newest, of_checkpoints
    from gpuinfra.region.readiness import data, deployed_role, not_read, of_cloud, of_names, second_of
    from gpuinfra.remote import drills, live_drills
    from gpuinfra.spec.load import project_name

    stack, loaded, plan, recovery, day = given.stack, given.loaded, given.plan, given.loaded.spec.recovery, today()
    assert recovery is not None
    project = stacks.project(stack)
    restore = stacks.to_restore(stack)
    with readable_stack(stack, stacks, nodes=False) as resources:
        replicas = replicas_of(resources)
        second = second_of(loaded, project_name(loaded.path), day, os.environ, stacks.backend(stack), replicas.images)
        question = ReadinessQuestion(
            region=plan.region,
            recovery=given.recovery,
            rpo_minutes=recovery.rpo_minutes,
            resources=resources,
            config=loaded.settings,
            images=second.images,
            backend=second.backend,
            secrets=second.secrets,
            verdicts=lambda: verdicts(resources),
        )

        shared: list[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]] = []

        def ask() -> tuple[ReadinessLine, ...]:
            live = [
                second.copied(loaded, line)
                for one in second.files
                if one.spec.pools
                for line in of_preflight(live_rows(one, PREFLIGHT))
            ]
            from_cloud = [
                *data(loaded, second, resources),
                *deployed_role(loaded, second, partial(exported, project=project)),
            ]
            from_cloud += image_lines(loaded, question.recovery, second.files, replicas, second.rewrite)
            from_cloud += [
                *of_cloud(plan.cloud, question),
                *of_names(plan.cloud, question),
                *of_checkpoints(plan.cloud, question),
            ]
            now = datetime.now(UTC)
            recorded, drill, live_drill = shared_results.lines(
                loaded.name,
                given.recovery.region,
                _results_store(loaded, resources),
                f"gpuinfra ready {as_argument(stack)} --record",
                now,
            )
            shared.append((drill, live_drill))
            lines = [*second.merged(from_cloud, live), *coverage(loaded, second.files, _last_search), *not_read(second)]
            lines += [drills.line(loaded, now, drill), *_live_drill(loaded, plan, stack, live_drill, now), recorded]
            fixes = {
                "": restore,
                dns.NAMES_FIX: dns.NAMES_FIX.replace("STACK", as_argument(stack)),
                MOVE: MOVE.replace("STACK", stacks.named(stack)),
            }
            return tuple(
                replace(one, fix=fixes.get(one.fix, one.fix)) if one.state not in (OK, SKIPPED) else one
                for one in lines
            )

        yield Paired(
            **vars(given),
            project=project,
            second=second,
            resources=resources,
            ask=ask,
            drill=lambda: drills.newest(loaded, shared[-1][0] if shared else None),
            live_drill=lambda: live_drills.newest(loaded, shared[-1][1] if shared else None),
            checkpoints=lambda: tuple(of_checkpoints(plan.cloud, question)),
            newest=lambda: newest(plan.cloud, question),
        )


def verdicts(resources: Resources) -> list[FleetVerdict]:
    """Read which nodes are verified now."""
    from gpuinfra.handover.ports import PortUnavailable
    from gpuinfra.verification.store import polled

    try:
        return [one.verdict for one in polled(resources)]
    except PortUnavailable as problem:
        raise DeploymentError(f"the nodes cannot be read: {problem}") from None
