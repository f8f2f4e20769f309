"""`gpuinfra failback`: moves a stack that failed over back to its first region."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING

import click

from gpuinfra.base.errors import GpuinfraError, UsageError
from gpuinfra.cli.active import share
from gpuinfra.cli.failover import check_files, confirm, show, start
from gpuinfra.cli.obtaining import deploy_with
from gpuinfra.cli.ready import declared, opened
from gpuinfra.cli.returning import returning_of, second_stacks
from gpuinfra.cli.stacks import as_argument, stacks_of

if TYPE_CHECKING:
    from gpuinfra.region.failover.journal import FailbackJournal, FailoverJournal
    from gpuinfra.region.failover.run import FailoverResult
    from gpuinfra.spec.load import LoadedStack


@click.command("failback")
@click.argument("stack")
@click.option(
    "--ignore",
    multiple=True,
    metavar="TOPIC",
    help="Continue even if this topic of the check fails. With `conflicts`, continue even if objects in the first region are newer. Repeatable.",
)
@click.option("--dry-run", is_flag=True, help="Print the steps without performing them.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--resume", is_flag=True, help="Continue a failback that was interrupted.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout and progress on stderr.")
def command(stack: str, ignore: tuple[str, ...], dry_run: bool, yes: bool, resume: bool, as_json: bool) -> int:
    """Move STACK back to its first region after a failover.

    The command checks the first region, stops the nodes of the second region, copies the objects that are newer in the replicas to the
    buckets of the first region, deploys STACK, imports the objects into the file systems, waits until the nodes are verified, and moves
    the DNS names back. It prints each step before the step runs and records the step in a journal, so `--resume` can continue after an interruption.

    An object that is newer in the first region is never replaced. If there are such objects, the command lists them and stops.

    The exit code is 0 if all steps ran, and 1 otherwise.
    """
    from gpuinfra.clouds.region.readiness import TOPICS
    from gpuinfra.region.failover.back import CONFLICTS, SCHEMA, expected_stop, left_to_do, steps
    from gpuinfra.region.failover.journal import FailbackJournal, FailoverJournal
    from gpuinfra.region.failover.run import run_steps

    if unknown := [one for one in ignore if one not in (*TOPICS, CONFLICTS)]:
        raise UsageError(f"--ignore is {unknown[0]!r}; allowed: {', '.join((*TOPICS, CONFLICTS))}")
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
            if not dry_run:
                _check_moved(failover, journal, paired.loaded, paired.recovery.region)
            files = {one.name: one.checksum for one in (paired.loaded, *paired.second.files)}
            returning = returning_of(paired, deploy_with([paired.loaded], paired.project, journal, failover, refresh=True), ignore)  # fmt: skip
            plan_steps = steps(returning)
            if not as_json or not dry_run:
                click.echo(
                    f"stop   no node runs from `fence` to the end of `verify`: {expected_stop(failover)}", err=True
                )
            if dry_run:
                return show(plan_steps, journal, as_json=as_json, stack=name, schema=SCHEMA)
            start(journal, name, region, files, resume=resume)
            _check_failover(failover, paired.loaded)
            if not yes:
                confirm(plan_steps, journal)
            if not journal.exists:
                journal.begin(name, region, files)
            left = left_to_do(returning, second_stacks(paired), paired.recovery.mode)
            result = run_steps(journal, plan_steps, lambda line: click.echo(line, err=as_json))
            if result.ok:
                failover.retire()
            return _report(result, paired.loaded, region, left, as_json=as_json)


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


def _report(result: FailoverResult, loaded: LoadedStack, region: str, left: list[str], *, as_json: bool) -> int:
    from gpuinfra.region.failover.back import SCHEMA

    stack = loaded.name
    if as_json:
        document = {**result.document(stack, SCHEMA), "left": left if result.ok else []}
        for key in ("unreachable", "ignored", "evidence"):  # A failback skips no step.
            del document[key]
        click.echo(json.dumps(document, indent=2))
    if not result.ok:
        raise GpuinfraError(
            f"{result.problem}\n  to continue, run: gpuinfra failback {as_argument(loaded.path)} --resume"
        )
    click.echo(f"{stack} runs in {region}", err=as_json)
    for line in left:
        click.echo(f"left to do: {line}", err=as_json)
    return 0
