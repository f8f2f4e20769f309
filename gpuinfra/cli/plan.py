"""`gpuinfra plan`: validates a stack and shows its topology, software and price. Only `--live` requires an account and a network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuinfra.cli.options import FILE
from gpuinfra.day import now, read_day, today
from gpuinfra.errors import UsageError
from gpuinfra.findings import Finding, Level

if TYPE_CHECKING:
    from gpuinfra.clouds.preflight import Answers

_COLORS = {Level.ERROR: "red", Level.WARN: "yellow", Level.INFO: "cyan"}


@click.command("plan")
@click.argument("stack", metavar="STACK|FILE")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object (docs/plan-json.md).")
@click.option("--html", "page", type=FILE, help="Write a self-contained HTML page.")
@click.option("--svg", type=FILE, help="Write a diagram of the topology as an SVG image.")
@click.option(
    "--mermaid", is_flag=True, help="Print a diagram of the topology as a Mermaid flowchart instead of the plan."
)
@click.option("--prices", type=FILE, help="File with your own prices, which override the prices in the catalog.")
@click.option("--why", is_flag=True, help="List each decision and its reason.")
@click.option(
    "--live", is_flag=True, help="Also ask the cloud: permissions, quotas, capacity and images (docs/doctor.md)."
)
@click.option("--on", "day", metavar="DATE", help="Plan as of this day, such as 2026-12-01, instead of today.")
def command(
    stack: str,
    as_json: bool,
    page: Path | None,
    svg: Path | None,
    mermaid: bool,
    prices: Path | None,
    why: bool,
    live: bool,
    day: str | None,
) -> int:
    """Validate STACK and show its topology, software and price.

    This command creates no resources. Without --live, it requires no cloud account or network. STACK is the name of a stack or the path
    to its file.

    The exit code is 1 if a finding, or a row of --live, is an error.
    """
    from gpuinfra.cost.file import load
    from gpuinfra.report.plan_json import plan_report
    from gpuinfra.spec.load import find_stack

    if mermaid and (as_json or why):
        raise UsageError("--mermaid prints only the flowchart; omit --json and --why")
    on = read_day(day, "--on") if day else today()
    own = load(prices) if prices else None
    result = plan_report(find_stack(stack), on, own, None if day else now())
    asked = _live(result.path) if live and result.plan else None
    if as_json:
        click.echo(json.dumps({**result.as_dict(), **({"live": asked.as_dict()} if asked else {})}, indent=2))
    else:
        for finding in result.findings:
            click.echo(colored(finding), err=True)
        if result.plan and mermaid:
            from gpuinfra.report import diagram

            click.echo(diagram.mermaid(result.plan), nl=False)
        elif result.plan:
            from gpuinfra.report.plan_text import text

            click.echo(text(result))
            if why:
                click.echo("\ndecisions")
                for decision in result.plan.decisions:
                    click.echo(f"  {decision.path}: {decision.chosen} - {decision.why}")
    if page:
        from gpuinfra.cli.judgement import write_file
        from gpuinfra.report.plan_page import page as render

        write_file(page, render(result), "--html")
        click.echo(f"page: {page}", err=True)
    if svg and result.plan:
        from gpuinfra.cli.judgement import write_file
        from gpuinfra.report import diagram

        write_file(svg, diagram.svg(result.plan), "--svg")
        click.echo(f"diagram: {svg}", err=True)
    if asked and not as_json:
        click.echo("\nlive")
        click.echo("\n".join(asked.lines()))
    return 0 if result.ok and (asked is None or asked.ok) else 1


def _live(path: Path) -> Answers:
    """Ask the cloud about the plan of a stack file."""
    from gpuinfra.clouds.preflight import Answers
    from gpuinfra.doctor.cloud import live_rows
    from gpuinfra.spec.load import read_stack

    return Answers(rows=tuple(live_rows(read_stack(path))))


def colored(finding: Finding) -> str:
    """Format a finding for a terminal. Click removes the color if the output is not a terminal."""
    text = str(finding)
    word = f"{finding.level.value}:"
    return text.replace(word, click.style(word, fg=_COLORS[finding.level], bold=True), 1)
