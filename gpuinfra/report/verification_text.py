"""Formats evaluated nodes as text, JSON and JUnit XML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gpuinfra.base.safe_text import one_line, printable
from gpuinfra.base.words import titled
from gpuinfra.node.cause import Action
from gpuinfra.node.outcome import CheckResult
from gpuinfra.report import tables
from gpuinfra.report.tables import Cell, Column, Table
from gpuinfra.verification.judged import Judged
from gpuinfra.verification.read import Absent, FoundEvidence

SCHEMA = "gpuinfra.verification/1"
CHECK_FIELDS = ("id", "name", "phase", "severity", "outcome", "found", "expected", "unit", "hint", "reason", "cause")
DO = {
    Action.NOTHING: "ready",
    Action.LOOK: "investigate; jobs may continue",
    Action.CONFIGURE: "drain; rerun the bootstrap or fix the setting",
    Action.RESET: "drain; reset the GPU",
    Action.REBOOT: "drain; reboot the node",
    Action.REPLACE: "drain; replace the node",
}
"""Instructions for each action."""
MAX_REASON = 2000
JUNIT_TAGS = {"fail": "failure", "error": "error", "skip": "skipped"}


def document(nodes: Sequence[Judged], evidence: FoundEvidence) -> dict[str, Any]:
    """Return the stable JSON form."""
    return {
        "schema": SCHEMA,
        "about": evidence.about,
        "verified": all(node.verified for node in nodes) and not evidence.absent,
        "totals": {
            "nodes": len(nodes) + len(evidence.absent),
            "nodes_verified": sum(node.verified for node in nodes),
            "gpus": sum(node.gpus_expected for node in nodes) + sum(one.gpus for one in evidence.absent),
            "gpus_verified": sum(node.gpus_expected for node in nodes if node.verified),
        },
        "problems": list(evidence.problems),
        "nodes": [*(entry(node) for node in nodes), *(absent_entry(one) for one in evidence.absent)],
    }


def entry(node: Judged) -> dict[str, Any]:
    """Return the entry for one node, with the same fields as in a report."""
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
        "action": node.advice.action.value,
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


def absent_entry(absent: Absent) -> dict[str, Any]:
    """Return the entry for a node without usable evidence, with the same fields."""
    texts = dict.fromkeys(("group", "zone", "boot_id", "finished", "evidence", "evidence_sha256"), "")
    lists = {name: [] for name in ("worse", "gpus", "blocking", "missing", "not_checked", "checks", "console")}
    return {
        "label": absent.name,
        "instance_id": absent.instance_id or absent.name,
        "pool": absent.pool,
        "machine": absent.machine,
        "outcome": absent.outcome,
        "action": "look",
        "what_to_do": absent.hint,
        "reason": absent.reason,
        "gpus_expected": absent.gpus,
        **texts,
        **lists,
    }


def text(nodes: Sequence[Judged], evidence: FoundEvidence) -> Iterator[str]:
    """Return a table of nodes, then the problems of each node, root cause first, then the totals."""
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
    rows += [
        (titled(one.name, one.instance_id), one.machine, Cell(badge=one.outcome), "", "see below")
        for one in evidence.absent
    ]
    columns = ["node", "machine", "outcome", Column("passed", right=True), Column("what to do", wrap=True)]
    yield from tables.text(Table(columns, rows))
    for node in nodes:
        yield from _problems(node)
    for missing in evidence.absent:
        yield ""
        yield _line(f"{titled(missing.name, missing.instance_id)}: {missing.outcome}: {missing.reason}")
        yield f"  -> {_line(missing.hint)}"
    if evidence.problems:
        yield ""
        yield from (f"note: {_line(note)}" for note in evidence.problems)
    yield ""
    verified = sum(node.verified for node in nodes)
    yield f"{verified} of {len(nodes) + len(evidence.absent)} nodes verified{_to_do(nodes, len(evidence.absent))}. {evidence.about}"


def _problems(node: Judged) -> Iterator[str]:
    shown = list(node.blockers) + [c for c in node.checks if c["outcome"] == "warn" and c not in node.blockers]
    if not shown and not node.missing and not node.worse:
        return
    yield ""
    yield _line(_name(node))
    for ids, check in _grouped(shown):
        yield f"  {check['outcome']:<5} {' '.join(ids):<4} {_line(check['reason'])}"
        yield f"             -> {_line(check['hint'])}"
    if node.missing:
        yield f"  did not run: {', '.join(node.missing)}"
    for worse in node.worse:
        # The reason is already printed above, with its check.
        reason = next((f" ({c['reason']})" for c in shown if worse.endswith(f" ({c['reason']})")), "")
        yield f"  worse than the baseline: {_line(worse.removesuffix(reason))}"


def _count(node: Judged, outcome: str) -> int:
    return sum(check["outcome"] == outcome for check in node.checks)


def _to_do(nodes: Sequence[Judged], absent: int) -> str:
    """Return text such as `: 2 to replace, 1 to reboot, 1 without evidence`. The text is empty if every node is ready."""
    counts = {action: sum(node.advice.action == action for node in nodes) for action in reversed(Action)}
    parts = [
        f"{count} to {_VERBS.get(action, action.value)}"
        for action, count in counts.items()
        if count and action is not Action.NOTHING
    ]
    parts += [f"{absent} without evidence"] if absent else []
    return f": {', '.join(parts)}" if parts else ""


_VERBS = {Action.LOOK: "look at"}


def _name(node: Judged) -> str:
    return titled(node.evidence.label, node.instance_id)


def junit(nodes: Sequence[Judged], evidence: FoundEvidence) -> str:
    """Return one test suite per node and one case per check. A warning is a passing case with output."""
    from xml.etree import ElementTree

    root = ElementTree.Element("testsuites")

    def suite(name: str, cases: Sequence[Mapping[str, Any]]) -> None:
        counts = {outcome: sum(case["outcome"] == outcome for case in cases) for outcome in ("fail", "error", "skip")}
        attributes = {
            "name": printable(name),
            "tests": str(len(cases)),
            "failures": str(counts["fail"]),
            "errors": str(counts["error"]),
            "skipped": str(counts["skip"]),
        }
        made = ElementTree.SubElement(root, "testsuite", attributes)
        for case in cases:
            title = printable(f"{case['id']} {case['name']}".strip())
            test = ElementTree.SubElement(made, "testcase", {"classname": printable(name), "name": title})
            if tag := JUNIT_TAGS.get(case["outcome"]):
                below = ElementTree.SubElement(test, tag, {"message": printable(case["reason"])})
                below.text = printable(case["hint"]) if case["outcome"] != "skip" else None
            elif case["outcome"] == "warn":
                ElementTree.SubElement(test, "system-out").text = f"warning: {printable(case['reason'])}"

    for node in nodes:
        missing = [
            {"id": name, "name": "", "outcome": "error", "reason": "did not run", "hint": ""} for name in node.missing
        ]
        suite(_name(node), [*node.checks, *missing])
    for absent_node in evidence.absent:
        suite(
            titled(absent_node.name, absent_node.instance_id),
            [
                {
                    "id": absent_node.outcome,
                    "name": "",
                    "outcome": "error",
                    "reason": absent_node.reason,
                    "hint": absent_node.hint,
                }
            ],
        )
    ElementTree.indent(root, space="")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _grouped(checks: Iterable[CheckResult]) -> list[tuple[list[str], CheckResult]]:
    """Group checks by reason, because one GPU that does not respond causes twenty checks to fail."""
    groups: dict[str, tuple[list[str], CheckResult]] = {}
    for check in checks:
        groups.setdefault(f"{check['reason']}\n{check['hint']}", ([], check))[0].append(check["id"])
    return list(groups.values())


def _line(value: object) -> str:
    return one_line(value, MAX_REASON)


def _text(value: object) -> str:
    return "" if value is None else str(value)
