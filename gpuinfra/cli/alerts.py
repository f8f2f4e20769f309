"""`gpuinfra alerts`: prints the alert rules of a stack for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuinfra.base.errors import UsageError

if TYPE_CHECKING:
    from gpuinfra.monitoring.alerts import AlertPool
    from gpuinfra.spec.load import LoadedStack


@click.command("alerts")
@click.argument("stack")
def command(stack: str) -> int:
    """Print the alert rules for the metrics of STACK as a rule file of Prometheus.

    The rules apply to pools whose nodes run the DCGM exporter (software.gpu_metrics), and with monitoring to all pools. Prometheus must
    add the label `pool` to their targets. The command reads only the stack file. `gpuinfra explain NAME` describes an alert.
    """
    import yaml

    from gpuinfra.monitoring.alerts import rule_file

    loaded, pools = served(stack)
    click.echo(yaml.safe_dump(rule_file(loaded.spec.name, pools), sort_keys=False, width=1000), nl=False)
    return 0


def served(stack: str) -> tuple[LoadedStack, list[AlertPool]]:
    """Return a stack and its pools that serve metrics. Raises `UsageError` if there is none."""
    from gpuinfra.base.day import today
    from gpuinfra.plan.make import build_plan
    from gpuinfra.plan.monitoring import alert_pools
    from gpuinfra.rules import load_stack

    loaded = load_stack(stack, today())
    pools = alert_pools(loaded.spec, build_plan(loaded.spec, today()).pools)
    if not pools:
        raise UsageError(f"no pool of {loaded.name} serves metrics; set software.gpu_metrics to dcgm_exporter")
    return loaded, pools
