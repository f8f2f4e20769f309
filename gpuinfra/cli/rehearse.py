"""`gpuinfra rehearse`: a stack under Pulumi's own engine, with stand-ins for the cloud and the nodes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click


@click.command(name="rehearse", short_help="bring a stack up on Pulumi's engine with stand-ins for cloud and nodes")
@click.argument("action", type=click.Choice(["preview", "up", "refresh", "destroy", "life"]))
@click.argument("stack")
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar="FAULT",
    help="Order something to go wrong: node:gpu-1:gpu-missing, cloud:no-capacity:spot, cloud:error:LustreFileSystem:1. May be given several times.",
)
@click.option(
    "--deadline",
    metavar="TIME",
    help="Longest wait for the nodes, such as 90s. Default 240s; a deployment takes the stack file's.",
)
@click.option(
    "--under-least-permissions",
    "least",
    is_flag=True,
    help="Allow the operator what `gpuinfra permissions` prints, and no more.",
)
@click.option("--on", "on", metavar="DATE", help="Rehearse as of this day (2026-12-01) in place of today.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON; progress goes to stderr.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".rehearsal"),
    help="Where rehearsals are kept. Default .rehearsal here.",
)
def command(
    action: str,
    stack: str,
    faults: tuple[str, ...],
    deadline: str | None,
    least: bool,
    on: str | None,
    as_json: bool,
    folder: Path,
) -> int:
    """Rehearse ACTION on STACK (a stack's name or its file).

    The program, the engine, the bootstrap steps and the checks are the real ones; the cloud and the nodes are
    stand-ins on this machine. Nothing is deployed, nothing is bought, and no cloud account is needed or touched.

    ACTION is preview, up, refresh, destroy, or life: up, up again, one node more, drift, a replaced node, destroy, up again.
    """
    from gpuinfra.day import read_day
    from gpuinfra.rehearsal.run import rehearse
    from gpuinfra.rehearsal.session import Order
    from gpuinfra.rehearsal.summary import ending
    from gpuinfra.rehearsal.view import view_for

    view = view_for(sys.stderr if as_json else sys.stdout)
    day = read_day(on, "--on") if on else None
    result = rehearse(
        action, Order(stack=stack, faults=faults, deadline=deadline, folder=folder, least=least, on=day), view
    )
    if as_json:
        _print_json(result.report)
    for line in ending(result, folder):
        view.line(line)
    return 0 if result.ok else 1


def _print_json(report: dict[str, Any]) -> None:
    click.echo(json.dumps(report, indent=2, sort_keys=True, default=str))
