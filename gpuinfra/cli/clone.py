"""`gpuinfra clone`: writes the stack file for a second region."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click

from gpuinfra.base.errors import UsageError
from gpuinfra.cli.options import set_value
from gpuinfra.cli.plan import colored


@click.command("clone")
@click.argument("stack", metavar="STACK|FILE")
@click.option("--region", required=True, help="Region of the clone.")
@click.option("--zone", help="Zone of the clone. Default: a zone that offers every machine type.")
@click.option(
    "--mode",
    default="cold",
    show_default=True,
    help="What runs before a failover: cold (nothing), pilot-light (foundation and site) or hot (everything).",
)
@click.option("--count", multiple=True, metavar="[POOL=]N", help="Number of nodes in the clone. Repeatable.")
@click.option("--machine", multiple=True, metavar="[POOL=]TYPE", help="Machine type in the clone. Repeatable.")
@click.option(
    "--rpo",
    metavar="MINUTES",
    help="Maximum age of the replicated data, in minutes. If the cloud commits only to a longer lag, the command fails.",
)
@click.option("--cloud", help="Cloud of the clone. Default: the cloud of the stack.")
@click.option("--cidr", metavar="RANGE", help="Address range of the clone's network.")
@click.option(
    "--peer",
    multiple=True,
    metavar="RANGE",
    help="Network range that the clone's network must not overlap. Repeatable.",
)
@click.option(
    "--set",
    "values",
    multiple=True,
    metavar="PATH=VALUE",
    help="Set a field of the clone, such as pools[0].capacity[0].id=ID. Repeatable.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The clone's stack file. Default: Pulumi.STACK-REGION.yaml next to the stack file.",
)
@click.option("--force", is_flag=True, help="Replace the clone's stack file if it exists.")
@click.option("--dry-run", is_flag=True, help="Print the report and the file without writing the file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object (docs/reference/clone.md).")
def command(
    stack: str,
    count: tuple[str, ...],
    machine: tuple[str, ...],
    rpo: str | None,
    peer: tuple[str, ...],
    values: tuple[str, ...],
    output: Path | None,
    force: bool,
    dry_run: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Write a stack file that deploys STACK in a second region, with the reason for each change.

    This command requires no cloud account or network and creates no resources. It replaces the fields that depend
    on the region. It also lists the items that are not part of a stack file, such as
    reservations and quotas, with a command for each item.

    The exit code is 1 if the clone is not possible. The report then lists alternatives.
    """
    from gpuinfra.base.day import today
    from gpuinfra.region.clone import CloneRequest, clone
    from gpuinfra.region.clone.write import check_path, target, write_all
    from gpuinfra.report.clone_text import text as report
    from gpuinfra.spec.load import find_stack, project_name, read_stack

    path = find_stack(stack)
    if output is not None:
        check_path(output)
    request = CloneRequest(
        count={name: _number("--count", number) for name, number in _pairs("--count", count)},
        machine=dict(_pairs("--machine", machine)),
        rpo_minutes=None if rpo is None else _number("--rpo", rpo),
        peers=peer,
        values=tuple(set_value(one) for one in values),
        project=project_name(path),
        **{name: value for name, value in given.items() if value is not None},
    )
    loaded = read_stack(path)
    result = clone(loaded, path.read_text(encoding="utf-8-sig"), request, today(), output)
    write = result.ok and not dry_run
    for file in result.files:
        if file.path.resolve() == path.resolve():
            raise UsageError(f"{file.path} is the stack's own file; specify a different path with --output")
    if write:
        write_all([(target(file.path, force=force), file.text) for file in result.files])
    if as_json:
        click.echo(json.dumps(result.as_dict(written=write), indent=2))
        return 0 if result.ok else 1
    for finding in result.findings:
        click.echo(colored(finding), err=True)
    if text := report(result):
        click.echo(text)
    for file in result.files:
        if dry_run:
            click.echo(f"\n{file.path} (not written):\n\n{file.text}")
        else:
            click.echo(f"\nwritten: {file.path}")
    return 0 if result.ok else 1


def _pairs(option: str, values: tuple[str, ...]) -> list[tuple[str, str]]:
    """Parse `N` and `POOL=N`. The name of a value without a pool is `*`."""
    given: dict[str, str] = {}
    for value in values:
        name, equals, rest = value.partition("=")
        name, rest = (name, rest) if equals else ("*", name)
        if name in given:
            raise UsageError(
                f"{option} is specified twice for {'every pool' if name == '*' else name}; specify it once"
            )
        given[name] = rest
    return list(given.items())


def _number(option: str, text: str) -> int:
    from gpuinfra.spec.shown import shown

    if not re.fullmatch("-?[0-9]{1,11}", text):
        raise UsageError(f"{option} is {shown(text)}; allowed: a whole number")
    return int(text)
