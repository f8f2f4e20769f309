"""`gpuinfra explain`: any field of a declaration, any rule, any check of a node, any bootstrap step."""

from __future__ import annotations

import click


@click.command("explain")
@click.argument("word", metavar="FIELD|RULE|CHECK")
def command(word: str) -> int:
    """Any field, finding or check.

    A field as `pools.capacity.count`, a rule as findings name it, a check as G3.
    """
    from gpuinfra.spec.explain import explain

    click.echo(explain(word))
    return 0
