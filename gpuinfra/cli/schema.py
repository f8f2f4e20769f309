"""`gpuinfra schema`: prints the JSON schema for stack files, or the schema of gpuinfra's Pulumi package."""

from __future__ import annotations

import json
from importlib.metadata import version

import click


@click.command("schema")
@click.option("--package", is_flag=True, help="Print the schema of the Pulumi package, from which `pulumi package gen-sdk` generates SDKs.")  # fmt: skip
def command(package: bool) -> int:
    """Print the JSON schema for stack files, for use in editors and other programs.

    To use the schema in an editor, begin a stack file with
    `# yaml-language-server: $schema=PATH`.
    """
    if package:
        from gpuinfra.provider.schema import package_schema

        click.echo(json.dumps(package_schema(version("gpuinfra")), indent=2))
        return 0
    from gpuinfra.reference.schema import FILE

    click.echo(FILE.read_text(encoding="utf-8"), nl=False)
    return 0
