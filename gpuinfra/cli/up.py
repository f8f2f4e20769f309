"""`gpuinfra up`: checks a stack, deploys it, and searches for capacity."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuinfra.base.errors import DeploymentError, Interrupted, SpecError, UsageError
from gpuinfra.cli.active import check_start
from gpuinfra.cli.options import FILE
from gpuinfra.cli.plan import colored
from gpuinfra.cli.stacks import NoStack, as_argument, current_backend, exported, project_of, short_name

if TYPE_CHECKING:
    from gpuinfra.clouds.preflight import PreflightRows
    from gpuinfra.cost.file import PriceFile
    from gpuinfra.cost.model import Cost
    from gpuinfra.plan.model import Plan
    from gpuinfra.report.plan_json import PlanReport
    from gpuinfra.search.failure import Failed
    from gpuinfra.search.journal import SearchJournal
    from gpuinfra.search.run import Search
    from gpuinfra.spec.load import LoadedStack

SCHEMA = "gpuinfra.up/1"


@click.command("up")
@click.argument("stack")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--no-search", is_flag=True, help="Do not try the alternatives in `fallback` if there is no capacity.")
@click.option("--resume", is_flag=True, help="Continue a run that was killed or interrupted.")
@click.option(
    "--keep-trying",
    metavar="DURATION",
    help="Repeat the search for this time if there is no capacity, such as 90m, 12h or 3d. Launched nodes are kept.",
)
@click.option(
    "--max-usd-per-hour",
    type=click.FloatRange(min=0, min_open=True),
    metavar="USD",
    help="Maximum price of the stack. The command asks for confirmation before it deploys a more expensive alternative; with --yes, it skips the alternative.",
)
@click.option("--prices", type=FILE, help="File with your own prices, which override the prices in the catalog.")
@click.option(
    "--confirm-active",
    metavar="REGION",
    help="Confirm that REGION is the active region of a stack with `recovery`, if the record of the active region cannot be read.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout and progress on stderr.")
def command(
    stack: str,
    yes: bool,
    no_search: bool,
    resume: bool,
    keep_trying: str | None,
    max_usd_per_hour: float | None,
    prices: Path | None,
    confirm_active: str | None,
    as_json: bool,
) -> int:
    """Check STACK, deploy it, and search for capacity.

    The command runs the rules of `gpuinfra plan` and the checks of `gpuinfra plan --live`, and prints the price. If there is an error,
    the command exits before it creates any resources. Otherwise, it asks for confirmation, runs `pulumi up`, and waits until the nodes are verified.

    If the cloud has no capacity for a pool, the command removes the pool's groups, writes the next entry of its `fallback` to the
    stack file, and deploys again. Other errors, such as a low quota or a missing permission, stop the search. The command prints all attempts.

    With --keep-trying, the search starts again with the declared placements until the time is over. It waits 1 minute before the second round, and up
    to 15 minutes before later ones. A pool for which the cloud launched some of the nodes keeps its placement and these nodes. --resume keeps the end.

    With --max-usd-per-hour, the command creates no resources if the declared stack costs more, or if its price is unknown. --resume keeps this limit.

    If the stack failed over, the command exits before it changes anything.

    If the deployment fails, the command prints the hourly price of each value of `handover.on_failure`, and does what it declares.

    The exit code is 0 if the nodes are verified, and 1 otherwise. `pulumi up` deploys the same stack without the checks and the search.
    """
    from gpuinfra.base.people_files import existing
    from gpuinfra.clouds.region.active import CONFIRM_VARIABLE
    from gpuinfra.engine.locked import StateLocked
    from gpuinfra.engine.up import OtherRun
    from gpuinfra.search.failure import SCALE_TO_ZERO, without_nodes
    from gpuinfra.search.journal import SearchJournal
    from gpuinfra.search.patience import duration
    from gpuinfra.search.placements import check_editable, stack_of, unchanged
    from gpuinfra.search.run import log, run
    from gpuinfra.spec.document import parse
    from gpuinfra.spec.load import stack_in

    declared, project = _stack(stack)
    journal = SearchJournal(declared.path)
    try:
        again = resume
        resume = _resumes(journal, declared, project, resume=resume)
        file = existing(declared.path) if resume else unchanged(declared)[0]
        if resume and journal.original is not None:
            declared = stack_in(parse(journal.original, declared.path.name), declared.path)
        check_start(declared, project, confirm_active)
        original = journal.original if resume and journal.original is not None else file.text
        searches = not no_search and any(pool.fallback for pool in declared.spec.pools)
        if searches:
            check_editable(declared, original)
        if declared.spec.handover.on_failure == SCALE_TO_ZERO:
            without_nodes(stack_of(file), file)  # an error now, and not after the failure
        given = {
            "max_usd_per_hour": max_usd_per_hour, "prices": None if prices is None else str(prices.absolute()),
            "until": None if keep_trying is None else time.time() + duration("--keep-trying", keep_trying),
        }  # fmt: skip
        options = {
            **(journal.options if resume else {}),
            **{name: value for name, value in given.items() if value is not None},
        }
        limit = Limit.of(options, asks=not yes and sys.stdin.isatty())
        asked = _check(declared, original, limit, searches=searches, resume=resume)
        if not asked.live.ok:
            return _print(declared, asked, None, as_json=as_json)
        if not yes:
            _confirm()
        if resume:
            journal.remember(options)
        else:
            journal.begin(declared.name, {**options, "running": running_before(declared, project)})
        variables = {CONFIRM_VARIABLE: confirm_active} if confirm_active else {}
        search, problem = (
            search_of(declared, project, journal, limit, searches=not no_search, variables=variables),
            None,
        )
        try:
            run(search, again=again)
        except DeploymentError as error:
            problem = error
        except (KeyboardInterrupt, click.Abort):
            raise Interrupted(
                f"interrupted; to continue, run: gpuinfra up {as_argument(declared.path)} --resume"
            ) from None
        click.echo("\n".join(["", "attempts", *(f"  {line}" for line in log(journal))]), err=True)
        # If another run holds the lock of the stack, nothing was changed. If it updated the stack, its nodes stay.
        others = isinstance(problem, StateLocked | OtherRun)
        failed = _failed(declared, project, journal, limit, variables) if problem and not others else None
        if failed:
            try:
                failed.act()
            except DeploymentError as second:
                problem = DeploymentError(f"{problem}\n{second}")
        code = _print(declared, asked, journal, as_json=as_json, problem=problem, failed=failed)
        if problem:
            raise problem
        return code
    finally:
        journal.close()


@dataclass(frozen=True, kw_only=True)
class Limit:
    """The price limit of a run, and the prices that it is compared with."""

    usd_per_hour: float | None
    """Maximum price of the stack, or None for no limit."""
    prices: PriceFile | None
    """The user's own prices."""
    asks: bool
    """Whether to ask before an alternative over the limit. If not, it is skipped."""

    @classmethod
    def of(cls, options: Mapping[str, Any], *, asks: bool) -> Limit:
        """Return the limit of `SearchJournal.options`. Raises `UsageError` if it is not a number, `GpuinfraError` if the price file is invalid."""
        from gpuinfra.cost.file import load

        usd, prices = options.get("max_usd_per_hour"), options.get("prices")
        if usd is not None and not math.isfinite(usd):
            raise UsageError(f"--max-usd-per-hour is {usd}; allowed: a number greater than 0")
        return cls(usd_per_hour=usd, prices=load(Path(prices)) if prices else None, asks=asks)

    def report(self, stack: LoadedStack) -> PlanReport:
        """Return findings and price of a stack."""
        from gpuinfra.base.day import now, today
        from gpuinfra.report.plan_json import report_of

        return report_of(stack, today(), self.prices, now())

    def exceeded(self, cost: Cost | None) -> str:
        """Return why a price is over the limit, or an empty string. An unknown price is over the limit."""
        if self.usd_per_hour is None or (cost and cost.nodes_priced and cost.usd_per_hour <= self.usd_per_hour):
            return ""
        costs = cost.in_words if cost else "an unknown amount"
        return f"costs {costs}, and --max-usd-per-hour is {self.usd_per_hour:,.2f}"

    def refuses(self, stack: LoadedStack) -> str:
        """Return why an alternative must not be deployed, or an empty string. Asks if the price is over the limit."""
        if self.usd_per_hour is None:
            return ""
        why = self.exceeded(self.report(stack).cost)
        if why and self.asks and click.confirm(f"The next alternative {why}. Deploy it?", err=True):
            return ""
        return why


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is known before the deployment."""

    reports: Mapping[str, PlanReport]
    """Findings and price, keyed by placement name. The first entry is the declared placement."""
    live: PreflightRows
    limit: Limit


def _stack(stack: str) -> tuple[LoadedStack, Path]:
    """Return the stack, and the folder of its Pulumi project. Raises `UsageError` if the engine cannot use the file."""
    from gpuinfra.base.stack_files import project_folder
    from gpuinfra.spec.load import find_stack, read_stack

    path = find_stack(stack)
    project = project_folder(path.absolute().parent)
    if project is None:
        raise UsageError(
            f"{path} is not in a Pulumi project; run `gpuinfra init` to create a project, and copy the file to it"
        )
    loaded = read_stack(path)
    if not loaded.route:
        raise UsageError(
            f"{path} contains only a declaration, which the engine cannot read; put the declaration in `config` under `gpuinfra:cluster`"
        )
    return loaded, project


def _resumes(journal: SearchJournal, declared: LoadedStack, project: Path, *, resume: bool) -> bool:
    """Check that the journal and `--resume` fit, and return whether the run of the journal continues.

    Without a journal, `--resume` continues a `pulumi up` that was killed, if the state has pending creations.
    """
    from gpuinfra.engine import find_engine
    from gpuinfra.engine.pending import pending_creates, read_deployment
    from gpuinfra.engine.state_files import make_readable

    if journal.unfinished and not resume:
        raise UsageError(
            f"a `gpuinfra up` of {declared.name} that began at {journal.began} was interrupted; add --resume to continue the run, "
            f"or remove {journal.path} to start again with the current stack file"
        )
    if not resume:
        return False

    def say(line: str) -> None:
        click.echo(line, err=True)

    engine = find_engine(say)
    make_readable(engine, declared.name, project, lambda: current_backend(project), say)
    if not journal.unfinished and not pending_creates(read_deployment(engine, declared.name, project)):
        raise UsageError(
            f"no `gpuinfra up` of {declared.name} was interrupted on this machine, and its state has no pending creations; omit --resume"
        )
    return journal.unfinished


def _check(declared: LoadedStack, original: str, limit: Limit, *, searches: bool, resume: bool) -> Asked:
    """Run the rules and the preflight, and print findings, price and answers on stderr.

    Raises `SpecError` for errors, and `DeploymentError` if a new run is over the price limit.
    """
    from gpuinfra.clouds.preflight import PreflightRows
    from gpuinfra.doctor.run import live_rows
    from gpuinfra.report.plan_text import total

    reports = dict(_reports(declared, original, limit, searches=searches))
    first = next(iter(reports.values()))
    if not first.ok:
        raise SpecError(first.findings)
    if not resume and (why := limit.exceeded(first.cost)):
        raise DeploymentError(
            f"{short_name(declared.name)} {why}; nothing was created; declare fewer or cheaper nodes, or raise the limit"
        )
    for finding in first.findings:
        click.echo(colored(finding), err=True)
    live = PreflightRows(rows=tuple(live_rows(declared)))
    click.echo("\n".join(live.lines()), err=True)
    click.echo("", err=True)
    for place, report in reports.items():
        if report.cost:
            over = "; over the limit" if limit.exceeded(report.cost) else ""
            click.echo(f"price  {place}: {total(report.cost)}{over}", err=True)
    return Asked(reports=reports, live=live, limit=limit)


def _reports(declared: LoadedStack, original: str, limit: Limit, *, searches: bool) -> list[tuple[str, PlanReport]]:
    """Return the report of each placement. Placements of several pools are listed one at a time."""
    from gpuinfra.search.placements import described, stack_for

    reports = [("declared", limit.report(declared))]
    for pool in declared.spec.pools if searches else ():
        for choice in range(len(pool.fallback)):
            there = stack_for(declared, original, {pool.name: choice})
            reports.append((f"{pool.name} on {described(declared.spec, pool.name, choice)}", limit.report(there)))
    return reports


def _confirm() -> None:
    if not sys.stdin.isatty():
        raise UsageError("the deployment requires confirmation, but stdin is not a terminal; add --yes")
    click.confirm("Deploy at this price?", abort=True, err=True)


def search_of(
    declared: LoadedStack,
    project: Path,
    journal: SearchJournal,
    limit: Limit,
    *,
    searches: bool = True,
    locks: Sequence[int] = (),
    variables: Mapping[str, str] | None = None,
    refresh: bool = False,
) -> Search:
    """Return the search of a stack in a project. The engine inherits the lock of the journal and the other `locks`, and has the environment `variables`.
    With `refresh`, it reads the resources from the cloud first."""
    from gpuinfra.base.day import now, today
    from gpuinfra.engine import find_engine
    from gpuinfra.engine.up import check_last, remove, up
    from gpuinfra.handover.wire import CHECK_VARIABLE
    from gpuinfra.plan.make import build_plan
    from gpuinfra.search.interrupted import continue_killed_run
    from gpuinfra.search.outcome import missing_nodes
    from gpuinfra.search.patience import Patience
    from gpuinfra.search.run import Search

    engine = find_engine(lambda line: click.echo(line, err=True))
    value = declared.document.value if declared.document else None
    secrets = value.get("secretsprovider") if isinstance(value, Mapping) else None

    def deploy(again: bool, exclude: Sequence[str] = ()) -> None:
        continue_killed_run(
            engine, declared.name, project, clusters=[declared.spec.name], settings=declared.settings, output=sys.stderr,
            say=lambda line: click.echo(line, err=True), keep=[journal.lock, *locks], again=again,
        )  # fmt: skip
        click.echo(f"starting pulumi up of {short_name(declared.name)}", err=True)
        up(
            engine, declared.name, project, output=sys.stderr, secrets=secrets, keep=[journal.lock, *locks], again=again, exclude=exclude,
            agent=journal.run, more={CHECK_VARIABLE: "true", **(variables or {})}, refresh=refresh,
        )  # fmt: skip

    def delete(urns: Sequence[str], again: bool) -> None:
        check_last(engine, declared.name, project, journal.run)
        remove(
            engine,
            declared.name,
            project,
            urns,
            output=sys.stderr,
            keep=[journal.lock, *locks],
            again=again,
            agent=journal.run,
        )

    def plan_of(loaded: LoadedStack) -> Plan:
        return build_plan(loaded.spec, today(), now())

    return Search(
        declared=declared,
        journal=journal,
        plan_of=plan_of,
        deploy=deploy,
        remove=delete,
        settle=lambda patterns, again: deploy(again, patterns),
        state=lambda: exported(declared.name, project=project),
        missing_nodes=partial(
            missing_nodes, before=journal.options.get("running"), keeps=journal.options.get("until") is not None
        ),
        say=lambda line: click.echo(line, err=True),
        over_limit=limit.refuses,
        searches=searches,
        patience=Patience(until=journal.options.get("until"), say=lambda line: click.echo(line, err=True)),
    )


def running_before(declared: LoadedStack, project: Path) -> list[str] | None:
    """Return the groups of a stack that have nodes, or None if they cannot be read. A stack that does not exist has none."""
    from gpuinfra.handover.ports import PortUnavailable
    from gpuinfra.search.outcome import running_groups

    try:
        resources = exported(declared.name, project=project)
        return sorted(running_groups(declared.spec.cloud, declared.spec.where.region, resources))
    except NoStack:
        return []
    except PortUnavailable as problem:
        click.echo(
            f"the nodes of {short_name(declared.name)} cannot be read, so a failed deployment keeps all resources: {problem}",
            err=True,
        )
        return None


def _failed(
    declared: LoadedStack, project: Path, journal: SearchJournal, limit: Limit, variables: Mapping[str, str]
) -> Failed:
    """Print the hourly price of each choice of `handover.on_failure`, and return what was chosen."""
    from gpuinfra.engine import find_engine
    from gpuinfra.engine.up import check_last, destroy, up
    from gpuinfra.search.failure import Failed
    from gpuinfra.search.placements import EXHAUSTED

    engine = find_engine(lambda line: click.echo(line, err=True))

    def price(stack: LoadedStack) -> str:
        cost = limit.report(stack).cost
        return cost.in_words if cost else "an unknown amount"

    failed = Failed(
        declared=declared,
        # A journal from an earlier version does not list the groups, so the stack possibly had nodes.
        had_nodes=journal.options.get("running") != [],
        empty=[pool for pool, choice in journal.choices.items() if choice == EXHAUSTED],
        price=price,
        check_last=lambda: check_last(engine, declared.name, project, journal.run),
        deploy=lambda: up(engine, declared.name, project, output=sys.stderr, keep=[journal.lock], more=variables),
        destroy=lambda: destroy(engine, declared.name, project, output=sys.stderr, keep=[journal.lock]),
        say=lambda line: click.echo(line, err=True),
    )
    click.echo("\nprice after the failure, by handover.on_failure", err=True)
    for choice, text in failed.prices().items():
        why = ", because the stack had nodes before this run" if failed.had_nodes else ""
        click.echo(f"  {choice:<14} {text}" + (f" (chosen{why})" if choice == failed.choice else ""), err=True)
    return failed


def _print(
    declared: LoadedStack,
    asked: Asked,
    journal: SearchJournal | None,
    *,
    as_json: bool,
    problem: DeploymentError | None = None,
    failed: Failed | None = None,
) -> int:
    """Print the result and return the exit code. Without a journal, the deployment was not started."""
    from gpuinfra.search.outcome import summary

    ok = journal is not None and problem is None
    resources = exported(declared.name, project=project_of(declared.path)) if ok else []
    result, commands = summary(resources), _next(declared.path, resources)
    name = short_name(declared.name)
    if as_json:
        first = next(iter(asked.reports.values()))
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "stack": name,
            "ok": ok,
            "findings": [one.as_dict() for one in first.findings],
            "live": asked.live.as_dict(),
            "max_usd_per_hour": asked.limit.usd_per_hour,
            "prices": [
                {
                    "placement": place,
                    "usd_per_hour": one.cost.usd_per_hour,
                    "usd_per_month": one.cost.usd_per_month,
                    "over_limit": bool(asked.limit.exceeded(one.cost)),
                }
                for place, one in asked.reports.items()
                if one.cost
            ],
            "attempts": journal.attempts if journal else [],
            "result": result,
            "error": str(problem) if problem else "",
            "on_failure": {"choice": failed.choice, "prices": dict(failed.prices())} if failed else None,
            "next": commands,
        }
        click.echo(json.dumps(document, indent=2, ensure_ascii=True))
    elif ok:
        click.echo(f"{name} is deployed: {result}" if result else f"{name} is deployed")
        if commands:
            click.echo("next: " + "\n      ".join(commands))
    if journal is None:
        click.echo(
            "nothing was created, because the checks found errors; fix them, then run the command again",
            err=True,
        )
        return 1
    return 0 if ok else 1


def _next(path: Path, resources: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the commands for the nodes of a deployed stack. Only `gpuinfra nodes` works before the first node is launched."""
    from gpuinfra.inventory import handovers_of, nodes_of

    stack = as_argument(path)
    commands = [f"gpuinfra nodes {stack}"] if handovers_of(resources) else []
    if nodes := sorted(nodes_of(resources), key=lambda node: not node.verified):
        commands += [f"gpuinfra ssh {stack} {nodes[0].name or nodes[0].id}", f"gpuinfra run {stack} -- nvidia-smi -L"]
    return commands
