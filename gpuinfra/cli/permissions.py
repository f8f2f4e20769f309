"""`gpuinfra permissions`: prints the minimum permissions for deploying a stack, in the format of its cloud."""

from __future__ import annotations

import json

import click


@click.command("permissions")
@click.argument("stack", metavar="STACK|FILE")
@click.option(
    "--read",
    "read_only",
    is_flag=True,
    help="Print only the permissions that `pulumi preview`, `gpuinfra drift`, `nodes` and `verify` require.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object that includes the reason for each action.")
def command(stack: str, read_only: bool, as_json: bool) -> int:
    """Print the minimum permissions that are required to deploy STACK.

    The output is a set of IAM policies for AWS, of role definitions for Azure, or of custom roles with their bindings
    for Google Cloud. Notes go to stderr.
    """
    from gpuinfra.base.day import today
    from gpuinfra.clouds.cloud import cloud_of
    from gpuinfra.plan.make import build_plan
    from gpuinfra.rules import load_stack
    from gpuinfra.spec.load import find_stack

    day = today()
    loaded = load_stack(find_stack(stack), day)
    permissions = cloud_of(loaded.spec.cloud).permissions(build_plan(loaded.spec, day), read_only=read_only)
    if as_json:
        click.echo(json.dumps(permissions.as_dict(loaded.name), indent=2))
        return 0
    documents = permissions.documents[0] if len(permissions.documents) == 1 else list(permissions.documents)
    click.echo(json.dumps(documents, indent=2))
    many = f" in {len(permissions.documents)} documents" if len(permissions.documents) > 1 else ""
    click.echo(f"{loaded.name}: {len(permissions.needs)} actions{many}; `--json` adds the reason for each", err=True)
    for note in permissions.notes:
        click.echo(f"note: {note}", err=True)
    return 0
