"""How `gpuinfra failover` obtains and deploys the nodes of the second region, and what both regions cost meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import click

from gpuinfra.base.errors import WARN_PREFIX, DeploymentError, UsageError
from gpuinfra.cli.stacks import NoStack, Resources, exported
from gpuinfra.cli.up import Limit, running_before, search_of

if TYPE_CHECKING:
    from gpuinfra.cli.ready import Paired
    from gpuinfra.region.failover.journal import FailoverJournal
    from gpuinfra.report.plan_json import PlanReport
    from gpuinfra.search.journal import SearchJournal
    from gpuinfra.search.run import Search
    from gpuinfra.spec.load import LoadedStack


def overlap(paired: Paired, limit: Limit) -> list[tuple[str, PlanReport]]:
    """Return the region and the price of each stack that runs while both regions have nodes."""
    own, second = (paired.plan.region, paired.loaded), [(paired.recovery.region, file) for file in paired.second.files]
    return [(region, limit.report(loaded)) for region, loaded in (own, *second)]


def show_overlap(reports: Sequence[tuple[str, PlanReport]], left: str, to: str, *, stop_first: bool) -> None:
    """Print the price of each region, and the sum while both regions run. The stack moves from the region `left` to the region `to`."""
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
            f"price  --stop-first: no node runs from the fence until the nodes in {to} are verified",
            err=True,
        )
    else:
        click.echo(f"price  both regions, until {left} is stopped: {at_least}{total:,.2f} USD an hour", err=True)


def without_placement(loaded: LoadedStack) -> LoadedStack:
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


def repeat_deployments(journal: FailoverJournal, files: Sequence[LoadedStack]) -> None:
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


def obtain_with(
    files: Sequence[LoadedStack],
    project: Path,
    journal: FailoverJournal,
    limit: Limit,
    until: float | None = None,
    restart: Callable[[Resources], bool] = lambda _: False,
) -> Callable[[str, bool], None]:
    """Return the function that deploys a stack of the second region with the search of `gpuinfra up`. Its error contains what was tried.

    `restart` allows stopped groups in the state of a stack to launch nodes, and returns whether there are any. `until` is the end of `--keep-trying` in
    seconds since 1970, or None for one round, or for the end of an interrupted search.
    """
    from gpuinfra.search.journal import SearchJournal
    from gpuinfra.search.run import log, run
    from gpuinfra.spec.load import read_stack

    def obtain(name: str, again: bool) -> None:
        (file,) = (one for one in files if one.name == name)
        if why := limit.exceeded(limit.report(file).cost):
            raise DeploymentError(f"{name} {why}; declare fewer or cheaper nodes, or raise the limit")
        adopt_retained(file, project, [journal.lock], again=again)
        refresh = False
        with suppress(NoStack):
            refresh = restart(exported(name, project=project))
        with closing(SearchJournal(file.path)) as searched:
            if searched.unfinished and until is not None:
                searched.remember({"until": until})
            search = _search_of(file, project, searched, journal, limit, refresh=refresh)
            if search is None:
                searched.begin(name, {"running": running_before(file, project), "until": until})
                search = search_of(file, project, searched, limit, locks=[journal.lock], refresh=refresh)
            try:
                run(search, again=again)
            except DeploymentError as problem:
                tried = [f"  {line}" for line in log(searched)]
                raise DeploymentError("\n".join([str(problem), "tried:", *tried])) from None
            finally:
                journal.place(name, read_stack(file.path).checksum)

    return obtain


def adopt_retained(file: LoadedStack, project: Path, keep: Sequence[int], *, again: bool) -> None:
    """Import what an earlier `destroy` of a stack retained. Otherwise, its deployment creates these resources again, and fails.

    A run that was killed during the import continues, because the resources that the state contains are left out. `keep` and `again` are those of
    `gpuinfra.engine.up.up`.
    """
    from gpuinfra.base.day import now, today
    from gpuinfra.clouds.adopt import import_file, retained, urns_in
    from gpuinfra.clouds.cloud import cloud_of
    from gpuinfra.clouds.preflight import Unanswered
    from gpuinfra.doctor.cloud import token_of
    from gpuinfra.engine import find_engine
    from gpuinfra.engine.up import import_resources
    from gpuinfra.plan.make import build_plan

    plan = build_plan(file.spec, today(), now())
    cloud = cloud_of(plan.cloud)
    try:
        urns = urns_in({"deployment": {"resources": exported(file.name, project=project)}})
    except NoStack:
        urns = {}
    if all((one.type, one.name) in urns for one in cloud.resources(plan) if one.retained and one.lookup is not None):
        return
    try:
        token = token_of(file, plan.name)
    except Unanswered as problem:
        click.echo(f"{WARN_PREFIX}retained resources of {file.name} are {problem}; {problem.fix}", err=True)
        return
    document = import_file(retained(cloud.retained(plan, token, file.settings, None)), urns)
    names = [str(row["logicalName"]) for row in document["resources"] if not row.get("component")]
    if names:
        click.echo(f"importing what an earlier deployment of {file.name} retained: {', '.join(names)}", err=True)
        value = file.document.value if file.document else None
        secrets = value.get("secretsprovider") if isinstance(value, Mapping) else None
        import_resources(
            find_engine(lambda line: click.echo(line, err=True)),
            file.name,
            project,
            document,
            output=sys.stderr,
            secrets=secrets,
            keep=keep,
            again=again,
        )


def _search_of(
    file: LoadedStack, project: Path, searched: SearchJournal, journal: FailoverJournal, limit: Limit, *, refresh: bool
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
    search = search_of(declared, project, searched, limit, locks=[journal.lock], refresh=refresh)
    try:
        check_file(search)
    except UsageError:
        return None
    return search


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
