"""`gpuinfra failover`: moves a stack to its second region."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuinfra.base.errors import GpuinfraError, UsageError
from gpuinfra.cli.ready import Declared, Paired, declared, opened, verdicts
from gpuinfra.cli.stacks import as_argument, exported, stacks_of

if TYPE_CHECKING:
    from gpuinfra.clouds.region.failover import Failover
    from gpuinfra.clouds.region.reach import ConnectionFailure
    from gpuinfra.region.failover.journal import FailoverJournal
    from gpuinfra.region.failover.run import FailoverResult
    from gpuinfra.region.failover.steps import Failing, FailoverStep, StackNames
    from gpuinfra.spec.load import LoadedStack


@click.command("failover")
@click.argument("stack")
@click.option(
    "--to", "region", required=True, metavar="REGION", help="The second region, as declared in `recovery.region`."
)
@click.option(
    "--unreachable",
    metavar="REGION",
    help="Confirm that the first region, REGION, is unreachable. Its steps are skipped only if none of its services responds.",
)
@click.option(
    "--ignore",
    multiple=True,
    metavar="TOPIC",
    help="Continue even if this topic of `gpuinfra ready` or this step (fence, drain, replication) fails. Repeatable.",
)
@click.option("--dry-run", is_flag=True, help="Print the steps without performing them.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option(
    "--resume",
    is_flag=True,
    help="Continue a failover that was interrupted, and repeat the steps for which the first region did not respond.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout and progress on stderr.")
def command(
    stack: str,
    region: str,
    unreachable: str | None,
    ignore: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    resume: bool,
    as_json: bool,
) -> int:
    """Move STACK to its second region.

    The command checks the second region, stops the nodes of the first region, waits for the replicas, disables the replication,
    deploys the stack files of the second region, imports the replicas into the file systems, waits until the nodes are
    verified, and moves the DNS names in `recovery.names`. It prints each step before the step runs and records the step in a journal,
    so `--resume` can continue after an interruption.

    Requests are repeated while a service is busy. If no service of the first region responds, and you confirm this by the name of the region, its
    steps are recorded, and `--resume` repeats them later.

    The exit code is 0 if all other steps ran, and 1 otherwise.
    """
    from gpuinfra.clouds.cloud import cloud_of
    from gpuinfra.clouds.region.readiness import TOPICS
    from gpuinfra.region.failover.journal import FailoverJournal
    from gpuinfra.region.failover.run import first_region, run_steps
    from gpuinfra.region.failover.steps import IGNORABLE, steps

    if unknown := [one for one in ignore if one not in (*TOPICS, *IGNORABLE)]:
        raise UsageError(f"--ignore is {unknown[0]!r}; allowed: {', '.join(dict.fromkeys((*TOPICS, *IGNORABLE)))}")
    given = declared(stack)
    if region != given.recovery.region:
        raise UsageError(
            f"--to is {region}; allowed: {given.recovery.region}, the region in recovery.region of {stack}"
        )
    if unreachable not in (None, given.plan.region):
        raise UsageError(f"--unreachable is {unreachable}; allowed: {given.plan.region}, the first region of {stack}")
    with opened(given, stacks_of({})) as paired:
        plan = paired.plan
        cloud = cloud_of(plan.cloud).failover(plan.region, region, paired.loaded.settings)
        if cloud is None:
            raise UsageError(
                f"gpuinfra cannot fail over {stack} yet, because it does not support failover on {plan.cloud}"
            )
        check_files(paired, stack)
        journal = FailoverJournal(paired.loaded.path)
        try:
            files = {one.name: one.checksum for one in (paired.loaded, *paired.second.files)}
            failing = _failing(paired, cloud, journal, ignore)
            plan_steps = steps(failing)
            if dry_run:
                return show(plan_steps, journal, as_json=as_json, stack=paired.loaded.name)
            start(journal, paired.loaded.name, region, files, resume=resume)
            if not yes:
                confirm(plan_steps, journal)
            if not journal.exists:
                journal.begin(paired.loaded.name, region, files)
            confirmed = partial(_confirmed_unreachable, plan.region, stated=unreachable is not None, asks=not yes)
            first = first_region(failing, confirmed, stated=unreachable is not None)
            result = run_steps(journal, plan_steps, lambda line: click.echo(line, err=as_json), first)
            return _report(result, paired.loaded, region, as_json=as_json)
        finally:
            journal.close()


def _confirmed_unreachable(region: str, evidence: Sequence[ConnectionFailure], *, stated: bool, asks: bool) -> bool:
    """Return whether the user names the region that does not respond, in `--unreachable` or at the terminal."""
    if stated or not asks or not sys.stdin.isatty():
        return stated
    for one in evidence:
        click.echo(f"    {one.at} {one.service}: {one.error}", err=True)
    text = f"No service of {region} responds. Nodes there can still run and write. To continue without {region}, enter its name"
    return bool(click.prompt(text, err=True, default="", show_default=False) == region)


def check_files(paired: Paired, stack: str) -> None:
    """Raise `UsageError` if a stack file of the second region cannot be read."""
    read = {one.path for one in paired.second.files}
    if missing := [one.path.name for one in paired.second.fresh.files if one.path not in read]:
        raise UsageError(f"{', '.join(missing)} cannot be read; run `gpuinfra ready {stack}` for the fix")


def _failing(paired: Paired, cloud: Failover, journal: FailoverJournal, ignore: tuple[str, ...]) -> Failing:
    from gpuinfra.plan.make import build_plan
    from gpuinfra.region.failover.steps import Failing, SecondStack

    return Failing(
        stack=paired.loaded.name,
        region=paired.plan.region,
        second=paired.recovery.region,
        resources=paired.resources,
        stacks=tuple(
            SecondStack(loaded=one, plan=build_plan(one.spec, paired.second.today)) for one in paired.second.files
        ),
        cloud=cloud,
        ask=paired.ask,
        deploy=deploy_with(paired.second.files, paired.project, journal),
        state=partial(exported, project=paired.project),
        verdicts=verdicts,
        names=names_in(paired),
        ignore=frozenset(ignore),
    )


def names_in(paired: Declared) -> StackNames | None:
    """Return the DNS names of a stack."""
    from gpuinfra.clouds.cloud import cloud_of
    from gpuinfra.region.failover.steps import StackNames

    planned = paired.recovery.names
    dns = cloud_of(paired.plan.cloud).dns
    return (
        StackNames(plan=planned, dns=dns.connect(paired.plan.region, paired.loaded.settings))
        if planned and dns
        else None
    )


def deploy_with(files: Sequence[LoadedStack], project: Path, *journals: FailoverJournal, refresh: bool = False) -> Callable[[str, bool], None]:  # fmt: skip
    """Return the function that deploys one of the stacks of a project. The engine inherits the locks of the journals."""
    from gpuinfra.engine import find_engine
    from gpuinfra.engine.up import up

    def deploy(name: str, again: bool) -> None:
        engine = find_engine(lambda line: click.echo(line, err=True))
        value = next(one.document.value for one in files if one.name == name and one.document)
        secrets = value.get("secretsprovider") if isinstance(value, Mapping) else None
        locks = [one.lock for one in journals]
        up(engine, name, project, output=sys.stderr, secrets=secrets, keep=locks, again=again, refresh=refresh)  # fmt: skip

    return deploy


def start(journal: FailoverJournal, stack: str, region: str, files: Mapping[str, str], *, resume: bool) -> None:
    """Check that `--resume` is set if, and only if, a journal exists for this move."""
    if resume and not journal.exists:
        raise UsageError(f"no {journal.MOVE} of {stack} was started on this machine; omit --resume")
    if journal.exists:
        journal.check(region, files)
    if journal.exists and not resume:
        when = f"ended at {journal.ended}" if journal.ended else "is not finished"
        raise UsageError(
            f"a {journal.MOVE} of {stack} to {journal.region} {when}; add --resume to continue the {journal.MOVE}, or remove {journal.path} to start again"
        )


def show(
    plan_steps: tuple[FailoverStep, ...],
    journal: FailoverJournal,
    *,
    as_json: bool,
    stack: str,
    schema: str | None = None,
) -> int:
    """Print the steps."""
    from gpuinfra.region.failover.run import SCHEMA, FailoverResult

    if as_json:
        click.echo(
            json.dumps(FailoverResult(steps=plan_steps, journal=journal).document(stack, schema or SCHEMA), indent=2)
        )
        return 0
    for number, step in enumerate(plan_steps, 1):
        state = journal.state(step.name)
        click.echo(f"{number}/{len(plan_steps)} {step.name}: {step.what}{f' ({state})' if state else ''}")
    return 0


def confirm(plan_steps: tuple[FailoverStep, ...], journal: FailoverJournal) -> None:
    """Print the steps and ask whether to run them."""
    if not sys.stdin.isatty():
        raise UsageError(f"a {journal.MOVE} requires confirmation, but stdin is not a terminal; add --yes")
    for number, step in enumerate(plan_steps, 1):
        click.echo(f"{number}/{len(plan_steps)} {step.name}: {step.what}", err=True)
    click.confirm("Run these steps?", abort=True, err=True)


def _report(result: FailoverResult, loaded: LoadedStack, region: str, *, as_json: bool) -> int:
    from gpuinfra.region.failover.steps import NAMES

    stack, given = loaded.name, as_argument(loaded.path)
    again = f"gpuinfra failover {given} --to {region} --resume"
    names = (
        f"\n  to change only the DNS names, run: gpuinfra names {given} --to {region}"
        if NAMES in (*result.unreachable, *result.ignored)
        else ""
    )
    if as_json:
        click.echo(json.dumps(result.document(stack), indent=2))
    if not result.ok:
        raise GpuinfraError(f"{result.problem}\n  to continue, run: {again}{names}")
    for why, left in (("the first region did not respond", result.unreachable), ("ignored", result.ignored)):
        if left:
            click.echo(
                f"{why}: {', '.join(left)}; when the first region responds again, run: {again}{names}", err=as_json
            )
    click.echo(f"{stack} runs in {region}", err=as_json)
    return 0
