"""`gpuinfra failover`: moves a stack to its second region."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import click

from gpuinfra.base.errors import DeploymentError, GpuinfraError, SpecError, UsageError
from gpuinfra.cli.active import share
from gpuinfra.cli.options import FILE
from gpuinfra.cli.ready import Paired, declared, opened, verdicts
from gpuinfra.cli.returning import jobs_stopper, names_in, returning_of, second_stacks
from gpuinfra.cli.stacks import NoStack, as_argument, exported, stacks_of
from gpuinfra.cli.up import Limit, running_before, search_of

if TYPE_CHECKING:
    from gpuinfra.clouds.region.failover import Failover
    from gpuinfra.clouds.region.reach import ConnectionFailure
    from gpuinfra.region.failover.journal import FailoverJournal
    from gpuinfra.region.failover.run import FailoverResult
    from gpuinfra.region.failover.steps import Failing, FailoverStep
    from gpuinfra.remote.drain import JobStop
    from gpuinfra.report.plan_json import PlanReport
    from gpuinfra.search.journal import SearchJournal
    from gpuinfra.search.run import Search
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
    help="Continue even if this topic of `gpuinfra ready` or this step (jobs, fence, export, drain, replication) fails. Repeatable.",
)
@click.option(
    "--stop-first",
    is_flag=True,
    help="Stop the nodes of the first region before the second region has nodes. By default, the second region is verified first.",
)
@click.option(
    "--grace",
    type=click.IntRange(0, 1440),
    default=5,
    show_default=True,
    metavar="MINUTES",
    help="Time that jobs in the first region have to save a checkpoint, after their signal and before they are ended.",
)
@click.option(
    "--direct", is_flag=True, help="Connect to private addresses of the nodes instead of through the cloud's tunnel."
)
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
    region could write, and stops the nodes of the second region, except in `hot` mode.

    The exit code is 0 if all other steps ran, and 1 otherwise.
    """
    from gpuinfra.clouds.cloud import cloud_of
    from gpuinfra.clouds.region.readiness import TOPICS
    from gpuinfra.region.failover.back import CONFLICTS
    from gpuinfra.region.failover.journal import FailoverJournal
    from gpuinfra.region.failover.run import first_region, run_steps
    from gpuinfra.region.failover.steps import IGNORABLE, steps
    from gpuinfra.search.patience import duration

    allowed = (CONFLICTS,) if abort else tuple(dict.fromkeys((*TOPICS, *IGNORABLE)))
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
                f"gpuinfra cannot fail over {stack} yet, because it does not support failover on {plan.cloud}"
            )
        check_files(paired, stack)
        journal = FailoverJournal(paired.loaded.path)
        try:
            confirmed = share(paired.loaded, paired.resources, [journal], confirm_active)
            if abort:
                return _abort(paired, journal, ignore, confirmed, yes=yes, dry_run=dry_run, as_json=as_json)
            files = {
                paired.loaded.name: paired.loaded.checksum,
                **{one.name: _without_placement(one).checksum for one in paired.second.files},
            }
            stop_first = stop_first or journal.stop_first
            limit = Limit.of(
                {"max_usd_per_hour": max_usd_per_hour, "prices": None if prices is None else str(prices)},
                asks=not yes and sys.stdin.isatty(),
            )
            until = None if keep_trying is None else time.time() + duration(keep_trying)
            deploy = obtain_with(paired.second.files, paired.project, journal, limit, until)
            failing = _failing(
                paired, cloud, deploy, ignore, stop_first=stop_first, stop_jobs=jobs_stopper(paired, grace, direct)
            )
            plan_steps = steps(failing)
            overlap = _overlap(paired, limit)
            if dry_run:
                if not as_json:
                    _show_overlap(paired, overlap, stop_first=stop_first)
                return show(plan_steps, journal, as_json=as_json, stack=paired.loaded.name)
            start(journal, paired.loaded.name, region, files, resume=resume)
            _show_overlap(paired, overlap, stop_first=stop_first)
            for line in paired.checkpoints():
                click.echo(f"checkpoint  {line.name}: {line.reason}", err=True)
            if not yes:
                confirm(plan_steps, journal)
            if not journal.exists:
                journal.begin(paired.loaded.name, region, files, stop_first=stop_first)
            elif stop_first:
                journal.stop_now()
            _repeat_deployments(journal, paired.second.files)
            confirmed = partial(_confirmed_unreachable, plan.region, stated=unreachable is not None, asks=not yes)
            first = first_region(failing, confirmed, stated=unreachable is not None)
            result = run_steps(journal, plan_steps, lambda line: click.echo(line, err=as_json), first)
            code = _report(result, paired.loaded, region, as_json=as_json)
            for line in _left(paired, result, limit):
                click.echo(line, err=as_json)
            return code
        finally:
            journal.close()


def _abort(
    paired: Paired,
    journal: FailoverJournal,
    ignore: tuple[str, ...],
    variables: Mapping[str, str],
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Undo a failover that has not finished."""
    from gpuinfra.region.failover.abort import abort_steps
    from gpuinfra.region.failover.back import left_to_do
    from gpuinfra.region.failover.run import run_steps
    from gpuinfra.region.failover.steps import FENCE

    name, given, region = paired.loaded.name, as_argument(paired.loaded.path), paired.plan.region
    if not journal.exists:
        raise UsageError(f"no failover of {name} was started, so there is nothing to undo; omit --abort")
    if journal.ended and not journal.aborting:
        raise UsageError(
            f"the failover of {name} ended at {journal.ended}; to return to {region}, run: gpuinfra failback {given}"
        )
    returning = returning_of(
        paired,
        deploy_with([paired.loaded], paired.project, journal, refresh=True, variables=variables),
        ignore,
        deployed=False,
    )
    hot = paired.recovery.mode == "hot"  # The nodes of the second region ran before the failover.
    plan_steps = abort_steps(returning, journal, None if hot else partial(_remove_groups, paired, journal))
    if dry_run:
        return show(plan_steps, journal, as_json=as_json, stack=name)
    if not yes:
        confirm(plan_steps, journal)
    fenced = any(step.name == f"abort {FENCE}" for step in plan_steps)
    left = left_to_do(returning, second_stacks(paired), "hot") if hot and fenced else []
    journal.abort()
    result = run_steps(journal, plan_steps, lambda line: click.echo(line, err=as_json))
    if as_json:
        click.echo(json.dumps(result.document(name), indent=2))
    if not result.ok:
        again = f"gpuinfra failover {given} --to {paired.recovery.region} --abort"
        raise GpuinfraError(f"{result.problem}\n  to continue, run: {again}")
    journal.retire()
    click.echo(f"the failover is undone, and {name} runs in {region}", err=as_json)
    for line in _left_after_abort(paired) if not hot else left:
        click.echo(f"left to do: {line}", err=as_json)
    return 0


def _remove_groups(paired: Paired, journal: FailoverJournal, again: bool) -> None:
    """Delete the node groups of the second region, and what depends on them."""
    from gpuinfra.engine import find_engine
    from gpuinfra.engine.up import remove
    from gpuinfra.search.outcome import group_types

    engine, types = find_engine(lambda line: click.echo(line, err=True)), group_types(paired.plan.cloud)
    for file in paired.second.files:
        try:
            resources = exported(file.name, project=paired.project)
        except NoStack:
            continue
        if urns := [str(one["urn"]) for one in resources if one.get("type") in types]:
            remove(engine, file.name, paired.project, urns, output=sys.stderr, keep=[journal.lock], again=again)


def _left(paired: Paired, result: FailoverResult, limit: Limit) -> list[str]:
    """Return what is billed after the failover, what is not protected, and the next command."""
    from gpuinfra.spec.load import read_stack

    first, second, given = paired.plan.region, paired.recovery.region, as_argument(paired.loaded.path)
    lines = []
    for file in paired.second.files:
        cost = limit.report(read_stack(file.path)).cost
        lines.append(f"billed: {file.name} in {second}: {cost.in_words if cost else 'an unknown amount'}")
    lines.append(
        f"billed: {paired.loaded.name} in {first}: {_price_without_nodes(paired.loaded, limit)}, without nodes"
    )
    lines += [f"checkpoint: {line.name}: {line.reason}" for line in paired.checkpoints()] if result.ok else []
    lines.append(f"not protected: what {second} writes from now on is in no other region until the failback")
    if not result.unreachable and not result.ignored:
        lines.append(f"next: gpuinfra failback {given}, when {first} works again")
    return lines


def _price_without_nodes(loaded: LoadedStack, limit: Limit) -> str:
    """Return the price of the resources that a stack without nodes keeps."""
    from gpuinfra.base.people_files import existing
    from gpuinfra.search.failure import without_nodes
    from gpuinfra.spec.document import parse
    from gpuinfra.spec.load import stack_in

    try:
        cost = limit.report(
            stack_in(parse(without_nodes(loaded, existing(loaded.path)), loaded.path.name), loaded.path)
        ).cost
    except (UsageError, SpecError):  # Some kinds of capacity require nodes.
        cost = None
    return cost.in_words if cost else "an unknown amount"


def _left_after_abort(paired: Paired) -> list[str]:
    """Return what the second region still bills, with the command that removes it."""
    names = [file.name for file in paired.second.files if file.spec.pools]
    return [
        f"the stack {name} in {paired.recovery.region} has no nodes, but its other resources are billed; to remove them, run: pulumi destroy --stack {name}"
        for name in names
    ]


def _overlap(paired: Paired, limit: Limit) -> list[tuple[str, PlanReport]]:
    """Return the region and the price of each stack that runs while both regions have nodes."""
    own, second = (paired.plan.region, paired.loaded), [(paired.recovery.region, file) for file in paired.second.files]
    return [(region, limit.report(loaded)) for region, loaded in (own, *second)]


def _show_overlap(paired: Paired, reports: Sequence[tuple[str, PlanReport]], *, stop_first: bool) -> None:
    """Print the price of each region, and the sum while both regions run."""
    total, complete = 0.0, True
    for region, report in reports:
        cost = report.cost
        click.echo(
            f"price  {report.stack} in {region}: {cost.in_words if cost else 'unknown'}",
            err=True,
        )
        total, complete = total + (cost.usd_per_hour if cost else 0.0), complete and bool(cost and cost.nodes_priced)
    at_least = "" if complete else "at least "
    if stop_first:
        click.echo(
            f"price  --stop-first: no node runs from the fence until the nodes in {paired.recovery.region} are verified",
            err=True,
        )
    else:
        click.echo(
            f"price  both regions, until {paired.plan.region} is stopped: {at_least}{total:,.2f} USD an hour", err=True
        )


def _repeat_deployments(journal: FailoverJournal, files: Sequence[LoadedStack]) -> None:
    """Mark the deployments that run again: all before the first region is stopped, because nodes can end, and later those whose file has changed."""
    from gpuinfra.region.failover.journal import FAILED
    from gpuinfra.region.failover.steps import FENCE, JOBS, up_step, verify_step

    # A fence fails before its first change if nodes of the second region ended. A later failure deploys again without an effect.
    waiting = not journal.stop_first and journal.state(FENCE) in (None, FAILED)
    if waiting:  # Until the fence, jobs can be started again.
        journal.repeat(JOBS)
    for file in files:
        if waiting or journal.placements.get(file.name) != file.checksum:
            journal.repeat(up_step(file.name))
            journal.repeat(verify_step(file.name))


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
        stop_jobs=stop_jobs,
        stop_first=stop_first,
        ignore=frozenset(ignore),
    )


def obtain_with(
    files: Sequence[LoadedStack], project: Path, journal: FailoverJournal, limit: Limit, until: float | None = None
) -> Callable[[str, bool], None]:
    """Return the function that deploys a stack of the second region with the search of `gpuinfra up`. Its error contains what was tried.

    `until` is the end of `--keep-trying` in seconds since 1970, or None for one round, or for the end of an interrupted search.
    """
    from gpuinfra.search.journal import SearchJournal
    from gpuinfra.search.run import log, run
    from gpuinfra.spec.load import read_stack

    def obtain(name: str, again: bool) -> None:
        (file,) = (one for one in files if one.name == name)
        if why := limit.exceeded(limit.report(file).cost):
            raise DeploymentError(f"{name} {why}; declare fewer or cheaper nodes, or raise the limit")
        with closing(SearchJournal(file.path)) as searched:
            if searched.unfinished and until is not None:
                searched.remember({"until": until})
            search = _search_of(file, project, searched, journal, limit)
            if search is None:
                searched.begin(name, {"running": running_before(file, project), "until": until})
                search = search_of(file, project, searched, limit, searches=_searches(file), locks=[journal.lock])
            try:
                run(search, again=again)
            except DeploymentError as problem:
                tried = [f"  {line}" for line in log(searched)]
                raise DeploymentError("\n".join([str(problem), "tried:", *tried])) from None
            finally:
                journal.place(name, read_stack(file.path).checksum)

    return obtain


def _search_of(
    file: LoadedStack, project: Path, searched: SearchJournal, journal: FailoverJournal, limit: Limit
) -> Search | None:
    """Return the search that was interrupted, or None if there is none or the file was edited after it."""
    from gpuinfra.search.run import check_file
    from gpuinfra.spec.document import parse
    from gpuinfra.spec.load import stack_in

    if not searched.unfinished:
        return None
    declared = file
    if searched.original is not None:
        declared = stack_in(parse(searched.original, file.path.name), file.path)
    search = search_of(declared, project, searched, limit, searches=_searches(declared), locks=[journal.lock])
    try:
        check_file(search)
    except UsageError:
        return None
    return search


def _searches(file: LoadedStack) -> bool:
    return any(pool.fallback for pool in file.spec.pools)


def deploy_with(
    files: Sequence[LoadedStack],
    project: Path,
    *journals: FailoverJournal,
    refresh: bool = False,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[str, bool], None]:
    """Return the function that deploys one of the stacks of a project. The engine inherits the locks of the journals, and has the environment `variables`."""
    from gpuinfra.engine import find_engine
    from gpuinfra.engine.up import up

    def deploy(name: str, again: bool) -> None:
        engine = find_engine(lambda line: click.echo(line, err=True))
        value = next(one.document.value for one in files if one.name == name and one.document)
        secrets = value.get("secretsprovider") if isinstance(value, Mapping) else None
        locks = [one.lock for one in journals]
        up(engine, name, project, output=sys.stderr, secrets=secrets, keep=locks, again=again, refresh=refresh, more=variables)  # fmt: skip

    return deploy


def _without_placement(loaded: LoadedStack) -> LoadedStack:
    """Return the stack without its capacity and placement, which can change during a failover."""
    from gpuinfra.spec.storage import Lustre

    spec = loaded.spec
    unplaced = {"zone": None, "machine": "", "capacity": (), "fallback": ()}
    return replace(
        loaded,
        spec=spec.model_copy(
            update={
                "where": spec.where.model_copy(update={"zone": None}),
                "pools": tuple(pool.model_copy(update=unplaced) for pool in spec.pools),
                "storage": tuple(
                    entry.model_copy(update={"zone": None}) if isinstance(entry, Lustre) else entry
                    for entry in spec.storage
                ),
            }
        ),
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
        undo = f", or run `gpuinfra failback {stack}` to return" if journal.ended and journal.UNDO else journal.UNDO
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
    from gpuinfra.region.failover.steps import FENCE, NAMES

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
        state = result.journal.state(FENCE)
        kept = (
            ""
            if state
            else f"\n  nothing in {first} was changed, and its nodes continue to run; the nodes obtained in {region} are billed"
        )
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
    if result.unreachable or result.ignored:
        click.echo(f"next: {again}, when {first} responds again{names}", err=as_json)
    return 0
