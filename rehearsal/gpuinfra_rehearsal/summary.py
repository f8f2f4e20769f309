"""The closing summary of a rehearsal: nodes, price, report, limits of the rehearsal, and the command to deploy.

After a failure, the errors come last, because that is where you look first.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuinfra.base.words import counted
from gpuinfra.handover.judge import describe
from gpuinfra.handover.watch import NOT_DUE_TEXT
from gpuinfra.report import tables
from gpuinfra.report.nodes import checks_text, gpus_text
from gpuinfra.report.tables import Cell, Column, Table
from gpuinfra_rehearsal.tables import drill_table, previewed_table

MAX_FAILED_NODES = 8
MAX_NODES = 32


def summary_lines(report: Mapping[str, Any], folder: Path, closing: Sequence[str] = ()) -> list[str]:
    """Return the summary of a report. `folder` is the folder of rehearsals. `closing` contains the last lines."""
    lines = [
        *_engine(report),
        *_previewed(report),
        *_life(report),
        *_drill(report),
        *_nodes(report),
        *_permissions(report),
        *_cost(report),
    ]
    path = _relative(folder.resolve() / report["stack"] / "report.html")
    lines.append(f"report: {path} (machine-readable: report.json in the same folder)")
    if report["ok"]:
        return [*lines, *_retained(report), *_not_shown(report), *_deployment(report), *closing]
    lines.append(f"{report['action']} failed:")
    for problem in report["problems"]:
        lines += [f"  {line}" for line in problem.splitlines()]
    return [*lines, *_failed_nodes(report), *closing]


def _failed_nodes(report: Mapping[str, Any]) -> list[str]:
    """Return failed nodes with the action to take. They are repeated at the end because long findings scroll off the screen."""
    bad = [n for n in report["nodes"] if n["outcome"] not in ("verified", "not rehearsed")]
    lines = ["in short:"] if bad else []
    for node in bad[:MAX_FAILED_NODES]:
        first = next((c for c in node["checks"] if c["id"] in node["blocking"][:1]), None)
        why = (first["reason"] or describe(first)) if first else node["reason"]
        lines.append(f"  {node['label']} ({node['instance_id']}) {node['outcome']}: {why}")
        lines.append(f"    what to do: {first['hint'] if first else node['hint']}")
    if len(bad) > MAX_FAILED_NODES:
        lines.append(f"  and {len(bad) - MAX_FAILED_NODES} more nodes; see the report")
    return lines


def _engine(report: Mapping[str, Any]) -> list[str]:
    runs = report["engine"]["runs"]
    if not runs or report["action"] in ("life", "drill"):
        return []
    counts = runs[-1]["operations"]
    changed = {op: n for op, n in counts.items() if op != "same"}
    text = ", ".join(f"{n} {op}" for op, n in sorted(changed.items())) if changed else "no changes"
    same = f", {counts['same']} unchanged" if counts.get("same") else ""
    return [f"Pulumi {report['engine']['version']}: {runs[-1]['name']} {text}{same}, in {runs[-1]['seconds']} s"]


def _previewed(report: Mapping[str, Any]) -> list[str]:
    if report["action"] != "preview":
        return []
    return tables.text(previewed_table(report["engine"]["runs"]), indent=2, header=False)


def _life(report: Mapping[str, Any]) -> list[str]:
    rows = [
        (Cell(badge="ok" if step["ok"] else "failed"), step["step"], step["found"]) for step in report.get("life", [])
    ]
    return tables.text(Table(["", "", Column(wrap=True)], rows), header=False)


def _drill(report: Mapping[str, Any]) -> list[str]:
    drill = report.get("drill")
    if not drill:
        return []
    lines = tables.text(drill_table(drill), header=False)
    for name in ("rpo", "rto"):
        target = drill[name]
        reached = "not reached" if target["reached_minutes"] is None else f"{target['reached_minutes']:.1f} minutes"
        lines.append(f"{name.upper()}: {reached}, declared: {target['declared_minutes']} minutes, {'met' if target['met'] else 'missed'}")  # fmt: skip
    lines.append("not included, because the duration is unknown: " + "; ".join(drill["not_included"]))
    return lines


def _nodes(report: Mapping[str, Any]) -> list[str]:
    nodes = report["nodes"]
    if not nodes:
        return [NOT_DUE_TEXT] if report.get("not_due") else []
    rows = [
        (
            node["label"],
            node["instance_id"],
            node["group"],
            Cell(badge=node["outcome"]),
            f"{gpus_text(node)}, {checks_text(node)}",
        )
        for node in nodes[:MAX_NODES]
    ]
    lines = tables.text(Table(["", "", "", "", Column(wrap=True)], rows), header=False)
    if len(nodes) > MAX_NODES:
        lines.append(f"and {len(nodes) - MAX_NODES} more nodes; see the report")
    sums = report["totals"]
    verified = (
        f"{sums['nodes_verified']} of {sums['nodes']} nodes and {sums['gpus_verified']} of {sums['gpus']} GPUs verified"
    )
    if all(node["outcome"] == "not rehearsed" for node in nodes):
        verified = f"only the cloud was rehearsed: {counted(len(nodes), 'node')} did not start"
    return [*lines, verified]


def _permissions(report: Mapping[str, Any]) -> list[str]:
    rights = report.get("rights") or {}
    lines = [f"finding: nodes have a permission that they did not use: {right}" for right in rights.get("unused", ())]
    usage = report.get("permissions")
    if not usage:
        return lines
    lines.append(
        f"under least permissions: {len(usage['used'])} of {usage['allowed']} actions used, "
        f"{len(usage['not_exercised'])} belong to operations that this rehearsal did not perform"
    )
    lines += [f"  finding: {action} is allowed but was not needed for its operation" for action in usage["unused"]]
    return lines


def _cost(report: Mapping[str, Any]) -> list[str]:
    cost = report.get("cost")
    return [f"a deployment costs {cost['in_words']}; details: gpuinfra plan {report['stack']}"] if cost else []


def _retained(report: Mapping[str, Any]) -> list[str]:
    if report["action"] != "destroy" or not report["kept"]:
        return []
    rows = [f"  {k['name']} ({k['type']}){': ' + k['why'] if k.get('why') else ''}" for k in report["kept"]]
    return ["retained resources, which the next up adopts:", *rows]


def _not_shown(report: Mapping[str, Any]) -> list[str]:
    return ["a rehearsal cannot show:", *(f"  - {text}" for text in report["not_shown"])]


def _deployment(report: Mapping[str, Any]) -> list[str]:
    """Return the line with the command that does the same on a deployed stack. `gpuinfra up` requires a declaration in the stack file."""
    stack, action = report["stack"], report["action"]
    deploy = f"gpuinfra up {stack}" if report.get("cost") else f"pulumi up --stack {stack}"
    purposes = {
        "preview": "to preview a deployment",
        "refresh": "to refresh a deployed stack",
        "destroy": "to destroy a deployed stack",
    }
    purpose, command = (
        purposes.get(action, "to deploy"),
        f"pulumi {action} --stack {stack}" if action in purposes else deploy,
    )
    return [f"this was a rehearsal, and nothing was deployed; {purpose}: {command}"]


def _relative(path: Path) -> str:
    here = os.path.relpath(path)
    return here if not here.startswith("..") else str(path)
