"""Renders a plan as a page: findings, topology, price, workload, software, decisions and resources."""

from __future__ import annotations

from typing import Any

from gpuinfra.base.words import counted
from gpuinfra.plan.model import Group, Plan, PoolPlan
from gpuinfra.report.diagram import page_svg
from gpuinfra.report.html import render
from gpuinfra.report.plan_json import PlanReport
from gpuinfra.report.plan_tables import (
    commands_table,
    dates,
    existing_text,
    gpus_of,
    image_text,
    own_steps_table,
    recovery_table,
    storage_text,
    subnet_table,
    time_table,
    ways_table,
)
from gpuinfra.report.price_chart import chart
from gpuinfra.report.prices import hour_tile, price_table, summary
from gpuinfra.report.tables import Cell, Column, Table, kept_table
from gpuinfra.report.workload_text import workload_fields
from gpuinfra.sizing.planned import WorkloadForecast

MOST_DRAWN = 256
"""Maximum number of nodes in a group that are drawn individually. Larger groups are shown as a number."""


def page(report: PlanReport) -> str:
    """Render the page."""
    findings = Table(
        ["", Column("finding", wrap=True)],
        [
            (Cell(badge=finding.level.value), Cell(f"{finding.path} {finding.message}".strip(), note=finding.hint))
            for finding in report.findings
        ],
    )
    common: dict[str, Any] = {"kind": "Plan", "findings": findings, "origin": f"stack {report.stack}"}
    from markupsafe import Markup

    plan, cost = report.plan, report.cost
    if plan is None or cost is None:
        return render(
            "plan.html.j2", **common, title=f"Plan of {report.stack}", outcome="failed", status="cannot be planned", subtitle=str(report.path),
            banners=[], tiles=[], planned=False,
        )  # fmt: skip
    priced = cost.as_dict()
    day = f" · as of {plan.today}" if plan.today else ""
    return render(
        "plan.html.j2",
        **common,
        title=f"Plan of {plan.name}",
        outcome="planned",
        status="planned",
        subtitle=f"{plan.cloud} {plan.region} · {', '.join(plan.zones)}{day}",
        banners=["This is a plan: nothing was created."],
        tiles=[
            (plan.nodes, "nodes"),
            (gpus_of(plan), "GPUs"),
            hour_tile(priced),
            (sum(plan.resources.values()), "resources"),
        ],
        planned=True,
        diagram=Markup(page_svg(plan)),
        pools=[_pool(pool) for pool in plan.pools],
        network=(plan.network.cidr or plan.network.existing_id or "") if plan.network else "",
        subnets=subnet_table(plan.network.subnets) if plan.network else Table([], []),
        file_systems=_file_systems(plan),
        recovery=f"{plan.recovery.mode} in {plan.recovery.region}" if plan.recovery else "",
        recovery_times=recovery_table(plan.recovery) if plan.recovery else Table([], []),
        recovery_images=[image_text(one) for one in plan.recovery.images] if plan.recovery else [],
        recovery_commands=commands_table(plan.recovery),
        time_summary=report.time.in_words[0].upper() + report.time.in_words[1:] + "." if report.time else "",
        times=time_table(report.time, sources=True),
        price_summary=summary(priced),
        prices=price_table(priced["lines"]),
        excluded=priced["excluded"],
        chart=Markup(chart(report.ways)),
        ways=ways_table(report.ways, notes=True),
        workload=_workload(report.workload) if report.workload else Table([], []),
        workload_sources=report.workload.source if report.workload else (),
        software=[_software(pool, plan) for pool in plan.pools],
        decisions=Table(
            ["field", Column("chosen", wrap=True), Column("reason", wrap=True)],
            [(decision.path, decision.chosen, decision.why) for decision in plan.decisions],
        ),
        resources=_resources(plan),
        kept=kept_table((item.what, item.type, item.why) for item in plan.kept),
    )


def _pool(pool: PoolPlan) -> dict[str, Any]:
    gpus = pool.expectation["gpus"]
    gpu = f", {gpus} x {pool.expectation.get('gpu_name')} each" if gpus else ""
    return {
        "name": pool.name,
        "text": f"{pool.count} x {pool.machine}{gpu}",
        "groups": [_group(group) for group in pool.groups],
        "dates": list(dates(pool)),
        "own_steps": own_steps_table(pool),
    }


def _software(pool: PoolPlan, plan: Plan) -> dict[str, Any]:
    """Return the version of each software of a pool with its reason, and all settings of the bootstrap steps."""
    prefix = f"{pool.name}.software."
    chosen = [one for one in plan.decisions if one.path.startswith(prefix)]
    return {
        "name": pool.name,
        "versions": Table(
            ["software", "version", Column("reason", wrap=True)],
            [(one.path.removeprefix(prefix).replace("_", " "), one.chosen, one.why) for one in chosen],
        ),
        "settings": Table(["name", Column("value", wrap=True)], [(k, v) for k, v in pool.versions.items() if v]),
    }


def _workload(forecast: WorkloadForecast) -> Table:
    return Table(["", Column("expected", wrap=True)], list(workload_fields(forecast)))


def _group(group: Group) -> dict[str, Any]:
    nodes, kind = group.max_count, group.kind.replace("_", "-")
    return {
        "text": f"{group.name}: {counted(nodes, kind + ' node')}, {group.zone}",
        "nodes": nodes,
        "kind": "spot" if group.kind == "spot" else "",
        "drawn": nodes <= MOST_DRAWN,
    }


def _file_systems(plan: Plan) -> Table:
    rows = [(Cell(entry.mount, code=True), storage_text(entry)) for entry in plan.file_systems]
    rows += [(Cell(entry.mount, code=True), existing_text(entry)) for entry in plan.existing_file_systems]
    return Table(["mount", Column("file system", wrap=True)], rows)


def _resources(plan: Plan) -> Table:
    rows = [(Cell(kind, code=True), count) for kind, count in sorted(plan.resources.items())]
    return Table([Column("type", wrap=True), Column("count", right=True)], rows)
