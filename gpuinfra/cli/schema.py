"""`gpuinfra schema`: prints the JSON schema for stack files."""

from __future__ import annotations

import click


@click.command("schema")
def command() -> int:
    """Print the JSON schema for stack files, for use in editors and other programs.

    To use the schema in an editor, begin a stack file with
    `# yaml-language-server: $schema=PATH`.
    """
    from gpuinfra.reference.schema import FILE

    click.echo(FILE.read_text(encoding="utf-8"), nl=False)
    return 0
