"""`gpuinfra drill`: deploys cheap nodes in the second region from the newest checkpoint, measures, and removes everything."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuinfra.base.errors import ERROR_PREFIX, INTERRUPTED, DeploymentError, SpecError, UsageError
from gpuinfra.cli.ready import Paired, declared, opened
from gpuinfra.cli.stacks import Resources, as_argument, exported, stacks_of

if TYPE_CHECKING:
    from gpuinfra.clouds.region.checkpoints import ReplicatedCheckpoint
    from gpuinfra.clouds.region.drill import DrillCopies
    from gpuinfra.cost.model import Cost
    from gpuinfra.engine.find import Engine
    from gpuinfra.region.live_drill.journal import DrillJournal
    from gpuinfra.region.live_drill.run import LiveResult
    from gpuinfra.region.live_drill.stack import DrillStack
    from gpuinfra.spec.load import LoadedStack


@click.command("drill")
@click.argument("stack")
@click.option("--live", is_flag=True, help="Deploy nodes in the second region. Required.")
@click.option("--nodes", type=click.IntRange(1, 2), default=1, show_default=True, help="Number of nodes.")
@click.option(
    "--machine",
    metavar="TYPE",
    help="Machine type. Default: the cheapest one that the catalog can price in the second region.",
)
@click.option(
    "--remove", is_flag=True, help="Remove what an interrupted drill left, also one that another machine started."
)
@click.option(
    "--dry-run", is_flag=True, help="Print the checkpoint, the price and the stack file without creating anything."
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout and progress on stderr.")
def command(
    stack: str, live: bool, nodes: int, machine: str | None, remove: bool, dry_run: bool, yes: bool, as_json: bool
) -> int:
    """Deploy one or two cheap nodes in the second region of STACK from its newest checkpoint, and remove them.

    The drill is a stack of its own, with its own network, keys and bucket. The command copies the newest complete checkpoint (recovery.checkpoints) from
    the replica to this bucket, starts the nodes, which mount the bucket and read each file, and compares the size and the checksum of each file with
    those of the copy. It verifies the nodes like those of every deployment, measures each part, and removes everything, also after a failure or
    Ctrl-C. It prints the price first, and changes nothing in the first region, in the replicas, in the replication or in the record of the active region.

    If the command is killed, run it again to remove what it created. `gpuinfra ready` shows the result, with the recovery time that follows from it.

    The exit code is 0 if the drill passed and everything is removed, and 1 otherwise. To simulate a failover without a cloud account, use
    `gpuinfra rehearse drill`.
    """
    from gpuinfra.clouds.cloud import cloud_of
    from gpuinfra.plan.profile import profile_of
    from gpuinfra.region.live_drill.journal import DrillJournal
    from gpuinfra.region.live_drill.stack import path_of

    if not live:
        raise UsageError(
            f"--live is missing, which deploys nodes in the second region; to simulate a failover instead, run: gpuinfra rehearse drill {stack} --to REGION"
        )
    if remove and dry_run:
        raise UsageError("--dry-run prints the stack file of a drill, and --remove removes a drill; omit one of them")
    given = declared(stack)
    copies = cloud_of(given.plan.cloud).drill_copies(given.recovery.region, given.loaded.settings)
    if copies is None:
        raise UsageError(
            f"`gpuinfra drill --live` does not support {profile_of(given.plan.cloud).title} yet; use `gpuinfra rehearse drill`"
        )
    if not given.loaded.route:
        raise UsageError(f"{given.loaded.path} contains only a declaration, which the engine cannot read")
    if given.recovery.checkpoints is None:
        raise UsageError(f"{stack} has no recovery.checkpoints, so a drill cannot find a checkpoint; declare it")
    path, cluster = path_of(given.loaded), given.plan.name
    with closing(DrillJournal(given.loaded.path)) as journal, opened(given, stacks_of({})) as paired:
        removal = partial(_remove, path, cluster, paired, copies, journal)
        if remove or (journal.unfinished and not dry_run):
            return _removed(removal, given.loaded, journal, asked=remove)
        return _drill(
            paired, copies, journal, removal,
            nodes=nodes, machine=machine, dry_run=dry_run, yes=yes, as_json=as_json,
        )  # fmt: skip


def _removed(removal: Any, loaded: LoadedStack, journal: DrillJournal, *, asked: bool) -> int:
    """Remove what a drill left, and return the exit code."""
    again = f"gpuinfra drill {as_argument(loaded.path)} --live"
    if not asked:
        click.echo(f"the drill that began at {journal.began} was interrupted; removing what it created", err=True)
    try:
        removal()
    except DeploymentError as problem:
        raise DeploymentError(f"{problem}\n  to continue the removal, run: {again} --remove") from None
    if journal.unfinished:
        journal.end()
    click.echo(
        "everything that the drill created is removed" + ("" if asked else f"; to run a drill, run: {again}"), err=True
    )
    return 0 if asked else 1


def _drill(
    paired: Paired, copies: DrillCopies, journal: DrillJournal, removal: Any,
    *, nodes: int, machine: str | None, dry_run: bool, yes: bool, as_json: bool,
) -> int:  # fmt: skip
    from gpuinfra.clouds.region.failover import Unreachable
    from gpuinfra.engine import find_engine
    from gpuinfra.engine.pending import read_deployment
    from gpuinfra.region.live_drill.run import LiveDrill, run

    loaded = paired.loaded
    try:
        replicated = paired.newest()
    except Unreachable as problem:
        raise DeploymentError(f"the replicas cannot be read: {problem}") from None
    if replicated is None:
        raise DeploymentError(
            f"no replica contains a complete checkpoint that matches {paired.recovery.checkpoints}, so nothing was created; "
            f"run: gpuinfra ready {as_argument(loaded.path)}"
        )
    stack = _stack_of(paired, nodes, machine)
    cost = _checked(stack, replicated, live=not dry_run)
    if dry_run:
        click.echo(stack.text)
        return 0
    engine = find_engine(lambda line: click.echo(line, err=True))
    name = stack.loaded.name
    if stack.path.exists() or read_deployment(engine, name, paired.project).get("resources"):
        raise UsageError(
            f"{name} exists, because a drill on another machine is running or was interrupted; wait, or remove it: "
            f"gpuinfra drill {as_argument(loaded.path)} --live --remove"
        )
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("the drill requires confirmation, but stdin is not a terminal; add --yes")
        click.confirm("Run the drill at this price?", abort=True, err=True)
    began = datetime.now(UTC)
    journal.begin(stack.loaded.spec.name)
    result = run(
        LiveDrill(
            stack=stack, journal=journal, found=replicated, copies=copies, create=partial(_write, stack.path, stack.text),
            complete=partial(_complete, stack), deploy=partial(_deploy, engine, stack, paired, journal),
            state=partial(exported, name, project=paired.project), read_seconds=_read_seconds, remove=removal,
            say=lambda line: click.echo(line, err=True),
        )
    )  # fmt: skip
    return _report(paired, stack, replicated, result, began, cost, as_json=as_json)


def _stack_of(paired: Paired, nodes: int, machine: str | None) -> DrillStack:
    """Return the stack of the drill, which is derived from the stack of the second region."""
    from gpuinfra.base.findings import Level
    from gpuinfra.region.live_drill.stack import drill_stack, new_name
    from gpuinfra.spec.document import parse
    from gpuinfra.spec.load import stack_in

    files = list(paired.second.files)
    if not files:
        fresh = paired.second.fresh
        if not fresh.ok:
            raise SpecError([one for one in fresh.findings if one.level is Level.ERROR])
        files = [stack_in(parse(one.text, one.path.name), one.path) for one in fresh.files]
    body: dict[str, Any] = {key: value for file in files for key, value in file.declaration.items()}
    name = new_name(paired.loaded)
    return drill_stack(
        paired.loaded, files[-1], body, name=name, nodes=nodes, machine=machine, project=paired.project
    )  # fmt: skip


def _checked(stack: DrillStack, replicated: ReplicatedCheckpoint, *, live: bool) -> Cost:
    """Print the checkpoint and the price, and check the stack. Raises `SpecError` and `DeploymentError` before anything is created."""
    from gpuinfra.base.day import now, today
    from gpuinfra.clouds.preflight import PreflightRows
    from gpuinfra.doctor.run import live_rows
    from gpuinfra.region.live_drill.stack import LIFE_HOURS
    from gpuinfra.report.plan_json import report_of
    from gpuinfra.report.plan_text import total

    complete = stack.complete()
    report = report_of(complete, today(), None, now())
    if not report.ok or report.cost is None:
        raise SpecError(report.findings)
    size = sum(one.size for one in replicated.objects)
    unknown = "" if replicated.compared else "; the first region did not respond, so its files were not compared"
    click.echo(
        f"checkpoint  {replicated.checkpoint.name}, {_age(replicated):.0f} minutes old: {len(replicated.objects)} objects, {size / 1e9:,.2f} GB{unknown}",
        err=True,
    )
    pool = complete.spec.pools[0]
    click.echo(f"nodes  {stack.nodes} x {pool.machine} in {complete.spec.where.region}", err=True)
    most = (
        f"; {report.cost.usd_per_hour * LIFE_HOURS:,.2f} USD for {LIFE_HOURS} hours" if report.cost.nodes_priced else ""
    )
    click.echo(f"price  {total(report.cost)}{most}", err=True)
    if live:
        rows = PreflightRows(rows=tuple(live_rows(complete)))
        click.echo("\n".join(rows.lines()), err=True)
        if not rows.ok:
            raise DeploymentError(
                "nothing was created, because the checks found errors; fix them, then run the command again"
            )
    return report.cost


def _age(replicated: ReplicatedCheckpoint) -> float:
    """Return the age of a checkpoint in minutes."""
    return max(0.0, (datetime.now(UTC) - replicated.checkpoint.written).total_seconds() / 60)


def _write(path: Path, text: str) -> None:
    from gpuinfra.base.people_files import absent, replace_files

    replace_files([(absent(path), text)], "move the file")


def _complete(stack: DrillStack, script: str, size: int) -> None:
    from gpuinfra.base.people_files import existing, replace_files

    _write(stack.script, script)
    version = existing(stack.path)
    replace_files([(version, stack.with_nodes(version.text, size))], "run the command again")


def _deploy(engine: Engine, stack: DrillStack, paired: Paired, journal: DrillJournal) -> None:
    """Deploy the stack file. The errors of the engine are the reasons."""
    from gpuinfra.engine.up import UpFailed, up
    from gpuinfra.handover.wire import CHECK_VARIABLE

    try:
        up(
            engine, stack.loaded.name, paired.project, output=sys.stderr, secrets=_secrets(paired), keep=[journal.lock],
            more={CHECK_VARIABLE: "true"},
        )  # fmt: skip
    except UpFailed as problem:
        reasons = [one.message for one in problem.failures if one.urn] or [str(problem)]
        raise DeploymentError("\n".join(dict.fromkeys(reasons))) from None


def _secrets(paired: Paired) -> str | None:
    """Return the secrets provider of the stack of the second region."""
    for file in reversed(paired.second.files):
        value = file.document.value if file.document else None
        if isinstance(value, Mapping) and (provider := value.get("secretsprovider")):
            return str(provider)
    return None


def _read_seconds(resources: Resources) -> float | None:
    from gpuinfra.handover.ports import PortUnavailable
    from gpuinfra.plan.steps import OWN
    from gpuinfra.region.live_drill.stack import STEP
    from gpuinfra.verification.store import found_of

    try:
        evidence, _ = found_of(resources)
    except PortUnavailable as problem:
        raise DeploymentError(f"the evidence of the nodes cannot be read: {problem}") from None
    steps = [step for one in evidence.newest for step in (one.document.get("state") or {}).get("steps") or ()]
    return max((float(step["seconds"]) for step in steps if step.get("id") == f"{OWN}{STEP}"), default=None)


def _remove(path: Path, cluster: str, paired: Paired, copies: DrillCopies, journal: DrillJournal) -> None:
    """Remove the stack of a drill and its files. Raises `DeploymentError` with what remains."""
    from gpuinfra.engine import find_engine
    from gpuinfra.engine.disposable import remove_stack
    from gpuinfra.engine.pending import read_deployment
    from gpuinfra.region.live_drill.stack import check_drill
    from gpuinfra.search.interrupted import continue_killed_run
    from gpuinfra.spec.load import stack_name

    def say(line: str) -> None:
        click.echo(line, err=True)

    engine, name, keep = find_engine(say), stack_name(path), [journal.lock]
    check_drill(name, read_deployment(engine, name, paired.project).get("resources") or ())
    try:
        continue_killed_run(
            engine, name, paired.project, clusters=[journal.cluster or cluster], settings=paired.loaded.settings,
            output=sys.stderr, say=say, keep=keep, again=True,
        )  # fmt: skip
        remove_stack(engine, name, paired.project, copies.holders, output=sys.stderr, keep=keep)
    except DeploymentError as problem:
        left = [
            one for one in read_deployment(engine, name, paired.project).get("resources") or () if one.get("custom")
        ]
        remains = "".join(f"\n  remains: {one.get('type')} {one.get('id')}" for one in left if one.get("id"))
        raise DeploymentError(f"{problem}{remains}") from None
    for file in (path, path.with_name(f"{name}-read.py")):
        file.unlink(missing_ok=True)


def _report(
    paired: Paired, stack: DrillStack, replicated: ReplicatedCheckpoint, result: LiveResult, began: datetime, cost: Cost, *, as_json: bool
) -> int:  # fmt: skip
    """Record and print the result, and return the exit code."""
    from gpuinfra.region.live_drill.journal import Part
    from gpuinfra.remote import live_drills

    age = (began - replicated.checkpoint.written).total_seconds() / 60
    body = live_drills.record(
        paired.loaded,
        problems=tuple(result.problems),
        checkpoint=replicated.checkpoint.name,
        age_minutes=round(max(0.0, age), 1),
        size=sum(one.size for one in replicated.objects),
        machine=stack.loaded.spec.pools[0].machine,
        nodes=stack.nodes,
        seconds={part.value: result.seconds.get(part) for part in Part},
    )
    if as_json:
        document = {**body, "removed": result.removed, "usd_per_hour": cost.usd_per_hour}
        click.echo(json.dumps(document, indent=2, ensure_ascii=True))
    for line in live_drills.summary(body):
        click.echo(line, err=as_json)
    if not result.removed:
        click.echo(
            f"{ERROR_PREFIX}not everything is removed, so it can still be billed; run: gpuinfra drill {as_argument(paired.loaded.path)} --live --remove",
            err=True,
        )
    return INTERRUPTED if result.interrupted else 0 if result.ok else 1
