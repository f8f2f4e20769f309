"""`gpuinfra alerts`: prints the alert rules of a stack for Prometheus."""

from __future__ import annotations

import click

from gpuinfra.base.errors import UsageError


@click.command("alerts")
@click.argument("stack")
@click.option("--dashboard", is_flag=True, help="Print a dashboard for Grafana, as JSON, instead of the rules.")
def command(stack: str, dashboard: bool) -> int:
    """Print the alert rules for the metrics of STACK as a rule file of Prometheus.

    The rules apply to pools whose nodes run the DCGM exporter (software.gpu_metrics), and with monitoring to all pools. Prometheus must
    add the label `pool` to their targets. The command reads only the stack file. `gpuinfra explain NAME` describes an alert.
    """
    import json

    import yaml

    from gpuinfra.base.day import today
    from gpuinfra.monitoring.alerts import rule_file
    from gpuinfra.monitoring.dashboard import dashboard as dashboard_of
    from gpuinfra.plan.make import build_plan
    from gpuinfra.plan.monitoring import alert_pools
    from gpuinfra.rules import load_stack

    loaded = load_stack(stack, today())
    pools = alert_pools(loaded.spec, build_plan(loaded.spec, today()).pools)
    if not pools:
        raise UsageError(f"no pool of {loaded.name} serves metrics; set software.gpu_metrics to dcgm_exporter")
    if dashboard:
        click.echo(json.dumps(dashboard_of(loaded.spec.name), indent=1))
        return 0
    click.echo(yaml.safe_dump(rule_file(loaded.spec.name, pools), sort_keys=False, width=1000), nl=False)
    return 0
