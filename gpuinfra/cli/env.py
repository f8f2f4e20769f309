"""`gpuinfra env`: prints what a launcher needs to know about the nodes of a stack."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import click

from gpuinfra.base.errors import DeploymentError, UsageError
from gpuinfra.cli.options import some, stack_options
from gpuinfra.cli.stack_context import active_stack, plan_of
from gpuinfra.cli.stacks import Stacks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuinfra.inventory import Node
    from gpuinfra.plan.model import Plan, PoolPlan

SCHEMA = "gpuinfra.env/1"


@click.command("env")
@click.argument("stack")
@click.option("-N", "--nodes", type=click.IntRange(1), metavar="COUNT", help="Use the first COUNT verified nodes. Default: all verified nodes.")  # fmt: skip
@click.option("--pool", metavar="POOL", help="Use the nodes of this pool. Required if the stack has several pools.")
@click.option("--hostfile", is_flag=True, help="Print a hostfile for mpirun: one line for each node, with its GPUs as slots.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@stack_options
def command(stack: str, nodes: int | None, pool: str | None, hostfile: bool, as_json: bool, stacks: Stacks) -> int:
    """Print addresses, GPUs, mounts and the NCCL profile of the verified nodes of STACK, in shell syntax.

    The values come from the state of the stack. The command does not contact the nodes.
    """
    if hostfile and as_json:
        raise UsageError("--hostfile and --json cannot be combined; omit one")
    with active_stack(stack, stacks, logs_in=False) as active:
        plan = plan_of(stack)
        pool_plan = _pool(plan, pool)
        ready = [node for node in active.nodes if node.pool == pool_plan.name and node.verified and node.address]
    if not ready:
        raise DeploymentError(
            f"pool {pool_plan.name} has no verified nodes; run `gpuinfra verify {stack}{stacks.options}`"
        )
    if len(ready) < (nodes or 1):
        names = some([node.name for node in ready])
        raise UsageError(f"-N is {nodes}, but only these nodes are verified: {names}; specify at most {len(ready)}")
    document = _document(plan, pool_plan, ready[:nodes])
    if as_json:
        click.echo(json.dumps({**document, **stacks.marks}, indent=2))
    elif hostfile:
        for entry in document["nodes"]:
            click.echo(f"{entry['address']} slots={entry['gpus'] or 1}")
    else:
        if stacks.notice:
            click.echo(f"# {stacks.notice}")
        for name, value in document["environment"].items():
            click.echo(f"export {name}={shlex.quote(value)}")
        click.echo(f"# mounts: {', '.join(document['mounts']) or 'none'}")
        if document["nccl_profile"]:
            click.echo(
                f"# fabric: {document['fabric']}; on the nodes, {document['nccl_profile']} sets the environment variables of NCCL"
            )
    return 0


def _pool(plan: Plan, wanted: str | None) -> PoolPlan:
    names = [one.name for one in plan.pools]
    name = wanted or (names[0] if len(names) == 1 else "")
    if name not in names:
        what = f"--pool is {wanted!r}" if wanted else "the stack has several pools, and no pool is specified"
        raise UsageError(f"{what if names else 'the stack has no pools'}; allowed: {', '.join(names) or 'none'}")
    return next(one for one in plan.pools if one.name == name)


def _document(plan: Plan, pool: PoolPlan, nodes: Sequence[Node]) -> dict[str, Any]:
    from gpuinfra.node.measure import PROFILE
    from gpuinfra.remote.job import environment

    expected = pool.expectation
    gpus = int(str(expected["gpus"]))
    return {
        "schema": SCHEMA,
        "stack": plan.name,
        "pool": pool.name,
        "machine": pool.machine,
        "nodes": [
            {"label": node.name, "id": node.id, "address": node.address, "zone": node.zone, "gpus": gpus}
            for node in nodes
        ],
        "environment": environment([node.address for node in nodes], gpus),
        "mounts": mounts(pool),
        "fabric": expected["fabric_provider"],
        "nccl_profile": PROFILE if expected["fabric_devices"] else None,
    }


def mounts(pool: PoolPlan) -> list[str]:
    """Return the folders of the node where file systems and buckets are mounted."""
    expected = pool.expectation
    buckets = [bucket["mount"] for bucket in expected.get("buckets", [])]
    return [*dict.fromkeys([*expected["file_systems"], *expected.get("homes", []), *buckets])]
