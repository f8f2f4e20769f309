"""`gpuinfra rehearse`: runs a stack on Pulumi's engine with a stand-in cloud and stand-in nodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from gpuinfra.cli.options import folder_option


@click.command(name="rehearse", short_help="Run a stack on Pulumi's engine with stand-ins for the cloud and the nodes")
@click.argument("action", type=click.Choice(["preview", "up", "refresh", "destroy", "life", "drill", "run"]))
@click.argument("stack")
@click.argument("words", nargs=-1, metavar="[-- COMMAND]")
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar="FAULT",
    help="Simulate a fault: node:gpu-1:gpu-missing, cloud:no-capacity:spot, cloud:error:LustreFileSystem:1. Repeatable.",
)
@click.option(
    "--deadline",
    metavar="TIME",
    help="Maximum time to wait for the nodes, such as 90s. Default: 240s. A deployment uses the deadline from the stack file.",
)
@click.option(
    "--under-least-permissions",
    "least_privilege",
    is_flag=True,
    help="Grant the operator only the permissions that `gpuinfra permissions` prints.",
)
@click.option("--without-nodes", is_flag=True, help="Rehearse the cloud only: nodes do not start and are not verified.")
@click.option("--to", metavar="REGION", help="drill: the second region, as declared in `recovery.region`.")
@click.option(
    "--replication-lag",
    "lag_minutes",
    type=click.IntRange(min=0),
    metavar="MINUTES",
    help="drill: replication lag that the stand-in cloud simulates. Default: the replication time in the plan.",
)
@click.option("--on", metavar="DATE", help="Rehearse as of this day, for example 2026-12-01. Default: today.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON on stdout and progress on stderr.")
@folder_option
def command(
    action: str,
    stack: str,
    words: tuple[str, ...],
    faults: tuple[str, ...],
    deadline: str | None,
    least_privilege: bool,
    without_nodes: bool,
    to: str | None,
    lag_minutes: int | None,
    on: str | None,
    as_json: bool,
    folder: Path,
) -> int:
    """Rehearse ACTION on STACK, which is the name of a stack or the path to its file.

    The program, the engine, the bootstrap steps and the checks are real. The cloud and the nodes are stand-ins on this
    machine. A rehearsal deploys no cloud resources, incurs no costs, and requires no cloud account.

    ACTION is preview, up, refresh, destroy, life, drill or run. `life` runs preview, up, up again, add a node, drift, replace a
    node, destroy, adopt and up after destroy, and checks the effect of each step. `drill` simulates a failure of the first
    region of a stack with `recovery`, runs `gpuinfra failover`, and compares the recovery point and time with the declaration.

    `run` runs a command of gpuinfra or Pulumi in the rehearsal, as you run it for a deployed stack:

    \b
      gpuinfra rehearse run aws-recovery -- failover aws-recovery --to us-west-2
    """
    from gpuinfra.base.day import read_day
    from gpuinfra.base.errors import UsageError
    from gpuinfra.cli.rehearsals import RehearsalRequest, required
    from gpuinfra.engine.entries import size_limit

    if action != "drill" and (to or lag_minutes is not None):
        raise UsageError(f"{'--to' if to else '--replication-lag'} is an option of `gpuinfra rehearse drill`; omit it")
    checked = _checked(words, as_json=as_json) if action == "run" else ()
    if action != "run" and words:
        raise UsageError(f"{words[0]!r} follows STACK; omit it, or use `gpuinfra rehearse run {stack} -- COMMAND`")
    size_limit()  # An error in the limit is reported before the rehearsal.
    request = RehearsalRequest(
        action=action,
        stack=stack,
        folder=folder,
        words=checked,
        faults=faults,
        deadline=deadline,
        least_privilege=least_privilege,
        without_nodes=without_nodes,
        on=read_day(on, "--on") if on else None,
        to=to,
        lag_minutes=lag_minutes,
        as_json=as_json,
    )
    return required().run(request)


def _checked(words: Sequence[str], *, as_json: bool) -> Sequence[str]:
    """Return the command of `rehearse run` without the word gpuinfra. Raises `UsageError` if it is not a command of gpuinfra or Pulumi."""
    from gpuinfra.base.errors import UsageError
    from gpuinfra.cli import COMMANDS

    own = words[1:] if words[:1] == ("gpuinfra",) else words
    example = "such as `-- failover aws-recovery --to us-west-2`"
    if as_json:
        raise UsageError("--json is not an option of `gpuinfra rehearse run`; add it to the command after --")
    if not own:
        raise UsageError(f"the command is missing; add it after --, {example}")
    if own[0] == "rehearse" or own[0] not in (*COMMANDS, "pulumi"):
        raise UsageError(
            f"{own[0]!r} cannot run in a rehearsal; allowed: pulumi, and each command of gpuinfra except rehearse, {example}"
        )
    return own
