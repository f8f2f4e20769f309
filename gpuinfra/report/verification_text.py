"""Judged nodes as text, JSON and JUnit XML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from gpuinfra.node.advice import ACTIONS
from gpuinfra.report import tables
from gpuinfra.report.document import CHECK_FIELDS
from gpuinfra.report.tables import Cell, Column, Table
from gpuinfra.safe_text import one_line, printable
from gpuinfra.verification.judged import Judged
from gpuinfra.verification.read import Absent, Found

SCHEMA = "gpuinfra.verification/1"
DO = {
    "nothing": "ready",
    "look": "look at it; jobs may continue",
    "configure": "drain; rerun the bootstrap or fix the setting",
    "reset": "drain; reset the GPU",
    "reboot": "drain; reboot the node",
    "replace": "drain; replace the node",
}
"""Action of `gpuinfra.node.advice` -> what to do."""


def document(nodes: Sequence[Judged], found: Found) -> dict[str, Any]:
    """The stable JSON form."""
    return {
        "schema": SCHEMA,
        "about": found.about,
        "verified": all(node.verified for node in nodes) and not found.absent,
        "totals": {
            "nodes": len(nodes) + len(found.absent),
            "nodes_verified": sum(node.verified for node in nodes),
            "gpus": sum(node.gpus_expected for node in nodes) + sum(one.gpus for one in found.absent),
            "gpus_verified": sum(node.gpus_expected for node in nodes if node.verified),
        },
        "problems": list(found.problems),
        "nodes": [*(entry(node) for node in nodes), *(absent_entry(one) for one in found.absent)],
    }


def entry(node: Judged) -> dict[str, Any]:
    """One node, with the fields of a report's nodes."""
    evidence = node.evidence.document
    gpus = evidence.get("gpus")
    return {
        "label": node.evidence.name or _text(evidence.get("pool")) or "node",
        "instance_id": node.instance_id,
        "pool": _text(evidence.get("pool")),
        "group": "",
        "machine": _text(evidence.get("machine")),
        "zone": _text(evidence.get("region")),
        "outcome": "verified" if node.verified else "failed",
        "action": node.advice.action,
        "what_to_do": DO[node.advice.action],
        "reason": "; ".join(node.advice.why),
        "worse": list(node.worse),
        "boot_id": _text(evidence.get("boot_id")),
        "finished": _text(evidence.get("finished")),
        "evidence": node.evidence.where,
        "evidence_sha256": node.evidence.sha256,
        "gpus_expected": node.gpus_expected,
        "gpus": [dict(gpu) for gpu in gpus if isinstance(gpu, dict)] if isinstance(gpus, list) else [],
        "blocking": [str(check["id"]) for check in node.blockers],
        "missing": list(node.missing),
        "not_checked": list(node.not_checked),
        "checks": [{name: check.get(name) for name in CHECK_FIELDS} for check in node.checks],
        "console": [],
    }


def absent_entry(one: Absent) -> dict[str, Any]:
    """A node without usable evidence, with the same fields."""
    return {
        "label": one.name,
        "instance_id": one.instance_id or one.name,
        "pool": one.pool,
        "group": "",
        "machine": one.machine,
        "zone": "",
        "outcome": one.outcome,
        "action": "look",
        "what_to_do": one.hint,
        "reason": one.reason,
        "worse": [],
        "boot_id": "",
        "finished": "",
        "evidence": "",
        "evidence_sha256": "",
        "gpus_expected": one.gpus,
        "gpus": [],
        "blocking": [],
        "missing": [],
        "not_checked": [],
        "checks": [],
        "console": [],
    }


def text(nodes: Sequence[Judged], found: Found) -> Iterator[str]:
    """A table of nodes, then the problems of each, root cause first, then the sums."""
    rows = [
        (
            _name(node),
            str(node.evidence.document.get("machine") or ""),
            Cell(badge="verified" if node.verified else "failed"),
            f"{_count(node, 'pass')}/{len(node.checks) - _count(node, 'skip')}",
            DO[node.advice.action],
        )
        for node in nodes
    ]
    rows += [(one.name, one.machine, Cell(badge=one.outcome), "", one.hint) for one in found.absent]
    columns = ["node", "machine", "outcome", Column("passed", right=True), Column("what to do", wrap=True)]
    yield from tables.text(Table(columns, rows))
    for node in nodes:
        yield from _problems(node)
    for one in found.absent:
        yield ""
        yield one_line(f"{one.name}: {one.outcome}: {one.reason}")
        yield f"  -> {one_line(one.hint)}"
    if found.problems:
        yield ""
        yield from (f"note: {one_line(problem)}" for problem in found.problems)
    yield ""
    verified = sum(node.verified for node in nodes)
    yield f"{verified} of {len(nodes) + len(found.absent)} nodes verified{_to_do(nodes, len(found.absent))}. {found.about}"


def _problems(node: Judged) -> Iterator[str]:
    shown = list(node.blockers) + [c for c in node.checks if c["outcome"] == "warn" and c not in node.blockers]
    if not shown and not node.missing and not node.worse:
        return
    yield ""
    yield one_line(_name(node))
    for ids, check in _grouped(shown):
        yield f"  {check['outcome']:<5} {' '.join(ids):<4} {one_line(check['reason'])}"
        yield f"             -> {one_line(check['hint'])}"
    if node.missing:
        yield f"  did not run: {', '.join(node.missing)}"
    for worse in node.worse:
        # The reason is already above, with its check.
        reason = next((f" ({c['reason']})" for c in shown if worse.endswith(f" ({c['reason']})")), "")
        yield f"  worse than the baseline: {one_line(worse.removesuffix(reason))}"


def _count(node: Judged, outcome: str) -> int:
    return sum(check["outcome"] == outcome for check in node.checks)


def _to_do(nodes: Sequence[Judged], absent: int) -> str:
    """`: 2 to replace, 1 to reboot, 1 without evidence`; empty where every node is ready."""
    counts = {action: sum(node.advice.action == action for node in nodes) for action in reversed(ACTIONS)}
    parts = [
        f"{count} to {_VERBS.get(action, action)}" for action, count in counts.items() if count and action != "nothing"
    ]
    parts += [f"{absent} without evidence"] if absent else []
    return f": {', '.join(parts)}" if parts else ""


_VERBS = {"look": "look at"}


def _name(node: Judged) -> str:
    """`gpu-1 (i-0123...)`, or whichever of both is known."""
    name, id = node.evidence.label, node.instance_id
    return name if name == id else f"{name} ({id})"


def junit(nodes: Sequence[Judged], found: Found) -> str:
    """One test suite for each node, one case for each check; a warning is a passing case with output."""
    suites = []
    for node in nodes:
        cases = []
        for check in node.checks:
            body = ""
            reason = quoteattr(printable(check["reason"]))
            if check["outcome"] == "fail":
                body = f"<failure message={reason}>{escape(printable(check['hint']))}</failure>"
            elif check["outcome"] == "error":
                body = f"<error message={reason}>{escape(printable(check['hint']))}</error>"
            elif check["outcome"] == "skip":
                body = f"<skipped message={reason}/>"
            elif check["outcome"] == "warn":
                body = f"<system-out>{escape('warning: ' + printable(check['reason']))}</system-out>"
            name = quoteattr(f"{check['id']} {check['name']}")
            cases.append(f"<testcase classname={quoteattr(printable(_name(node)))} name={name}>{body}</testcase>")
        for name in node.missing:
            cases.append(
                f"<testcase classname={quoteattr(printable(_name(node)))} name={quoteattr(name)}><error message='did not run'/></testcase>"
            )
        counts = {word: sum(c["outcome"] == word for c in node.checks) for word in ("fail", "error", "skip")}
        suites.append(
            f"<testsuite name={quoteattr(printable(_name(node)))} tests='{len(cases)}' failures='{counts['fail']}' "
            f"errors='{counts['error'] + len(node.missing)}' skipped='{counts['skip']}'>\n"
            + "\n".join(cases)
            + "\n</testsuite>"
        )
    for one in found.absent:
        name = quoteattr(printable(one.name))
        suites.append(
            f"<testsuite name={name} tests='1' failures='0' errors='1' skipped='0'>\n<testcase classname={name} "
            f"name={quoteattr(printable(one.outcome))}><error message={quoteattr(printable(one.reason))}>{escape(printable(one.hint))}</error>"
            "</testcase>\n</testsuite>"
        )
    return '<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n' + "\n".join(suites) + "\n</testsuites>\n"


def _grouped(checks: Iterable[dict[str, Any]]) -> list[tuple[list[str], dict[str, Any]]]:
    """Checks grouped by reason: one GPU that does not answer fails twenty of them."""
    groups: dict[str, tuple[list[str], dict[str, Any]]] = {}
    for check in checks:
        groups.setdefault(f"{check['reason']}\n{check['hint']}", ([], check))[0].append(str(check["id"]))
    return list(groups.values())


def _text(value: object) -> str:
    return "" if value is None else str(value)
