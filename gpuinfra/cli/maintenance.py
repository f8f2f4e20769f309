"""`gpuinfra maintenance`: silences alerts and repair of nodes for planned work, and releases nodes that the control node holds."""

from __future__ import annotations

import getpass
import json
import time
from datetime import UTC, datetime

import click

from gpuinfra.base.errors import DeploymentError, UsageError
from gpuinfra.base.words import titled
from gpuinfra.cli.options import stack_options
from gpuinfra.cli.stack_context import active_stack
from gpuinfra.cli.stacks import Stacks, short_name

SCHEMA = "gpuinfra.maintenance-command/1"


@click.command("maintenance")
@click.argument("stack")
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
@click.option(
    "--for",
    "period",
    metavar="DURATION",
    help="Silence alerts and repair of each NODE for this time, such as 30m, 4h or 2d.",
)
@click.option("--end", is_flag=True, help="End the planned work of each NODE now.")
@click.option(
    "--release", is_flag=True, help="Use each NODE again: end its hold, or continue after its failed replacement."
)
@click.option("--why", default="", metavar="TEXT", help="Reason, which Alertmanager shows.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@stack_options
def command(
    stack: str,
    nodes: tuple[str, ...],
    period: str | None,
    end: bool,
    release: bool,
    why: str,
    as_json: bool,
    stacks: Stacks,
) -> int:
    """Silence alerts and repair of each NODE of STACK for planned work.

    NODE is a label (gpu-1) or an instance ID. The command writes the end of the planned work to the evidence bucket. The control node reads it within a
    minute, creates a silence in Alertmanager, and does not repair the node. The planned work ends by itself. The command does not contact the nodes.
    --release also accepts the instance ID of a node that is in no group anymore, if the control node has an order for it.

    The exit code is 0 if the planned work is recorded.
    """
    from gpuinfra.handover.ports import PortUnavailable
    from gpuinfra.search.patience import duration
    from gpuinfra.verification.maintenance import Work, former_nodes, planned, record
    from gpuinfra.verification.replacement import targets
    from gpuinfra.verification.store import polled

    if (period is not None) + end + release != 1:
        raise UsageError("specify one of --for, --end and --release")
    now = time.time()
    until = now + duration("--for", period) if period is not None else None
    work = Work(until=until, released=release, by=getpass.getuser(), why=why)
    with active_stack(stack, stacks, logs_in=False) as active:
        if stacks.notice:
            click.echo(stacks.notice, err=as_json)
        try:
            polls = polled(active.resources)
            former = former_nodes(polls, nodes) if release else {}
            members = targets(polls, [name for name in nodes if name not in former])
            chosen = [(one.poll, one.node.instance_id, one.node.label) for one in members]
            by_id = {one.instance_id: one for one in former.values()}
            chosen += [(one.poll, one.instance_id, one.name) for one in by_id.values()]
            if not chosen[0][0].controlled:
                raise UsageError(
                    f"{stack} has no control node, which sends alerts and repairs nodes; declare monitoring"
                )
            for poll in {id(poll): poll for poll, _, _ in chosen}.values():
                record(poll, {id_: label for of, id_, label in chosen if of is poll}, work, now)
            recorded = planned(chosen[0][0], now)
        except PortUnavailable as problem:
            raise DeploymentError(f"the planned work of {stack} cannot be recorded: {problem}") from None
    if as_json:
        document = {"schema": SCHEMA, "stack": short_name(stack), "planned": recorded, **stacks.marks}
        click.echo(json.dumps(document, indent=2, ensure_ascii=True))
        return 0
    for _, id_, label in chosen:
        click.echo(f"{titled(label, id_)}: {_said(until, release)}")
    return 0


def _said(until: float | None, release: bool) -> str:
    if until is not None:
        return f"no alerts and no repair until {datetime.fromtimestamp(until, UTC):%Y-%m-%d %H:%M} UTC"
    return "released; the repair of other nodes continues" if release else "the planned work ends"
