"""`gpuinfra drift`: compares a stack's cloud resources and nodes with what was deployed."""

from __future__ import annotations

import json

import click

from gpuinfra.base.errors import EnvironmentMissing
from gpuinfra.cli.options import stack_options
from gpuinfra.cli.stack_context import compared
from gpuinfra.cli.stacks import Stacks, short_name


@click.command("drift")
@click.argument("stack")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@stack_options
def command(stack: str, as_json: bool, stacks: Stacks) -> int:
    """Compare the cloud resources and the nodes of STACK with what was deployed.

    To compare cloud resources with the state, the command previews a refresh. To compare nodes, it reads their newest evidence: versions
    against the software lock, services, held packages, the bundle, and the age of the evidence. The command changes neither the
    cloud nor the state. For each difference, it prints the command that fixes it. Hardware faults are not drift; see
    `gpuinfra verify`.

    The exit code is 0 if there is no drift, 1 if there is drift, and 3 if no drift was found but some data could not be read.
    """
    from gpuinfra.report import drift_text

    differences, unread = compared(stack, stacks)
    if as_json:
        document = {**drift_text.document(short_name(stack), differences, unread), **stacks.marks}
        click.echo(json.dumps(document, indent=2, ensure_ascii=True))
    else:
        if stacks.notice:
            click.echo(stacks.notice)
        for line in drift_text.text(differences, unread):
            click.echo(line)
    return 1 if differences else EnvironmentMissing.exit_code if unread else 0
