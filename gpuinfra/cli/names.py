"""`gpuinfra names`: points the DNS names of a stack to one of its regions."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import click

from gpuinfra.base.errors import WARN_PREFIX, DeploymentError, GpuinfraError, UsageError
from gpuinfra.cli.active import record_of
from gpuinfra.cli.ready import Paired, declared, opened, verdicts
from gpuinfra.cli.returning import names_in
from gpuinfra.cli.stacks import exported, short_name, stacks_of

if TYPE_CHECKING:
    from gpuinfra.cli.stacks import Resources
    from gpuinfra.clouds.region.active import ActiveRegion
    from gpuinfra.clouds.region.dns import Key, NameRecord
    from gpuinfra.region.failover.journal import FailoverJournal
    from gpuinfra.region.failover.steps import StackNames

SCHEMA = "gpuinfra.names/1"


@click.command("names")
@click.argument("stack")
@click.option(
    "--to",
    "region",
    metavar="REGION",
    help="Region of the stack or its second region. By default, the active region.",
)
@click.option("--dry-run", is_flag=True, help="Print the changes without performing them.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(stack: str, region: str | None, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Point the DNS names in `recovery.names` of STACK to its file systems and verified nodes.

    Run the command after the first deployment, and after nodes are replaced. `gpuinfra failover` and `gpuinfra failback` move the names
    themselves. The command reads which nodes are verified now, and prints each record with its earlier value.

    The exit code is 0 if the names point to the region, and 1 if they could not be changed.
    """
    from gpuinfra.clouds.region.dns import records
    from gpuinfra.clouds.region.failover import Unreachable
    from gpuinfra.region.failover.journal import FailbackJournal, FailoverJournal

    given = declared(stack)
    own, second = given.plan.region, given.recovery.region
    if region not in (None, own, second):
        raise UsageError(f"--to is {region}; allowed: {own}, {second}")
    names = names_in(given)
    if names is None:
        raise UsageError(
            f"{stack} has no `recovery.names`; add `recovery.names` to the declaration (docs/guides/dns-names.md)"
        )
    with (
        opened(given, stacks_of({})) as paired,
        closing(FailoverJournal(paired.loaded.path)) as failover,
        closing(FailbackJournal(paired.loaded.path)) as failback,
    ):
        active = _share(paired, failover, failback)
        if active and region not in (None, active.region) and not _moving(failover, failback):
            raise UsageError(f"--to is {region}, but {active}; omit --to")
        region = region or _region_in_use(stack, own, second, failover, failback)
        resources = _state(paired, region)
        wanted = records(names.dns, names.plan, resources, verdicts(resources))
        try:
            before = names.dns.values(names.plan.zone, [one.key for one in wanted])
            changes = [one for one in wanted if before.get(one.key) != one.values]
            asks = bool(changes) and not dry_run
            if not as_json or (asks and not yes):
                _show(wanted, before, err=as_json)
            if asks:
                _confirm(yes)
                names.dns.point(names.plan.zone, wanted)
        except Unreachable as problem:
            raise GpuinfraError(f"{names.dns.control_plane} did not respond: {problem}; run the command again when the region responds") from None  # fmt: skip
    if as_json:
        click.echo(json.dumps(_document(paired.loaded.name, names, region, wanted, before, changed=asks), indent=2))
    return 0


def _share(paired: Paired, *journals: FailoverJournal) -> ActiveRegion | None:
    """Read the record of the active region into the journals. If it cannot be read, the journals of this machine count, and a warning is printed."""
    try:
        record = record_of(paired.loaded, paired.resources)
    except DeploymentError as problem:
        click.echo(f"{WARN_PREFIX}{problem}; the journals of this machine are used", err=True)
        return None
    if record is None:
        return None
    for journal in journals:
        journal.share(record)
    return record.active


def _moving(*journals: FailoverJournal) -> bool:
    return any(journal.exists and not journal.ended for journal in journals)


def _state(paired: Paired, region: str) -> Resources:
    if region == paired.plan.region:
        return list(paired.resources)
    return [one for file in paired.second.files for one in exported(file.name, project=paired.project)]


def _region_in_use(stack: str, own: str, second: str, failover: FailoverJournal, failback: FailoverJournal) -> str:
    """Return the region in which the stack runs. Raises `UsageError` if a failover or a failback is not finished.
    A failback renames the journal of the failover."""
    for journal in (failback, failover):
        if journal.exists and not journal.ended:
            raise UsageError(
                f"the {journal.MOVE} of {short_name(stack)} to {journal.region} is not finished, so the region of the names is not known; "
                f"add --to {own} or --to {second}"
            )
    return second if failover.exists else own


def _show(wanted: tuple[NameRecord, ...], before: dict[Key, tuple[str, ...]], *, err: bool) -> None:
    for record in wanted:
        earlier = before.get(record.key)
        note = " (unchanged)" if earlier == record.values else f" (was {' '.join(earlier)})" if earlier else " (new)"
        click.echo(f"{record}{note}", err=err)


def _confirm(yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("a change of DNS names requires confirmation, but stdin is not a terminal; add --yes")
    click.confirm("Change these records?", abort=True, err=True)


def _document(
    stack: str, names: StackNames, region: str, wanted: tuple[NameRecord, ...], before: dict[Key, tuple[str, ...]], *, changed: bool
) -> dict[str, object]:  # fmt: skip
    rows = [
        {"name": one.name, "type": one.type, "values": list(one.values), "before": list(before.get(one.key, ()))}
        for one in wanted
    ]
    return {"schema": SCHEMA, "stack": stack, "region": region, "zone": names.plan.zone, "changed": changed, "records": rows}  # fmt: skip
