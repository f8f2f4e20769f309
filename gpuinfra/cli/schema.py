"""`gpuinfra schema`: the JSON schema of a stack file."""

from __future__ import annotations

import click


@click.command("schema")
def command() -> int:
    """Print the JSON schema of a stack file, for editors and other programs.

    To use it in an editor, begin a stack file with
    `# yaml-language-server: $schema=PATH`.
    """
    from gpuinfra.reference.schema import FILE

    click.echo(FILE.read_text(encoding="utf-8"), nl=False)
    return 0
