"""`gpuinfra schema`: the JSON schema of a stack's declaration."""

from __future__ import annotations

import click


@click.command("schema")
def command() -> int:
    """The JSON schema of a stack file, for editors and other programs.

    A stack file points an editor at it with a first line
    `# yaml-language-server: $schema=PATH`.
    """
    from gpuinfra.reference.schema import FILE

    click.echo(FILE.read_text(encoding="utf-8"), nl=False)
    return 0
