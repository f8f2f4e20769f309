"""`gpuinfra explain`: explains fields of a declaration, rules, node checks, bootstrap steps and Xids."""

from __future__ import annotations

import click


@click.command("explain")
@click.argument("name", metavar="FIELD|RULE|CHECK|STEP|XID|ALERT")
def command(name: str) -> int:
    """Explain a field, rule, check, bootstrap step, Xid or alert.

    Examples: the `pools.capacity.count` field, a rule name from a finding, the G3 or pcie_link check,
    the 30-driver step, the NVIDIA driver error xid-79, the alert GpuMissing.
    """
    from gpuinfra.reference.explain import explain

    click.echo(explain(name))
    return 0
