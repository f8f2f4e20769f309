"""One self-contained HTML page about a plan: topology, price, findings, software. No script, no outside resource.

Everything that comes from a declaration is escaped where it enters the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from gpuinfra.cost import Cost
from gpuinfra.cost.compare import Row
from gpuinfra.plan.model import Plan, PoolPlan
from gpuinfra.report.plan_json import Answer

_STYLE = """
:root{--ink:#1b2733;--soft:#5b6b7a;--line:#d7dee5;--back:#fff;--card:#f6f8fa;--node:#3465a4;--spot:#8a5aa8;--err:#b3261e;--warn:#8a6100}
@media (prefers-color-scheme:dark){:root{--ink:#e6ebf0;--soft:#9fb0bf;--line:#33414d;--back:#12181e;--card:#1a232b;--node:#7fb0ea;
--spot:#c79be0;--err:#ff8a80;--warn:#e8c15a}}
*{box-sizing:border-box}body{margin:0;font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back)}
main{max-width:60rem;margin:0 auto;padding:1.5rem 1rem 4rem}h1{font-size:1.6rem;margin:.2rem 0}h2{font-size:1.15rem;margin:2rem 0 .6rem}
p.sub{color:var(--soft);margin:0 0 1rem}.big{font-size:1.4rem;font-weight:600}.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.93rem}th,td{text-align:left;padding:.35rem .6rem;border-bottom:1px solid var(--line);
vertical-align:top}table.wide{min-width:46rem}th{color:var(--soft);font-weight:600}td.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
code{font:0.9em ui-monospace,monospace;overflow-wrap:anywhere}.card{background:var(--card);border:1px solid var(--line);border-radius:.5rem;
padding:.8rem 1rem;margin:.6rem 0}.nodes{display:flex;flex-wrap:wrap;gap:.25rem;margin:.4rem 0}
.nodes i{width:1.1rem;height:1.1rem;border-radius:.2rem;background:var(--node)}.nodes i.spot{background:var(--spot)}
.error{color:var(--err);font-weight:600}.warn{color:var(--warn);font-weight:600}.info{color:var(--soft);font-weight:600}
ul{padding-left:1.2rem}.soft{color:var(--soft)}
"""

MOST_DRAWN = 256
"""Nodes drawn one by one; a larger group is written as a number."""


def page(answer: Answer) -> str:
    """The page."""
    body = "\n".join(_body(answer))
    title = escape(answer.plan.name if answer.plan else answer.stack)
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>Plan of {title}</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><main>\n{body}\n</main></body></html>\n"
    )


def _body(answer: Answer) -> Iterator[str]:
    plan, cost = answer.plan, answer.cost
    if plan is None or cost is None:
        yield f"<h1>{escape(answer.stack)} cannot be planned</h1>"
        yield from _findings(answer)
        return
    place = f"{plan.cloud} {plan.region}, {', '.join(plan.zones)}"
    day = f", as of {plan.today}" if plan.today else ""
    yield f"<h1>{escape(plan.name)}</h1>"
    yield f'<p class="sub">{plan.nodes} nodes on {escape(place)}{day}. A plan: nothing was created.</p>'
    least = "" if cost.complete else "at least "
    sums = f"{least}{cost.usd_per_hour:,.2f} USD an hour, {least}{cost.usd_per_month:,.0f} a month"
    yield f'<p class="big">{sums if cost.nodes_priced else "price not known"}</p>'
    yield from _findings(answer)
    yield "<h2>Topology</h2>"
    yield from _topology(plan)
    yield "<h2>Price</h2>"
    yield from _price(cost)
    yield from _ways(answer.ways)
    yield "<h2>Software</h2>"
    for pool in plan.pools:
        rows = [(key, value) for key, value in pool.versions.items() if value]
        yield f"<details><summary>{escape(pool.name)}: {len(rows)} settings</summary>{_table(('name', 'value'), rows)}</details>"
    yield "<h2>Decisions</h2>"
    yield _table(("what", "chosen", "why"), [(d.path, d.chosen, d.why) for d in plan.decisions])
    yield "<h2>Resources</h2>"
    yield _table(("type", "number"), [(kind, str(count)) for kind, count in sorted(plan.resources.items())], right=(1,))
    if plan.kept:
        yield f"<details><summary>destroy keeps {len(plan.kept)} of them</summary>"
        yield _table(("name", "type", "why"), [(item.what, item.type, item.why) for item in plan.kept]) + "</details>"


def _findings(answer: Answer) -> Iterator[str]:
    if not answer.findings:
        return
    yield "<h2>Findings</h2><ul>"
    for finding in answer.findings:
        level = finding.level.value
        hint = f'<br><span class="soft">{escape(finding.hint)}</span>' if finding.hint else ""
        path = f"<code>{escape(finding.path)}</code> " if finding.path else ""
        yield f'<li><span class="{level}">{level}</span> {path}{escape(finding.message)}{hint}</li>'
    yield "</ul>"


def _topology(plan: Plan) -> Iterator[str]:
    for pool in plan.pools:
        yield from _pool(pool)
    if plan.network:
        rows = [(s.name, s.cidr or s.existing_id or "", s.zone, s.role) for s in plan.network.subnets]
        yield f'<div class="card"><b>network</b> {escape(plan.network.cidr or plan.network.existing_id or "")}'
        yield _table(("subnet", "addresses", "zone", "for"), rows) + "</div>"
    for entry in plan.file_systems:
        tier = f", {entry.throughput_mb_s_per_tib} MB/s for each TiB" if entry.throughput_mb_s_per_tib else ""
        text = f"{entry.kind} {entry.deployment}, {entry.capacity_gib:,} GiB{tier}"
        link = f", bucket {entry.bucket}" if entry.bucket else ""
        yield f'<div class="card"><b>{escape(entry.mount)}</b> {escape(text + link)}</div>'


def _pool(pool: PoolPlan) -> Iterator[str]:
    gpus = pool.expectation.get("gpus")
    gpu = f", {gpus} x {pool.expectation.get('gpu_name')}" if gpus else ""
    yield f'<div class="card"><b>pool {escape(pool.name)}</b> {pool.count} x {escape(pool.machine + gpu)}'
    for group in pool.groups:
        kind = "spot" if group.kind == "spot" else "bound"
        nodes = group.max_count
        drawn = f"<i class='{kind}'></i>" * nodes if nodes <= MOST_DRAWN else f"{nodes:,} nodes"
        yield f'<div class="soft">{escape(group.name)}: {nodes} {escape(group.kind)} in {escape(group.zone)}</div>'
        yield f'<div class="nodes" role="img" aria-label="{nodes} nodes">{drawn}</div>'
    yield "</div>"


def _price(cost: Cost) -> Iterator[str]:
    rows = []
    for line in cost.lines:
        hour = "unknown" if line.usd_per_hour is None else f"{line.usd_per_hour:,.2f}"
        sure = "" if line.certain or line.read is None else "not certain"
        note = "; ".join(part for part in (sure, line.note) if part)
        rows.append((line.what, hour, str(line.read or ""), line.source, note))
    yield _table(("what is billed", "USD an hour", "price of", "source", "note"), rows, right=(1, 2))
    yield "<ul>" + "".join(f"<li>not counted: {escape(text)}</li>" for text in cost.unknown) + "</ul>"


def _ways(ways: tuple[Row, ...]) -> Iterator[str]:
    if len(ways) < 2:
        return
    rows = []
    for way in ways:
        pays = f"{way.break_even_hours:,.0f} hours a month" if way.break_even_hours is not None else ""
        name = way.way.replace("_", "-")
        rows.append((name, f"{way.usd_per_hour:,.2f}", f"{way.usd_per_month:,.0f}", pays, str(way.read), way.note))
    head = ("the same GPU nodes", "USD an hour", "USD a month", "pays from", "price of", "note")
    yield _table(head, rows, right=(1, 2, 4))


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]], right: tuple[int, ...] = ()) -> str:
    def cells(row: tuple[str, ...], tag: str) -> str:
        return "".join(
            f'<{tag} class="n">{escape(str(cell))}</{tag}>' if i in right else f"<{tag}>{escape(str(cell))}</{tag}>"
            for i, cell in enumerate(row)
        )

    lines = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    wide = ' class="wide"' if len(head) > 4 else ""
    return f'<div class="scroll"><table{wide}><thead><tr>{cells(head, "th")}</tr></thead><tbody>{lines}</tbody></table></div>'
