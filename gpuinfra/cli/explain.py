"""`gpuinfra explain`: any field of a declaration, any rule, any check of a node, any bootstrap step, any Xid."""

from __future__ import annotations

import click


@click.command("explain")
@click.argument("word", metavar="FIELD|RULE|CHECK|STEP|XID")
def command(word: str) -> int:
    """Any field, finding, check, bootstrap step or Xid.

    A field as `pools.capacity.count`, a rule as findings name it, a check as G3 or pcie_link, a step as 30-driver,
    an error of NVIDIA's driver as xid-79.
    """
    from gpuinfra.reference.explain import explain

    click.echo(explain(word))
    return 0
