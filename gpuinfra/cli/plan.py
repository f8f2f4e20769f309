"""`gpuinfra plan`: validates a stack and shows its topology, software and price. Only `--live` requires an account and network access."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuinfra.base.day import now, read_day, today
from gpuinfra.base.errors import SpecError, UsageError
from gpuinfra.base.findings import Finding, Level
from gpuinfra.base.safe_text import printable
from gpuinfra.cli.options import FILE

if TYPE_CHECKING:
    from datetime import date, datetime

    from gpuinfra.clouds.preflight import PreflightRows
    from gpuinfra.cost.file import PriceFile
    from gpuinfra.report.plan_diff import PlanDiff
    from gpuinfra.report.plan_json import PlanReport
    from gpuinfra.spec.load import LoadedStack

_COLORS = {Level.ERROR: "red", Level.WARN: "yellow", Level.INFO: "cyan"}


@click.command("plan")
@click.argument("stack", metavar="STACK|FILE")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object (docs/reference/plan-json.md).")
@click.option("--html", "page", type=FILE, help="Write a self-contained HTML page.")
@click.option("--svg", type=FILE, help="Write a diagram of the topology as an SVG image.")
@click.option(
    "--mermaid", is_flag=True, help="Print a diagram of the topology as a Mermaid flowchart instead of the plan."
)
@click.option("--prices", type=FILE, help="File with your own prices, which override the prices in the catalog.")
@click.option("--why", is_flag=True, help="List each decision and its reason.")
@click.option(
    "--live",
    is_flag=True,
    help="Also check the state backend, and permissions, quotas, capacity and images in the account (docs/guides/doctor.md).",
)
@click.option(
    "--diff",
    "against",
    metavar="STACK|FILE|GIT-REF",
    help="Show what changes compared with another declaration, or from an earlier commit of this declaration.",
)
@click.option("--markdown", is_flag=True, help="With --diff: print Markdown for a pull request.")
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
    against: str | None,
    markdown: bool,
    day: str | None,
) -> int:
    """Validate STACK and show its topology, software and price.

    This command creates no resources. Without --live, it requires no cloud account or network access. STACK is the name of a stack or the path
    to its file.

    With --diff, it compares STACK with another declaration, and shows the changes to resources, price and findings.

    The exit code is 1 if a finding, or a row of --live, is an error.
    """
    from gpuinfra.cost.file import load
    from gpuinfra.report.plan_json import plan_report, report_of
    from gpuinfra.spec.load import find_stack

    # A plugin of pydantic observes validations. The search for plugins reads the metadata of every installed package.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if against is not None and (page or svg or mermaid or why or live):
        raise UsageError("--diff prints only the comparison; omit --html, --svg, --mermaid, --why and --live")
    if markdown and (against is None or as_json):
        raise UsageError("--markdown prints the comparison of --diff; add --diff and omit --json")
    if mermaid and (as_json or why):
        raise UsageError("--mermaid prints only the flowchart; omit --json and --why")
    on = read_day(day, "--on") if day else today()
    own = load(prices) if prices else None
    if against is not None:
        return _diff(find_stack(stack), against, on, own, None if day else now(), as_json, markdown)
    result = plan_report(find_stack(stack), on, own, None if day else now())
    asked = None
    if live:
        result, asked = _live(result, lambda stack: report_of(stack, on, own, None if day else now()))
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
        click.echo(f"page: {printable(page)}", err=True)
    if svg and result.plan:
        from gpuinfra.cli.judgement import write_file
        from gpuinfra.report import diagram

        write_file(svg, diagram.svg(result.plan), "--svg")
        click.echo(f"diagram: {printable(svg)}", err=True)
    if asked and not as_json:
        click.echo("\nlive")
        click.echo("\n".join(asked.lines()))
    return 0 if result.ok and (asked is None or asked.ok) else 1


def _diff(
    path: Path,
    against: str,
    day: date,
    prices: PriceFile | None,
    time: datetime | None,
    as_json: bool,
    markdown: bool,
) -> int:
    """Print the comparison with another declaration."""
    from gpuinfra.report import plan_diff_text

    with _other(path, against) as old:
        diff = compared(path, old, against, day, prices, time)
    if as_json:
        click.echo(json.dumps(diff.as_dict(), indent=2))
    elif markdown:
        click.echo(plan_diff_text.markdown(diff))
    else:
        for title, findings in (("new", diff.appeared), ("resolved", diff.resolved)):
            for finding in findings:
                click.echo(f"{title}: {colored(finding)}", err=True)
        click.echo(plan_diff_text.text(diff))
    return 0 if diff.ok else 1


@contextlib.contextmanager
def _other(path: Path, against: str) -> Iterator[Path]:
    """Provide the file to compare with: a stack, a file, or the stack file of an earlier commit, in this order."""
    from gpuinfra.cli.git import file_at
    from gpuinfra.spec.load import find_stack

    try:
        other = find_stack(against)
    except UsageError:
        with file_at(against, path) as other:
            yield other
        return
    yield other


def compared(
    path: Path, old: Path, against: str, day: date, prices: PriceFile | None = None, time: datetime | None = None
) -> PlanDiff:
    """Compare the stack file at `path` with an older declaration in the file `old`."""
    from gpuinfra.cli.rehearsals import installed, not_installed
    from gpuinfra.report.plan_diff import PlanDiff, Uncomparable, field_changes
    from gpuinfra.report.plan_json import report_of, unreadable
    from gpuinfra.spec.load import read_stack

    stacks, reports = [], []
    for file in (old, path):
        try:
            stacks.append(read_stack(file))
            reports.append(report_of(stacks[-1], day, prices, time))
        except SpecError as problem:
            reports.append(unreadable(file, problem))
    diff = PlanDiff(old=reports[0], new=reports[1], against=against)
    if len(stacks) == 2:
        diff = replace(diff, fields=field_changes(stacks[0].spec, stacks[1].spec))
    if not diff.new.ok:
        return replace(diff, reason="the declaration has errors")
    if not diff.old.ok:
        return replace(diff, reason=f"the declaration of {against} has errors")
    if (rehearsal := installed()) is None:
        return replace(diff, reason=not_installed())
    try:
        return replace(diff, resources=rehearsal.resource_changes(stacks[0], stacks[1], day))
    except Uncomparable as problem:
        return replace(diff, reason=str(problem))


def _live(report: PlanReport, again: Callable[[LoadedStack], PlanReport]) -> tuple[PlanReport, PreflightRows | None]:
    """Check in the account and the state backend whether the plan of a stack file can be deployed.

    If the only errors are machine types that the catalog lists elsewhere, the cloud is asked for them. What it offers is a warning.
    """
    from gpuinfra.clouds.preflight import PreflightRows, RowState
    from gpuinfra.doctor.run import live_rows
    from gpuinfra.rules.places import offers_are_used, zone_offers_machine
    from gpuinfra.spec.load import read_stack

    errors = [one for one in report.findings if one.level is Level.ERROR]
    elsewhere = {one.rule for one in errors} == {zone_offers_machine.__name__}
    if errors and not elsewhere:
        return report, None
    stack = read_stack(report.path)
    if not elsewhere:
        return report, PreflightRows(rows=tuple(live_rows(stack)))
    machines = tuple(dict.fromkeys((*stack.spec.where.offers, *(pool.machine for pool in stack.spec.pools))))
    where = stack.spec.where.model_copy(update={"offers": machines})
    stack = replace(stack, spec=stack.spec.model_copy(update={"where": where}))
    rows = PreflightRows(rows=tuple(live_rows(stack)))
    if not all(row.state is RowState.OK for row in rows.rows if row.topic == "machine"):
        return report, rows
    hint = "the account offers it; set where.offers before you deploy the stack"
    told = [replace(one, level=Level.WARN, hint=hint) for one in errors]
    offered = again(stack)
    kept = [one for one in offered.findings if one.rule != offers_are_used.__name__]
    return replace(offered, findings=(*told, *kept)), rows


def colored(finding: Finding) -> str:
    """Format a finding for a terminal. Click removes the color if the output is not a terminal."""
    text = str(finding)
    word = f"{finding.level.value}:"
    return text.replace(word, click.style(word, fg=_COLORS[finding.level], bold=True), 1)
