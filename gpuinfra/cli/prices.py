"""`gpuinfra prices`: lists the prices of a stack or of machine types, and converts price files that clouds publish."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from gpuinfra.cli.catalog import check_region
from gpuinfra.cli.options import FILE
from gpuinfra.report.prices import NOT_CERTAIN
from gpuinfra.report.tables import Cell, Column, Table

SCHEMA = "gpuinfra.prices/1"


@click.command("prices")
@click.argument("names", metavar="STACK|MACHINE...|update FILE...", nargs=-1, required=True)
@click.option("--region", help="List only the prices in this region. Does not apply to a stack.")
@click.option("--prices", "own", type=FILE, help="File with your own prices, which override the prices in the catalog.")
@click.option("--sources", is_flag=True, help="Also print the note and the source of each price.")
@click.option("--output", type=FILE, help="Price file to write. Applies only to `update`.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object (docs/reference/prices.md).")
def command(
    names: tuple[str, ...], region: str | None, own: Path | None, sources: bool, output: Path | None, as_json: bool
) -> int:
    """List each price of STACK, or the prices of MACHINE in every region, with its date.

    A price that is marked as an estimate does not come from the provider's price list. With --sources, its note shows the calculation.

    `gpuinfra prices update FILE... --output prices.yaml` converts price files that AWS, Azure and Google Cloud publish to a price file for --prices.
    """
    if names[0] == "update":
        for option, given in (("--prices", own), ("--json", as_json), ("--sources", sources)):
            if given:
                raise click.UsageError(f"{option} does not apply to `gpuinfra prices update`; remove it")
        return _update(names[1:], region, output)
    if output:
        raise click.UsageError("--output applies to `gpuinfra prices update FILE`; remove --output to list prices")
    records = _records(names)
    stack = None
    if records:
        if own:
            raise click.UsageError("--prices applies only to a stack; remove --prices to list machine types")
        check_region(region, (cloud for cloud, _ in records))
        rows = [row for cloud, record in records for row in _of_machine(cloud, record, region)]
    else:
        if region:
            raise click.UsageError("--region does not apply to a stack, which has one region; remove --region")
        stack, rows = _of_stack(names, own)
    if as_json:
        click.echo(json.dumps({"schema": SCHEMA, "stack": stack, "prices": rows}, indent=2))
        return 0
    if not rows:
        where = f" in {region}" if region else ""
        click.echo(f"no price is known for {', '.join(names)}{where}")
        return 0
    from gpuinfra.report import tables

    for title, some in _sections(records, rows):
        click.echo(title)
        click.echo("\n".join(tables.text(_table(some, sources), indent=2)))
    if not sources:
        click.echo("\n`--sources` shows the note and the source of each price.")
    return 0


def _update(files: Sequence[str], region: str | None, output: Path | None) -> int:
    if not files or output is None:
        raise click.UsageError(
            "`update` requires a cloud's price files and --output; run: gpuinfra prices update FILE --output prices.yaml"
        )
    from gpuinfra.base.day import today
    from gpuinfra.cli.judgement import write_file
    from gpuinfra.cost.public import read_public, text

    day = today()
    files_read = [read_public(Path(file), day) for file in files]
    count = sum(region in (None, price.region) for file in files_read for price in file.prices)
    if not count:
        raise click.UsageError(f"the files contain no price in {region}; set --region to a region in the files")
    write_file(output, text(files_read, region), "--output")
    click.echo(f"{output}: {count} prices from {'; '.join(dict.fromkeys(file.source for file in files_read))}")
    return 0


def _records(names: Sequence[str]) -> list[tuple[str, Any]]:
    """Return cloud and record of each machine type, or nothing if none of the names is a machine type."""
    from gpuinfra.base.registry import CLOUDS
    from gpuinfra.plan.profile import profile_of

    records = {
        record.name.lower(): (cloud, record) for cloud in CLOUDS for record in profile_of(cloud).machines.values()
    }
    wrong = [name for name in names if name.lower() not in records]
    if not wrong:
        return [records[name.lower()] for name in names]
    problem = _stack_problem(names[0])
    if len(names) == 1 and not problem:
        return []
    from gpuinfra.plan.machines import similar
    from gpuinfra.spec.shown import shown

    near = similar(wrong[0], {record.name: record for _, record in records.values()})
    if near is None and len(names) == 1:
        raise click.UsageError(f"{problem}; or specify a machine type, which `gpuinfra catalog` lists")
    hint = f"did you mean {near}?" if near else "specify one stack, or one or more machine types"
    raise click.UsageError(f"machine type {shown(wrong[0])} is not in the catalog; {hint}")


def _stack_problem(name: str) -> str:
    """Return why the name does not refer to a stack, or an empty string."""
    from gpuinfra.base.errors import UsageError
    from gpuinfra.spec.load import find_stack

    try:
        find_stack(name)
    except UsageError as problem:
        return str(problem)
    return ""


def _of_machine(cloud: str, record: Any, region: str | None) -> Iterator[dict[str, Any]]:
    for row in sorted(record.prices, key=lambda one: (one.kind, one.term, one.region, one.read)):
        if region is None or row.region in (region, "*"):
            yield {
                "what": record.name,
                "cloud": cloud,
                "region": row.region,
                "kind": row.kind.value,
                "term": row.term,
                "usd": row.usd_per_hour,
                "usd_low": row.usd_low,
                "unit": "node-hour",
                "read": row.read.isoformat(),
                "source": row.source,
                "certain": row.certain,
                "note": row.note,
            }


def _of_stack(names: Sequence[str], own: Path | None) -> tuple[str, list[dict[str, Any]]]:
    from gpuinfra.base.day import today
    from gpuinfra.cost import HOURS_PER_MONTH, price
    from gpuinfra.cost.file import load
    from gpuinfra.plan.make import build_plan
    from gpuinfra.rules import load_stack
    from gpuinfra.spec.load import find_stack

    day = today()
    loaded = load_stack(find_stack(names[0]), day)
    plan = build_plan(loaded.spec, day)
    cost = price(plan, day, load(own) if own else None)
    hours = {line.unit: HOURS_PER_MONTH if line.unit.endswith("month") else 1 for line in cost.lines}
    rows = [
        _row_of(plan, line, line.kind, None if (usd := line.usd_per_unit_hour) is None else usd * hours[line.unit])
        for line in cost.lines
    ]
    return loaded.name, [*rows, *(_row_of(plan, rate, "usage", rate.usd) for rate in cost.rates)]


def _row_of(plan: Any, line: Any, kind: str, usd: float | None) -> dict[str, Any]:
    return {
        "what": line.what,
        "cloud": plan.cloud,
        "region": plan.region,
        "kind": kind,
        "term": "",
        "usd": None if usd is None else round(usd, 6),
        "usd_low": None,
        "unit": line.unit,
        "read": line.read.isoformat() if line.read else None,
        "source": line.source,
        "certain": line.certain,
        "note": line.note,
    }


def _sections(
    records: Sequence[tuple[str, Any]], rows: list[dict[str, Any]]
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield a title and the prices of each machine type, or of the stack."""
    if not records:
        yield f"prices in {rows[0]['region']}", rows
    for cloud, record in records:
        if some := [row for row in rows if (row["cloud"], row["what"]) == (cloud, record.name)]:
            yield f"{record.name} on {cloud}", some


def _table(rows: Sequence[dict[str, Any]], sources: bool) -> Table:
    """Return the table of one section. What all rows share stands in the title."""
    one_region = len({row["region"] for row in rows}) == 1
    one_item = len({row["what"] for row in rows}) == 1
    cells = [
        *([] if one_item else [(Column("item", wrap=True), [row["what"] for row in rows])]),
        *([] if one_region else [(Column("region"), [row["region"] for row in rows])]),
        (Column("kind"), [f"{row['kind'].replace('_', '-')} {row['term']}".strip() for row in rows]),
        (Column("USD", right=True), [_usd(row) for row in rows]),
        (Column("per"), [row["unit"] for row in rows]),
        (Column("date", wrap=True), [_date(row) for row in rows]),
    ]
    if sources:
        texts = ["; ".join(filter(None, (row["note"], row["source"]))) for row in rows]
        cells.append((Column("note and source", wrap=True), texts))
    return Table([column for column, _ in cells], list(zip(*(values for _, values in cells), strict=True)))


def _usd(row: dict[str, Any]) -> str:
    low = "" if row["usd_low"] is None else f"{row['usd_low']:g} to "
    return low + ("unknown" if row["usd"] is None else f"{row['usd']:,.4f}".rstrip("0").rstrip("."))


def _date(row: dict[str, Any]) -> Cell:
    return Cell(row["read"] or "", doubt="" if row["usd"] is None or row["certain"] else NOT_CERTAIN)
