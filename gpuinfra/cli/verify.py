"""`gpuinfra verify`: judges the evidence that nodes uploaded, or the evidence in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gpuinfra.base.errors import UsageError
from gpuinfra.cli.expectations import for_evidence, from_file
from gpuinfra.cli.judgement import publish
from gpuinfra.cli.options import judgement_options, stack_options
from gpuinfra.cli.stack_context import active_stack
from gpuinfra.cli.stacks import Stacks


@click.command("verify")
@click.argument("stack", required=False)
@click.option(
    "--evidence",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Evaluate the evidence in this folder or file instead of the bucket of STACK.",
)
@judgement_options
@stack_options
def command(stack: str | None, evidence: Path | None, expectation: Path | None, stacks: Stacks, **output: Any) -> int:
    """Evaluate the evidence that the nodes of STACK uploaded to its evidence bucket.

    This command reads the newest evidence of each node, verifies who signed it, and compares the raw output with the
    plan. It prints the action for each node: nothing, look, configure, reset, reboot or replace. It does not contact
    the nodes; to run the checks on the nodes now, use `gpuinfra check`.

    The exit code is 0 if every node is verified, 3 if the state of STACK cannot be read or contains no nodes, and 1 otherwise.
    """
    from gpuinfra.verification.read import read_folder

    if evidence and not stacks.hosts_files:
        raise UsageError("--rehearsal reads the evidence of the stand-in nodes of STACK; omit --evidence")
    title = f"Verification of {stack or (evidence or Path()).resolve().name}"
    if evidence is not None:
        return publish(read_folder(evidence), for_evidence(stack, expectation), title, stacks=stacks, **output)
    if stack is None:
        raise UsageError("no evidence is specified; specify STACK or --evidence DIR")
    with active_stack(stack, stacks, logs_in=False) as active:
        read, deployed = active.found()
    expected = from_file(expectation) if expectation else None
    return publish(read, lambda node: expected or deployed[node.instance_id], title, stacks=stacks, **output)
