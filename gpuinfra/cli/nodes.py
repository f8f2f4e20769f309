"""`gpuinfra nodes`: lists the nodes of a stack, nodes with problems first."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import click

from gpuinfra.base.errors import DeploymentError
from gpuinfra.cli.options import stack_options
from gpuinfra.cli.stack_context import active_stack, commands_of, plan_of
from gpuinfra.cli.stacks import Stacks, short_name


@click.command("nodes")
@click.argument("stack")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@stack_options
def command(stack: str, as_json: bool, stacks: Stacks) -> int:
    """List the nodes of STACK with their state, how long each has been verified, and the price per hour.

    The command lists the nodes that are currently in the node groups, and reads their newest evidence. Nodes that are missing, failed or changed come
    first. The price is the catalog price of the machine type, without disks. The command does not contact the nodes.

    The exit code is 0 if the nodes could be read, regardless of their state. For an exit code that depends on the state, use
    `gpuinfra verify` or `gpuinfra drift`.
    """
    from gpuinfra.cost.price import node_prices
    from gpuinfra.handover.ports import PortUnavailable
    from gpuinfra.report import nodes_text
    from gpuinfra.verification.drift import of_nodes
    from gpuinfra.verification.judged import judge_all
    from gpuinfra.verification.nodes import repair_of, rows
    from gpuinfra.verification.store import found_in, polled

    with active_stack(stack, stacks, logs_in=False) as active:
        try:
            polls = polled(active.resources)
            evidence, expected = found_in(polls, active.resources)
            judged = judge_all(evidence, lambda one: expected[one.instance_id])
            drift = of_nodes(judged, (), commands_of(stack, stacks))
            repair = repair_of(polls)
            shown = rows(polls, drift, node_prices(plan_of(stack)))
        except PortUnavailable as problem:
            raise DeploymentError(f"the nodes of {stack} cannot be read: {problem}") from None
    if as_json:
        click.echo(
            json.dumps(
                {**nodes_text.document(short_name(stack), shown, repair), **stacks.marks}, indent=2, ensure_ascii=True
            )
        )
        return 0
    if stacks.notice:
        click.echo(stacks.notice)
    for line in nodes_text.text(shown, datetime.now(UTC), repair):
        click.echo(line)
    return 0
