"""`gpuinfra failover`: moves a stack to its second region."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuinfra.base.errors import GpuinfraError, UsageError
from gpuinfra.cli.active import share
from gpuinfra.cli.left_after import after_abort, after_failover
from gpuinfra.cli.obtaining import (
    deploy_with,
    obtain_with,
    overlap,
    repeat_deployments,
    show_overlap,
    without_placement,
)
from gpuinfra.cli.options import FILE, job_options
from gpuinfra.cli.ready import Paired, declared, opened, verdicts
from gpuinfra.cli.returning import jobs_stopper, names_in, returning_of, second_stacks
from gpuinfra.cli.stacks import NoStack, Resources, as_argument, exported, stacks_of
from gpuinfra.cli.up import Limit

if TYPE_CHECKING:
    from gpuinfra.clouds.region.failover import Failback, Failover
    from gpuinfra.clouds.region.reach import ConnectionFailure
    from gpuinfra.region.failover.back import Returning
    from gpuinfra.region.failover.journal import FailoverJournal
    from gpuinfra.region.failover.run import FailoverResult
    from gpuinfra.region.failover.steps import Failing, FailoverStep
    from gpuinfra.remote.drain import JobStop
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
    help="Continue even if this topic of `gpuinfra ready` or this step (jobs, fence, export, drain, replication, replicas, sync, homes) fails. Repeatable.",
)
@click.option(
    "--stop-first",
    is_flag=True,
    help="Stop the nodes of the first region before the second region has nodes. By default, the second region is verified first.",
)
@job_options("the first region")
@click.option(
    "--keep-trying",
    metavar="DURATION",
    help="Repeat the search for capacity in the second region for this time, such as 90m or 12h. Nothing changes in the first region meanwhile.",
)
@click.option(
    "--max-usd-per-hour",
    type=click.FloatRange(min=0, min_open=True),
    metavar="USD",
    help="Maximum price of a stack of the second region. The search skips more expensive alternatives, or asks without --yes.",
)
@click.option("--prices", type=FILE, help="File with your own prices, which override the prices in the catalog.")
@click.option("--dry-run", is_flag=True, help="Print the steps without performing them.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option(
    "--resume",
    is_flag=True,
    help="Continue a failover that was interrupted, and repeat the steps for which the first region did not respond.",
)
@click.option(
    "--abort",
    is_flag=True,
    help="Undo a failover that has not finished: the stack runs in its first region again. Works after each step and after an interruption.",
)
@click.option(
    "--confirm-active",
    metavar="REGION",
    help="With --abort: confirm that REGION, the first region, is the active region, if the record of the active region cannot be read.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout and progress on stderr.")
def command(
    stack: str,
    region: str,
    unreachable: str | None,
    ignore: tuple[str, ...],
    stop_first: bool,
    grace: int,
    direct: bool,
    keep_trying: str | None,
    max_usd_per_hour: float | None,
    prices: Path | None,
    dry_run: bool,
    yes: bool,
    resume: bool,
    abort: bool,
    confirm_active: str | None,
    as_json: bool,
) -> int:
    """Move STACK to its second region.

    The command checks the second region, deploys its stack files, and waits until the nodes are verified. If there is no capacity, it tries the
    alternatives in `fallback`, as `gpuinfra up` does. Until then, nothing changes in the first region. Then it stops the jobs of the first
    region with a grace time, stops its nodes, waits until the file systems have exported and the replicas are complete, disables the replication,
    imports the replicas into the file systems, and moves the DNS names in `recovery.names`. It prints the price while both regions run, and each
    step before the step runs. A journal in the second region records the steps and the active region, so `--resume` can continue after an
    interruption, also on a different machine. The capacity and the placement in the stack files of the second region can be changed before.

    Requests are repeated while a service is busy. If no service of the first region responds, and you confirm this by the name of the region, its
    steps are recorded, and `--resume` repeats them later.

    With --abort, the command undoes what the failover has changed: it starts the first region again, copies newer objects back if the second
    region could write, and stops the nodes of the second region, except in `hot` mode. If the second region could write, its jobs and nodes are
    stopped only after the nodes of the first region are verified.

    The exit code is 0 if all other steps ran, and 1 otherwise.
    """
    from gpuinfra.clouds.cloud import cloud_of
    from gpuinfra.clouds.region.readiness import TOPICS
    from gpuinfra.plan.profile import profile_of
    from gpuinfra.region.failover.back import CONFLICTS
    from gpuinfra.region.failover.back import IGNORABLE as IGNORABLE_BACK
    from gpuinfra.region.failover.journal import FailoverJournal
    from gpuinfra.region.failover.run import first_region, run_steps
    from gpuinfra.region.failover.steps import IGNORABLE, steps
    from gpuinfra.search.patience import duration

    allowed = (CONFLICTS, *IGNORABLE_BACK) if abort else tuple(dict.fromkeys((*TOPICS, *IGNORABLE)))
    if unknown := [one for one in ignore if one not in allowed]:
        raise UsageError(f"--ignore is {unknown[0]!r}; allowed: {', '.join(allowed)}")
    if abort and (resume or stop_first or unreachable):
        raise UsageError("--abort cannot be combined with --resume, --stop-first or --unreachable; omit them")
    given = declared(stack)
    if confirm_active is not None and not abort:
        raise UsageError(
            "--confirm-active requires --abort: a failover requires the second region, which contains the record; omit --confirm-active"
        )
    if confirm_active not in (None, given.plan.region):
        raise UsageError(
            f"--confirm-active is {confirm_active}; allowed: {given.plan.region}, the first region of {stack}"
        )
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
                f"gpuinfra cannot fail over {stack} yet, because it does not support failover on {profile_of(plan.cloud).title}"
            )
        check_files(paired, stack)
        journal = FailoverJournal(paired.loaded.path)
        try:
            confirmed = share(paired.loaded, paired.resources, [journal], confirm_active)
            if abort:
                returning = partial(
                    returning_of,
                    paired,
                    deploy_with([paired.loaded], paired.project, journal, refresh=True, variables=confirmed),
                    ignore,
                    grace=grace,
                    direct=direct,
                    deployed=False,
                )
                return _abort(paired, returning, journal, yes=yes, dry_run=dry_run, as_json=as_json)
            files = {
                paired.loaded.name: paired.loaded.checksum,
                **{one.name: without_placement(one).checksum for one in paired.second.files},
            }
            stop_first = stop_first or journal.stop_first
            limit = Limit.of(
                {"max_usd_per_hour": max_usd_per_hour, "prices": None if prices is None else str(prices)},
                asks=not yes and sys.stdin.isatty(),
            )
            until = None if keep_trying is None else time.time() + duration("--keep-trying", keep_trying)
            returned = cloud_of(plan.cloud).failback(region, plan.region, paired.loaded.settings)
            restart = partial(_restart, returned)
            deploy = obtain_with(paired.second.files, paired.project, journal, limit, until, restart)
            failing = _failing(
                paired,
                cloud,
                deploy,
                ignore,
                stop_first=stop_first,
                stop_jobs=jobs_stopper([(paired.loaded, plan)], lambda _: paired.resources, region, grace, direct),
            )
            plan_steps = steps(failing)
            prices_of_both = overlap(paired, limit)
            if dry_run:
                if not as_json:
                    show_overlap(prices_of_both, plan.region, region, stop_first=stop_first)
                return show(plan_steps, journal, as_json=as_json, stack=paired.loaded.name)
            start(journal, paired.loaded.name, region, files, resume=resume)
            show_overlap(prices_of_both, plan.region, region, stop_first=stop_first)
            for line in paired.checkpoints():
                click.echo(f"checkpoint  {line.name}: {line.reason}", err=True)
            if not yes:
                confirm(plan_steps, journal)
            if not journal.exists:
                journal.begin(paired.loaded.name, region, files, stop_first=stop_first)
            elif stop_first:
                journal.stop_now()
            repeat_deployments(journal, paired.second.files)
            beyond = cloud.beyond_reach(paired.resources)
            confirmed = partial(
                _confirmed_unreachable, plan.region, beyond, stated=unreachable is not None, asks=not yes
            )
            first = first_region(failing, confirmed, stated=unreachable is not None)
            say = partial(click.echo, err=as_json)
            result = run_steps(journal, plan_steps, say, first, failing.ignore)
            code = _report(result, paired.loaded, region, as_json=as_json)
            for line in after_failover(paired, result, limit):
                click.echo(line, err=as_json)
            return code
        finally:
            journal.close()


def _restart(second: Failback | None, resources: Resources) -> bool:
    """Allow groups of the second region without nodes to launch nodes, because a failback stops them. Returns whether there are such groups.

    The sizes in the state are those before the failback, so the engine restores them only if it reads the groups from the cloud.
    """
    if second is None:
        return False
    stopped = [group for group in second.groups(resources) if not second.running(group)]
    for group in stopped:
        second.start_group(group, 0)
    return bool(stopped)


def _abort(
    paired: Paired,
    connect: Callable[[], Returning],
    journal: FailoverJournal,
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Undo a failover that has not finished."""
    from gpuinfra.region.failover.abort import abort_steps
    from gpuinfra.region.failover.back import left_to_do, repeat_launch
    from gpuinfra.region.failover.run import run_steps
    from gpuinfra.region.failover.steps import FENCE

    name, given, region = paired.loaded.name, as_argument(paired.loaded.path), paired.plan.region
    if not journal.exists:
        raise UsageError(f"no failover of {name} was started, so there is nothing to undo; omit --abort")
    if journal.ended and not journal.aborting:
        raise UsageError(
            f"the failover of {name} ended at {journal.ended}; to return to {region}, run: gpuinfra failback {given}"
        )
    returning = connect()
    hot = paired.recovery.mode == "hot"  # The nodes of the second region ran before the failover.
    plan_steps = abort_steps(returning, journal, None if hot else partial(_remove_groups, paired, journal))
    if dry_run:
        return show(plan_steps, journal, as_json=as_json, stack=name)
    if not yes:
        confirm(plan_steps, journal)
    fenced = any(step.name == f"abort {FENCE}" for step in plan_steps)
    left = left_to_do(returning, second_stacks(paired), "hot") if hot and fenced else []
    journal.abort()
    repeat_launch(journal, "abort ")
    result = run_steps(journal, plan_steps, partial(click.echo, err=as_json), ignore=returning.back.ignore)
    if as_json:
        click.echo(json.dumps(result.document(name), indent=2))
    if not result.ok:
        again = f"gpuinfra failover {given} --to {paired.recovery.region} --abort"
        raise GpuinfraError(f"{result.problem}\n  to continue, run: {again}")
    journal.retire()
    click.echo(f"the failover is undone, and {name} runs in {region}", err=as_json)
    for line in after_abort(paired, _deployed(paired)) if not hot else left:
        click.echo(f"left to do: {line}", err=as_json)
    return 0


def _remove_groups(paired: Paired, journal: FailoverJournal, again: bool) -> None:
    """Delete the node groups of the second region, and what depends on them."""
    from gpuinfra.engine import find_engine
    from gpuinfra.engine.up import remove
    from gpuinfra.search.outcome import group_types

    engine, types = find_engine(lambda line: click.echo(line, err=True)), group_types(paired.plan.cloud)
    for name, resources in _deployed(paired).items():
        if urns := [str(one["urn"]) for one in resources if one.get("type") in types]:
            remove(engine, name, paired.project, urns, output=sys.stderr, keep=[journal.lock], again=again)


def _deployed(paired: Paired) -> dict[str, Resources]:
    """Return the stacks of the second region that exist, with their resources."""
    stacks: dict[str, Resources] = {}
    for file in paired.second.files:
        with suppress(NoStack):
            stacks[file.name] = exported(file.name, project=paired.project)
    return stacks


def _confirmed_unreachable(
    region: str, beyond: Sequence[str], evidence: Sequence[ConnectionFailure], *, stated: bool, asks: bool
) -> bool:
    """Return whether the user names the region that does not respond, in `--unreachable` or at the terminal. `beyond` is what continues to run there."""
    for part in beyond:
        click.echo(f"    not stopped: {part}", err=True)
    if stated or not asks or not sys.stdin.isatty():
        return stated
    for failure in evidence:
        click.echo(f"    {failure.at} {failure.service}: {failure.error}", err=True)
    text = f"No service of {region} responds. Nodes there can still run and write. To continue without {region}, enter its name"
    return bool(click.prompt(text, err=True, default="", show_default=False) == region)


def check_files(paired: Paired, stack: str) -> None:
    """Raise `UsageError` if a stack file of the second region cannot be read."""
    read = {one.path for one in paired.second.files}
    if missing := [one.path.name for one in paired.second.fresh.files if one.path not in read]:
        raise UsageError(f"{', '.join(missing)} cannot be read; run `gpuinfra ready {stack}` for the fix")


def _failing(
    paired: Paired,
    cloud: Failover,
    deploy: Callable[[str, bool], None],
    ignore: tuple[str, ...],
    *,
    stop_first: bool,
    stop_jobs: Callable[[], Mapping[str, JobStop]] | None,
) -> Failing:
    from gpuinfra.clouds.cloud import cloud_of
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
        deploy=deploy,
        state=partial(exported, project=paired.project),
        verdicts=verdicts,
        names=names_in(paired),
        exports=cloud_of(paired.plan.cloud).exports(paired.plan.region, paired.loaded.settings),
        exports_there=cloud_of(paired.plan.cloud).exports(paired.recovery.region, paired.loaded.settings),
        stop_jobs=stop_jobs,
        stop_first=stop_first,
        ignore=frozenset(ignore),
    )


def start(journal: FailoverJournal, stack: str, region: str, files: Mapping[str, str], *, resume: bool) -> None:
    """Check that `--resume` is set if, and only if, a journal exists for this move."""
    if journal.exists and journal.aborting:
        raise UsageError(f"the {journal.MOVE} of {stack} is being undone; add --abort to continue, and omit --resume")
    if resume and not journal.exists:
        raise UsageError(f"no {journal.MOVE} of {stack} was started; omit --resume")
    if journal.exists:
        journal.check(region, files)
    if journal.exists and not resume:
        when = f"ended at {journal.ended}" if journal.ended else "is not finished"
        undo = f", or run `gpuinfra {journal.BACK} {stack}` to return" if journal.ended else journal.undo
        raise UsageError(
            f"a {journal.MOVE} of {stack} to {journal.region} {when}; add --resume to continue the {journal.MOVE}{undo}"
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
    from gpuinfra.region.failover.steps import FENCE, JOBS, NAMES

    stack, given, first = loaded.name, as_argument(loaded.path), loaded.spec.where.region
    again, undo = (f"gpuinfra failover {given} --to {region} {option}" for option in ("--resume", "--abort"))
    names = (
        f"\n  to change only the DNS names, run: gpuinfra names {given} --to {region}"
        if NAMES in (*result.unreachable, *result.ignored)
        else ""
    )
    if as_json:
        click.echo(json.dumps(result.document(stack), indent=2))
    if not result.ok:
        jobs, fence = (result.journal.state(step) for step in (JOBS, FENCE))
        kept = f"\n  nothing in {first} was changed, and its nodes continue to run; the nodes obtained in {region} are billed"
        if fence:
            kept = ""
        elif jobs:
            kept = f"\n  jobs in {first} can have ended; its nodes continue to run, and the nodes obtained in {region} are billed"
        raise GpuinfraError(
            f"{result.problem}{kept}\n  to continue, run: {again}{names}\n  to return to {first}, run: {undo}"
        )
    click.echo(f"{stack} runs in {region}", err=as_json)
    for why, left in (("the first region did not respond", result.unreachable), ("ignored", result.ignored)):
        if left:
            what = (
                "its nodes can still run, be billed and write to its buckets"
                if FENCE in left
                else "the step did not run"
            )
            click.echo(f"{why}: {', '.join(left)}; {what}", err=as_json)
    if names:
        click.echo(names.strip(), err=as_json)
    return 0
