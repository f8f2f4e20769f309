"""`gpuinfra plan`: what a stack will be and cost, and what is wrong with it. Needs no engine, account or network."""

from __future__ import annotations

import json
from pathlib import Path

import click

from gpuinfra.day import read_day, today
from gpuinfra.errors import UsageError
from gpuinfra.findings import Finding, Level

_COLOURS = {Level.ERROR: "red", Level.WARN: "yellow", Level.INFO: "cyan"}


@click.command("plan")
@click.argument("stack", metavar="STACK|FILE")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object (docs/plan-json.md).")
@click.option(
    "--html", "page", type=click.Path(dir_okay=False, path_type=Path), help="Also write one self-contained page."
)
@click.option(
    "--prices", type=click.Path(dir_okay=False, path_type=Path), help="Your own prices, which win over the catalogue's."
)
@click.option("--why", is_flag=True, help="Also list every decision with its reason.")
@click.option("--on", "day", metavar="DATE", help="Plan as of this day (2026-12-01) in place of today.")
def command(stack: str, as_json: bool, page: Path | None, prices: Path | None, why: bool, day: str | None) -> int:
    """What a stack will be and cost, and what is wrong with it.

    STACK is a stack's name or the path of its file. Exit code 1 when a finding is of level error.
    """
    from gpuinfra.cost.file import load
    from gpuinfra.report.plan_json import answer
    from gpuinfra.spec.load import find_stack

    on = read_day(day, "--on") if day else today()
    own = load(prices) if prices else None
    result = answer(find_stack(stack), on, own)
    if as_json:
        click.echo(json.dumps(result.as_dict(), indent=2))
    else:
        for finding in result.findings:
            click.echo(coloured(finding), err=True)
        if result.plan:
            from gpuinfra.report.plan_text import text

            click.echo(text(result))
            if why:
                click.echo("\ndecisions")
                for decision in result.plan.decisions:
                    click.echo(f"  {decision.path}: {decision.chosen} - {decision.why}")
    if page:
        from gpuinfra.report.plan_page import page as render

        _write(page, render(result))
        click.echo(f"page: {page}", err=True)
    return 0 if result.ok else 1


def coloured(finding: Finding) -> str:
    """A finding for a terminal; click takes the colour away elsewhere."""
    text = str(finding)
    word = f"{finding.level.value}:"
    return text.replace(word, click.style(word, fg=_COLOURS[finding.level], bold=True), 1)


def _write(path: Path, content: str) -> None:
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as problem:
        raise UsageError(f"{path} cannot be written: {problem.strerror}; give another path after --html") from None
