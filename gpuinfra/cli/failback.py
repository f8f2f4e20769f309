"""`gpuinfra failback`: moves a stack that failed over back to its first region."""

from __future__ import annotations

import json
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import click

from gpuinfra.base.errors import GpuinfraError, UsageError
from gpuinfra.cli.active import share
from gpuinfra.cli.failover import check_files, confirm, show, start
from gpuinfra.cli.obtaining import deploy_with, overlap, show_overlap
from gpuinfra.cli.options import job_options
from gpuinfra.cli.ready import Paired, declared, opened
from gpuinfra.cli.returning import returning_of, second_stacks
from gpuinfra.cli.stacks import as_argument, stacks_of
from gpuinfra.cli.up import Limit

if TYPE_CHECKING:
    from gpuinfra.region.failover.back import Returning
    from gpuinfra.region.failover.journal import FailbackJournal, FailoverJournal
    from gpuinfra.region.failover.run import FailoverResult
    from gpuinfra.spec.load import LoadedStack


@click.command("failback")
@click.argument("stack")
@click.option(
    "--ignore",
    multiple=True,
    metavar="TOPIC",
    help="Continue even if this topic of the check or this step (jobs, export) fails. With `conflicts`, continue even if objects in the first region are "
    "newer. Repeatable.",
)
@click.option(
    "--stop-first",
    is_flag=True,
    help="Stop the nodes of the second region before the first region has nodes. By default, the first region is verified first.",
)
@job_options("the second region")
@click.option("--dry-run", is_flag=True, help="Print the steps without performing them.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--resume", is_flag=True, help="Continue a failback that was interrupted.")
@click.option(
    "--abort",
    is_flag=True,
    help="Undo a failback that has not stopped the second region: the nodes that it launched in the first region are stopped.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout and progress on stderr.")
def command(
    stack: str,
    ignore: tuple[str, ...],
    stop_first: bool,
    grace: int,
    direct: bool,
    dry_run: bool,
    yes: bool,
    resume: bool,
    abort: bool,
    as_json: bool,
) -> int:
    """Move STACK back to its first region after a failover.

    The command checks the first region, copies the objects that are newer in the replicas to the buckets of the first region, and launches and
    verifies the nodes there. Until then, the second region continues to work. Then the command stops the jobs of the second region with a grace
    time, stops its nodes, waits until its file systems have exported, copies the remaining objects, deploys STACK, imports the objects into the
    file systems, and moves the DNS names back. It prints the price while both regions run, and each step before the step runs. A journal records
    the steps, so `--resume` can continue after an interruption.

    An object that is newer in the first region is never replaced. If there are such objects, the command lists them and stops.

    The exit code is 0 if all steps ran, and 1 otherwise.
    """
    from gpuinfra.clouds.region.readiness import TOPICS
    from gpuinfra.region.failover.back import (
        CONFLICTS,
        IGNORABLE,
        SCHEMA,
        expected_stop,
        left_to_do,
        repeat_launch,
        steps,
    )
    from gpuinfra.region.failover.journal import FailbackJournal, FailoverJournal
    from gpuinfra.region.failover.run import run_steps

    allowed = (*TOPICS, *IGNORABLE, CONFLICTS)
    if unknown := [one for one in ignore if one not in allowed]:
        raise UsageError(f"--ignore is {unknown[0]!r}; allowed: {', '.join(allowed)}")
    if abort and (resume or stop_first or ignore):
        raise UsageError("--abort cannot be combined with --resume, --stop-first or --ignore; omit them")
    with opened(declared(stack), stacks_of({})) as paired:
        name, region = paired.loaded.name, paired.plan.region
        check_files(paired, stack)
        with (
            closing(FailbackJournal(paired.loaded.path)) as journal,
            closing(FailoverJournal(paired.loaded.path)) as failover,
        ):
            share(paired.loaded, paired.resources, [journal, failover])
            if journal.ended and failover.began > journal.ended:
                journal.retire()
            if not dry_run and not abort:
                _check_moved(failover, journal, paired.loaded, paired.recovery.region)
            files = {one.name: one.checksum for one in (paired.loaded, *paired.second.files)}
            stop_first = stop_first or journal.stop_first
            returning = returning_of(
                paired,
                deploy_with([paired.loaded], paired.project, journal, failover, refresh=True),
                ignore,
                grace=grace,
                direct=direct,
                stop_first=stop_first,
            )
            if abort:
                return _abort(paired, returning, journal, yes=yes, dry_run=dry_run, as_json=as_json)
            plan_steps = steps(returning)
            if not as_json or not dry_run:
                show_overlap(
                    overlap(paired, Limit.of({}, asks=False)), paired.recovery.region, region, stop_first=stop_first
                )
                click.echo(
                    f"stop   no job runs from `jobs` to the end of `verify`: {expected_stop(failover.minutes)}",
                    err=True,
                )
            if dry_run:
                return show(plan_steps, journal, as_json=as_json, stack=name, schema=SCHEMA)
            start(journal, name, region, files, resume=resume)
            _check_failover(failover, paired.loaded)
            if not yes:
                confirm(plan_steps, journal)
            if not journal.exists:
                journal.begin(name, region, files, stop_first=stop_first)
            elif stop_first:
                journal.stop_now()
            repeat_launch(journal)
            left = left_to_do(returning, second_stacks(paired), paired.recovery.mode)
            say = partial(click.echo, err=as_json)
            result = run_steps(journal, plan_steps, say, ignore=returning.back.ignore)
            if result.ok:
                failover.retire()
            return _report(result, paired, left, as_json=as_json)


def _abort(
    paired: Paired, returning: Returning, journal: FailbackJournal, *, yes: bool, dry_run: bool, as_json: bool
) -> int:
    """Undo a failback that has not stopped the second region."""
    from gpuinfra.region.failover.back import undo_steps
    from gpuinfra.region.failover.run import run_steps

    name, given, second = paired.loaded.name, as_argument(paired.loaded.path), paired.recovery.region
    if not journal.exists or journal.ended:
        when = f"ended at {journal.ended}" if journal.exists else "was not started"
        raise UsageError(f"the failback of {name} {when}, so there is nothing to undo; omit --abort")
    if journal.has_stopped:
        raise UsageError(
            f"the failback of {name} has stopped the nodes in {second}, so it cannot be undone; to continue, run: gpuinfra failback {given} --resume"
        )
    plan_steps = undo_steps(returning)
    if dry_run:
        return show(plan_steps, journal, as_json=as_json, stack=name)
    if not yes:
        confirm(plan_steps, journal)
    journal.abort()
    result = run_steps(journal, plan_steps, partial(click.echo, err=as_json))
    if as_json:
        click.echo(json.dumps(result.document(name), indent=2))
    if not result.ok:
        raise GpuinfraError(f"{result.problem}\n  to continue, run: gpuinfra failback {given} --abort")
    journal.retire()
    click.echo(f"the failback is undone, and {name} runs in {second}", err=as_json)
    return 0


def _check_moved(failover: FailoverJournal, journal: FailbackJournal, loaded: LoadedStack, second: str) -> None:
    """Raise `UsageError` if no failover was started and the record does not name the second region, so that there is nothing to return."""
    if not failover.exists and not journal.exists and failover.active_region in (None, loaded.spec.where.region):
        raise UsageError(
            f"{loaded.name} runs in {loaded.spec.where.region}, because no failover to {second} was started, so there is nothing to fail back; "
            f"to move the stack, run: gpuinfra failover {as_argument(loaded.path)} --to {second}"
        )


def _check_failover(failover: FailoverJournal, loaded: LoadedStack) -> None:
    """Raise `UsageError` if the failover on this machine has steps that did not run."""
    from gpuinfra.region.failover.back import steps_not_run

    command = f"gpuinfra failover {as_argument(loaded.path)} --to {failover.region}"
    again = f"run `{command} --resume` first, or `{command} --abort` to undo it"
    if failover.exists and not failover.ended:
        raise UsageError(f"the failover of {loaded.name} is not finished; {again}")
    if left := steps_not_run(failover):
        raise UsageError(f"steps of the failover did not run: {', '.join(left)}; {again}")


def _report(result: FailoverResult, paired: Paired, left: list[str], *, as_json: bool) -> int:
    from gpuinfra.region.failover.back import LAUNCH, SCHEMA
    from gpuinfra.region.failover.steps import JOBS

    stack, first, second = paired.loaded.name, paired.plan.region, paired.recovery.region
    command = f"gpuinfra failback {as_argument(paired.loaded.path)}"
    if as_json:
        document = {**result.document(stack, SCHEMA), "left": left if result.ok else []}
        for key in ("unreachable", "evidence"):  # A failback does not continue without a region.
            del document[key]
        click.echo(json.dumps(document, indent=2))
    if not result.ok:
        kept = ""
        if result.journal.state(LAUNCH) and result.journal.undo:
            jobs = "can have ended" if result.journal.state(JOBS) else "continue to run"
            kept = (
                f"\n  the nodes in {second} continue to run, its jobs {jobs}, and the nodes obtained in {first} are billed"
                f"\n  to stop them, run: {command} --abort"
            )
        raise GpuinfraError(f"{result.problem}{kept}\n  to continue, run: {command} --resume")
    click.echo(f"{stack} runs in {first}", err=as_json)
    if result.ignored:
        click.echo(f"ignored: {', '.join(result.ignored)}; the step did not run", err=as_json)
    for line in left:
        click.echo(f"left to do: {line}", err=as_json)
    return 0
