"""The last lines of a rehearsal: the nodes, the price, the page, what was not shown, and what to type for the real thing.

When something failed, what is wrong comes last, because that is where a person looks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuinfra.handover.judge import describe
from gpuinfra.handover.watch import NOT_DUE_TEXT
from gpuinfra.rehearsal.run import Result
from gpuinfra.report.document import checks_text

MOST_NODES = 8


def ending(result: Result, folder: Path) -> list[str]:
    """The lines."""
    report = result.report
    lines = [*_engine(report), *_life(report), *_nodes(report), *_permissions(report), *_cost(report)]
    place = _short(folder.resolve() / report["stack"] / "report.html")
    lines.append(f"report: {place} (for programs: report.json beside it)")
    if result.ok:
        lines += [*_kept(report), *_not_shown(report), *_real(report)]
        return lines
    lines.append(f"{report['action']} failed:")
    for problem in result.problems:
        lines += [f"  {line}" for line in problem.splitlines()]
    return [*lines, *_in_short(report), *result.closing]


def _in_short(report: Mapping[str, Any]) -> list[str]:
    """Who it is and what to do, once more and last: long findings push both off a screen."""
    bad = [n for n in report["nodes"] if n["outcome"] not in ("verified", "not rehearsed")]
    lines = ["in short:"] if bad else []
    for node in bad[:MOST_NODES]:
        first = next((c for c in node["checks"] if c["id"] in node["blocking"][:1]), None)
        why = (first["reason"] or describe(first)) if first else node["reason"]
        lines.append(f"  {node['label']} ({node['instance_id']}) {node['outcome']}: {why}")
        lines.append(f"    what to do: {first['hint'] if first else node['hint']}")
    if len(bad) > MOST_NODES:
        lines.append(f"  and {len(bad) - MOST_NODES} more nodes, in the report")
    return lines


def _engine(report: Mapping[str, Any]) -> list[str]:
    runs = report["engine"]["runs"]
    if not runs or report["action"] == "life":
        return []
    counts = runs[-1]["operations"]
    changed = {op: n for op, n in counts.items() if op != "same"}
    text = ", ".join(f"{n} {op}" for op, n in sorted(changed.items())) if changed else "no changes"
    same = f", {counts['same']} unchanged" if counts.get("same") else ""
    return [f"Pulumi {report['engine']['version']}: {runs[-1]['name']} {text}{same}, in {runs[-1]['seconds']} s"]


def _life(report: Mapping[str, Any]) -> list[str]:
    return [f"{'ok    ' if s['ok'] else 'FAILED'} {s['step']}: {s['found']}" for s in report.get("life", [])]


def _nodes(report: Mapping[str, Any]) -> list[str]:
    lines = []
    for node in report["nodes"][:32]:
        lines.append(
            f"{node['label']:<8} {node['instance_id']}  {node['group']:<16} {node['outcome']:<14} {node['gpus_expected']} GPUs, {checks_text(node)}"
        )
    if len(report["nodes"]) > 32:
        lines.append(f"and {len(report['nodes']) - 32} more nodes, see the report")
    if report["nodes"]:
        sums = report["totals"]
        lines.append(
            f"{sums['nodes_verified']} of {sums['nodes']} nodes and {sums['gpus_verified']} of {sums['gpus']} GPUs verified"
        )
    return lines or [note for note in report.get("notes", ()) if note == NOT_DUE_TEXT]


def _permissions(report: Mapping[str, Any]) -> list[str]:
    rights = report.get("rights") or {}
    lines = [f"finding: nodes have a right that none of them used: {right}" for right in rights.get("unused", ())]
    under = report.get("permissions")
    if not under:
        return lines
    lines += [
        f"under least permissions: {len(under['used'])} of {under['allowed']} actions used, {len(under['not_exercised'])} are for operations that were not done"
    ]
    lines += [f"  finding: {action} is allowed, and what it is for was done without it" for action in under["unused"]]
    return lines


def _cost(report: Mapping[str, Any]) -> list[str]:
    cost = report.get("cost")
    if not cost:
        return []
    return [f"the real thing would cost {cost['in_words']}; `gpuinfra plan {report['stack']}` says what for"]


def _kept(report: Mapping[str, Any]) -> list[str]:
    if report["action"] != "destroy" or not report["kept"]:
        return []
    lines = ["kept on purpose, taken back by the next up:"]
    return lines + [f"  {k['name']} ({k['type']}){': ' + k['why'] if k.get('why') else ''}" for k in report["kept"]]


def _not_shown(report: Mapping[str, Any]) -> list[str]:
    return ["a rehearsal cannot show:", *(f"  - {text}" for text in report["not_shown"])]


def _real(report: Mapping[str, Any]) -> list[str]:
    words = {"preview": "preview", "refresh": "refresh", "destroy": "destroy"}
    return [
        f"this was a rehearsal, nothing was deployed; the real thing: pulumi {words.get(report['action'], 'up')} --stack {report['stack']}"
    ]


def _short(path: Path) -> str:
    here = os.path.relpath(path)
    return here if not here.startswith("..") else str(path)
