"""Formats the comparison of two plans as text for a terminal, and as Markdown for a pull request."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuinfra.base.findings import Finding
from gpuinfra.base.safe_text import one_line
from gpuinfra.base.words import counted
from gpuinfra.cost import Cost
from gpuinfra.report import tables
from gpuinfra.report.plan_diff import ADDED, CHANGED, REMOVED, REPLACED, RETAINED, PlanDiff, ResourceChange
from gpuinfra.report.prices import usd
from gpuinfra.report.tables import Cell, Column, Table

MAX_VALUE = 60
"""Maximum length of a value."""
MAX_PROPERTIES = 6
"""Maximum number of inputs that are listed for one resource."""
MAX_ROWS = 100
"""Maximum number of rows in a Markdown table. A comment on GitHub has at most 65,536 characters."""
NOT_SET = "not set"
SIGNS = {
    REPLACED: ("+-", tables.BAD), REMOVED: ("-", tables.BAD), RETAINED: ("-", tables.WARN),
    ADDED: ("+", tables.GOOD), CHANGED: ("~", tables.WARN),
}  # fmt: skip
"""Sign and color of each action. The signs are those of `pulumi preview`."""


@dataclass(frozen=True, kw_only=True)
class _Section:
    title: str
    table: Table
    lines: tuple[str, ...] = ()


def text(diff: PlanDiff) -> str:
    """Return the comparison for a terminal. Findings are not part of it, because the command prints them to stderr."""
    lines = [f"{diff.new.stack} compared with {diff.against}", *(f"  {line}" for line in _headline(diff))]
    if diff.resources:
        section = _resources(diff.resources)
        lines += ["", section.title, *(f"  {line}" for line in section.lines), *_resource_lines(diff.resources)]
    for section in (*_prices(diff), *_fields(diff)):
        lines += ["", section.title, *tables.text(section.table, indent=2)]
    return "\n".join(lines)


def _resource_lines(changes: Sequence[ResourceChange]) -> Iterator[str]:
    """Yield each resource with its sign, and its inputs below it."""
    width = tables.terminal_width()
    for change in changes:
        sign, tone = SIGNS[change.action]
        retained = " (retained)" if change.action == RETAINED else ""
        yield f"  {tables.painted(f'{sign:<2}', tone)} {one_line(change.type)} {one_line(change.name)}{retained}"
        for line in _input_lines(change):
            yield from textwrap.wrap(line, width, initial_indent=" " * 7, subsequent_indent=" " * 9)


def markdown(diff: PlanDiff) -> str:
    """Return the comparison for a pull request comment."""
    lines = [f"### {tables.code(diff.new.stack)} compared with {tables.code(diff.against)}", ""]
    lines += [f"- {tables.escaped(line)}" for line in _headline(diff)]
    for section in (*_findings(diff), *_sections(diff)):
        lines += ["", f"**{tables.escaped(section.title)}**", *(tables.escaped(line) for line in section.lines)]
        if section.table:
            lines += ["", *tables.markdown(section.table, MAX_ROWS)]
            if (rest := len(section.table.rows) - MAX_ROWS) > 0:
                lines += ["", f"{counted(rest, 'more row')}; `--json` lists all of them."]
    return "\n".join(lines)


def _headline(diff: PlanDiff) -> Iterator[str]:
    """Yield one line for each topic of the result."""
    if not diff.new.ok:
        yield "the declaration has errors, so there is no plan"
        return
    yield f"resources: {_resources_line(diff)}"
    old, new = diff.old.cost, diff.new.cost
    if new is not None:
        yield f"price: {_price_line(old, new)}"


def _resources_line(diff: PlanDiff) -> str:
    if diff.resources is None:
        return f"not compared, because {diff.reason}"
    return ", ".join(f"{count} {action}" for action, count in diff.counts.items()) or "no changes"


def _price_line(old: Cost | None, new: Cost) -> str:
    if old is None:
        return f"{new.in_words}; the price before the change is unknown, because the earlier declaration has errors"
    if not (old.nodes_priced and new.nodes_priced):
        return f"{old.in_words} before, {new.in_words} after the change"
    least = "" if old.complete and new.complete else "; some prices are unknown, so both totals are minimums"
    hour, month = new.usd_per_hour - old.usd_per_hour, new.usd_per_month - old.usd_per_month
    if abs(month) < 0.5:
        return f"{usd(new.usd_per_hour)} USD an hour, no change{least}"
    return (
        f"{usd(old.usd_per_hour)} -> {usd(new.usd_per_hour)} USD an hour ({hour:+,.2f}), "
        f"{usd(old.usd_per_month, 0)} -> {usd(new.usd_per_month, 0)} USD a month ({month:+,.0f}){least}"
    )


def _sections(diff: PlanDiff) -> Iterator[_Section]:
    if diff.resources:
        yield _resources(diff.resources)
    yield from _prices(diff)
    yield from _fields(diff)


def _prices(diff: PlanDiff) -> Iterator[_Section]:
    if diff.prices:
        columns = [
            Column(),
            Column("billed item", wrap=True),
            *(Column(f"USD/hour {x}", right=True) for x in ("before", "after")),
        ]
        old, new = diff.old.cost, diff.new.cost
        names = [{one.what for one in cost.lines} if cost else set() for cost in (old, new)]
        rows = [
            (
                _sign(one.what in names[0], one.what in names[1]),
                one.what,
                usd(one.old_usd_per_hour) if one.what in names[0] else "",
                usd(one.new_usd_per_hour) if one.what in names[1] else "",
            )
            for one in diff.prices
        ]
        yield _Section(title="price by item", table=Table(columns, rows))


def _fields(diff: PlanDiff) -> Iterator[_Section]:
    if diff.fields:
        columns = [Column(), *(Column(title, wrap=True) for title in ("field", "before", "after"))]
        rows = [
            (
                _sign(one.old is not None, one.new is not None),
                Cell(one.path, code=True),
                _value(one.old),
                _value(one.new),
            )
            for one in diff.fields
        ]
        yield _Section(title="declaration", table=Table(columns, rows))


def _sign(before: bool, after: bool) -> str:
    """Return the sign of a value that exists before and after the change."""
    return SIGNS[CHANGED if before and after else ADDED if after else REMOVED][0]


def _resources(changes: Sequence[ResourceChange]) -> _Section:
    columns = [Column("action"), Column("type", wrap=True), Column("name", wrap=True), Column("inputs", wrap=True)]
    rows = [
        (
            one.action,
            Cell(one.type, code=True),
            Cell(one.name, code=True),
            Cell(_inputs(one), code=bool(one.properties)),
        )
        for one in changes
    ]
    notes = {
        REPLACED: "A replaced resource is deleted and created again. Its data is lost unless the resource is retained.",
        REMOVED: "A removed resource is deleted.",
        RETAINED: "A retained resource is removed from the stack's state, continues to exist and continues to incur costs.",
    }
    actions = {one.action for one in changes}
    return _Section(
        title="resources",
        table=Table(columns, rows),
        lines=tuple(note for key, note in notes.items() if key in actions),
    )


def _inputs(change: ResourceChange) -> str:
    """Return the inputs that change, on one line."""
    return "; ".join(_input_lines(change))


def _input_lines(change: ResourceChange) -> list[str]:
    """Return the inputs that change. Inputs that replace the resource come first."""
    ordered = sorted(change.properties, key=lambda one: not one.replaces)
    shown = [
        f"{one.path}: {_short(one.old)} -> {_short(one.new)}{' (replaces)' if one.replaces else ''}"
        for one in ordered[:MAX_PROPERTIES]
    ]
    rest = len(ordered) - MAX_PROPERTIES
    return [*shown, *([f"and {rest} more"] if rest > 0 else [])]


def _findings(diff: PlanDiff) -> Iterator[_Section]:
    for title, findings in (("new findings", diff.appeared), ("resolved findings", diff.resolved)):
        if findings:
            yield _Section(title=title, table=_finding_table(findings))


def _finding_table(findings: Sequence[Finding]) -> Table:
    columns = [Column("level"), Column("field", wrap=True), Column("message", wrap=True)]
    rows = [
        (one.level.value, Cell(one.path, code=bool(one.path)), f"{one.message}{f'; {one.hint}' if one.hint else ''}")
        for one in findings
    ]
    return Table(columns, rows)


def _value(value: object) -> Cell:
    return Cell(NOT_SET) if value is None else Cell(_short(value), code=True)


def _short(value: object) -> str:
    """Return a value in one short line."""
    if value is None:
        return NOT_SET
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    line = one_line(shown, limit=MAX_VALUE + 1)
    return line if len(line) <= MAX_VALUE else f"{line[:MAX_VALUE]}..."
