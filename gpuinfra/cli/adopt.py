"""`gpuinfra adopt`: write the Pulumi import file for resources that an earlier destroy retained."""

from __future__ import annotations

import json
from pathlib import Path

import click

from gpuinfra.base.json_text import parsed
from gpuinfra.base.safe_text import printable
from gpuinfra.cli.options import FILE


@click.command(name="adopt", short_help="Write a Pulumi import file for the resources that `pulumi destroy` retained")
@click.argument("stack")
@click.option(
    "--organization",
    default="organization",
    show_default=True,
    help="Organization of the stack. Default: the organization that self-managed backends use.",
)
@click.option("--project", default="gpuinfra", show_default=True, help="Pulumi project of the stack.")
@click.option("--profile", help="Named AWS profile. Default: the credentials from the environment.")
@click.option(
    "--state",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Output of `pulumi stack export`. The import file omits the resources in this output.",
)
@click.option("--out", type=FILE, default=Path("adopt.json"), show_default=True, help="Import file to write.")
def command(stack: str, organization: str, project: str, profile: str | None, state: Path | None, out: Path) -> None:
    """Write the Pulumi import file for resources that an earlier destroy of STACK retained.

    `destroy` retains buckets, keys, audit logs, and file systems that hold the only copy of their data. Their names stay
    in use, so the next `pulumi up` fails when it tries to create them again. This command finds them with read-only
    calls to the account and prints the Pulumi commands that import them. The engine protects an imported resource until the next
    `pulumi up`, so a `pulumi destroy` before then fails and does not delete any retained resource.
    """
    from gpuinfra.base import naming
    from gpuinfra.base.day import today
    from gpuinfra.base.errors import UsageError
    from gpuinfra.cli.judgement import write_file
    from gpuinfra.clouds.adopt import import_file, retained, urns_in
    from gpuinfra.clouds.cloud import cloud_of
    from gpuinfra.plan.make import build_plan
    from gpuinfra.rules import load_stack

    day = today()
    loaded = load_stack(stack, day)
    plan = build_plan(loaded.spec, day)
    try:
        urns = urns_in(parsed(state.read_text(encoding="utf-8"))) if state else {}
    except (ValueError, KeyError, AttributeError, TypeError):
        raise UsageError(f"--state {state} is not the output of `pulumi stack export`") from None
    token = naming.stack_token(organization, project, loaded.name, plan.name)
    document = import_file(retained(cloud_of(plan.cloud).retained(plan, token, loaded.settings, profile)), urns)
    count = sum(not row.get("component") for row in document["resources"])
    if not count:
        click.echo(f"no retained resources of {loaded.name} to import; run: pulumi up --stack {loaded.name}")
        return
    write_file(out, json.dumps(document, indent=1) + "\n", "--out")
    click.echo(f"found {count} retained resources and wrote {printable(out)}; to import them, run:")
    if not state:
        click.echo(
            f"  pulumi destroy --stack {loaded.name}   # only after a failed `up`, which leaves part of the stack in the state"
        )
    click.echo(f"  pulumi import --stack {loaded.name} --file {out} --generate-code=false --yes")
    click.echo(f"  pulumi up --stack {loaded.name}")
