"""Renders the report of a rehearsal as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuinfra.report.html import render_source
from gpuinfra.report.nodes import cells, node_view, trouble_first
from gpuinfra.report.prices import hour_tile, price_table, summary
from gpuinfra.report.tables import Cell, Column, Table, kept_table
from gpuinfra_rehearsal.tables import drill_table, previewed_table

BANNER = (
    "This is a rehearsal: the program and the engine are real, and the cloud and the nodes are stand-ins on this machine. "
    "Nothing was deployed or purchased."
)
NO_PRICE = "Unknown, because the declaration is not in the stack file."


def page(report: Mapping[str, Any]) -> str:
    """Render the page of a `gpuinfra.report/1` document."""
    rehearsal, sums, cost, engine = report["rehearsal"], report["totals"], report.get("cost"), report["engine"]
    kind = "Rehearsal" if rehearsal else "Report"
    where = (report.get("cluster"), report.get("cloud"), report.get("region"), report.get("finished"))
    faults = report.get("faults")
    return render_source(
        Path(__file__).with_suffix(".html.j2").read_text(encoding="utf-8"),
        kind=kind,
        title=f"{kind} of {report['stack']}",
        outcome="ok" if report["ok"] else "failed",
        status=f"{report['action']} {'succeeded' if report['ok'] else 'failed'}",
        subtitle=" · ".join([*(str(one) for one in where if one), f"{report.get('seconds')} s in the engine"]),
        banners=[*([BANNER] if rehearsal else []), *([f"Injected faults: {', '.join(faults)}"] if faults else [])],
        tiles=[
            (f"{sums['nodes_verified']} of {sums['nodes']}", "nodes verified"),
            (f"{sums['gpus_verified']} of {sums['gpus']}", "GPUs verified"),
            hour_tile(cost or {}, ", if deployed" if rehearsal else ""),
            (engine["resources"], "resources in the state"),
        ],
        problems=report.get("problems", []),
        life=Table(["", "step", Column("result", wrap=True)], [
            (Cell(badge="pass" if step["ok"] else "fail"), step["step"], step["found"]) for step in report.get("life", [])
        ]),
        drill=drill_table(report["drill"]) if report.get("drill") else None,
        cells=cells(report.get("nodes", [])),
        nodes=[node_view(node) for node in trouble_first(report.get("nodes", []))],
        price={
            "summary": summary(cost) if cost else NO_PRICE,
            "lines": price_table(cost.get("lines", []) if cost else []),
            "excluded": "; ".join(cost["excluded"]) if cost else "",
        },
        engine_title=f"Engine: Pulumi {engine['version']}",
        engine=_engine(engine.get("runs", [])),
        previewed=previewed_table(engine.get("runs", []) if report["action"] == "preview" else []),
        kept=kept_table((k.get("name"), k.get("type"), k.get("why")) for k in report.get("kept", [])),
        not_shown=report["not_shown"],
        provenance=_provenance(report.get("provenance", [])),
        origin=f"document {report['schema']}",
    )  # fmt: skip


def _engine(runs: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        (
            Cell(badge="pass" if run["exit_code"] == 0 else "fail"),
            run["name"],
            ", ".join(f"{count} {operation}" for operation, count in sorted(run["operations"].items())),
            f"{run['seconds']} s",
        )
        for run in runs
    ]
    return Table(["", "operation", Column("resources", wrap=True), Column("time", right=True)], rows)


def _provenance(rows: Sequence[Mapping[str, Any]]) -> Table:
    keys = list(dict.fromkeys(key for row in rows for key in row))
    return Table(
        [Column(key.replace("_", " "), wrap=True) for key in keys], [[row.get(key) for key in keys] for row in rows]
    )
