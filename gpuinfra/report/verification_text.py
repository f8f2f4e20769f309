"""Judged machines for people and programs: text, JSON, JUnit, and one HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from gpuinfra.node.advice import ACTIONS
from gpuinfra.report.document import CHECK_FIELDS
from gpuinfra.verification.judged import Judged
from gpuinfra.verification.read import Absent, Found

SCHEMA = "gpuinfra.verification/1"
DO = {
    "nothing": "ready",
    "look": "look at it; work may go on",
    "configure": "drain; rerun the bootstrap or mend the setting",
    "reset": "drain; reset the GPU",
    "reboot": "drain; reboot the node",
    "replace": "drain; replace the node",
}
"""What a person does, by the word of `gpuinfra.node.advice`."""


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
        "nodes": [*(entry(node) for node in nodes), *(silent(one) for one in found.absent)],
    }


def entry(node: Judged) -> dict[str, Any]:
    """One node, with the fields that a report's nodes have."""
    said = node.evidence.document
    gpus = said.get("gpus")
    return {
        "label": node.evidence.name or _text(said.get("pool")) or "node",
        "instance_id": node.instance_id,
        "pool": _text(said.get("pool")),
        "group": "",
        "machine": _text(said.get("machine")),
        "zone": _text(said.get("region")),
        "outcome": "verified" if node.verified else "failed",
        "action": node.advice.action,
        "what_to_do": DO[node.advice.action],
        "reason": "; ".join(node.advice.why),
        "worse": list(node.worse),
        "boot_id": _text(said.get("boot_id")),
        "finished": _text(said.get("finished")),
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


def silent(one: Absent) -> dict[str, Any]:
    """A node of which nothing counts, with the same fields."""
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
    """A table of nodes, then what is wrong with each, causes first."""
    wide = max([4, *(len(_name(node)) for node in nodes), *(len(_line(one.name)) for one in found.absent)])
    type_ = max(
        [
            7,
            *(len(_line(node.evidence.document.get("machine"))) for node in nodes),
            *(len(_line(one.machine)) for one in found.absent),
        ]
    )
    yield f"{'node':<{wide}}  {'machine':<{type_}} {'outcome':<9} {'passed':>8}  what to do"
    for node in nodes:
        passed = sum(check["outcome"] == "pass" for check in node.checks)
        asked = sum(check["outcome"] != "skip" for check in node.checks)
        yield (
            f"{_name(node):<{wide}}  {_line(node.evidence.document.get('machine')):<{type_}} "
            f"{'verified' if node.verified else 'failed':<9} {f'{passed}/{asked}':>8}  {DO[node.advice.action]}"
        )
    for one in found.absent:
        yield f"{_line(one.name):<{wide}}  {_line(one.machine):<{type_}} {_line(one.outcome)}"
    for node in nodes:
        shown = list(node.blockers) + [c for c in node.checks if c["outcome"] == "warn" and c not in node.blockers]
        if not shown and not node.missing and not node.worse:
            continue
        yield ""
        yield _name(node)
        for ids, check in _grouped(shown):
            yield f"  {check['outcome']:<5} {' '.join(ids):<4} {_line(check['reason'])}"
            yield f"             -> {_line(check['hint'])}"
        if node.missing:
            yield f"  did not run: {', '.join(node.missing)}"
        for worse in node.worse:
            told = next((f" ({c['reason']})" for c in shown if worse.endswith(f" ({c['reason']})")), "")
            yield f"  worse than before: {_line(worse.removesuffix(told))}"
    for one in found.absent:
        yield ""
        yield _line(f"{one.name}: {one.outcome}: {one.reason}")
        yield f"  -> {_line(one.hint)}"
    if found.problems:
        yield ""
        yield from (f"note: {_line(problem)}" for problem in found.problems)
    good = sum(node.verified for node in nodes)
    yield ""
    yield f"{good} of {len(nodes) + len(found.absent)} nodes verified{_to_do(nodes, len(found.absent))}. {found.about}"


def _to_do(nodes: Sequence[Judged], absent: int) -> str:
    """`: 2 to replace, 1 to reboot, 1 without an answer`: what a shift plans with; nothing where every node is ready."""
    counts = {action: sum(node.advice.action == action for node in nodes) for action in reversed(ACTIONS)}
    told = [
        f"{count} to {_VERBS.get(action, action)}" for action, count in counts.items() if count and action != "nothing"
    ]
    told += [f"{absent} without an answer"] if absent else []
    return f": {', '.join(told)}" if told else ""


_VERBS = {"look": "look at"}


def _name(node: Judged) -> str:
    """`gpu-1 (i-0123...)`, or what of both there is."""
    name, id = _line(node.evidence.label), _line(node.instance_id)
    return name if name == id else f"{name} ({id})"


def junit(nodes: Sequence[Judged], found: Found) -> str:
    """One test suite a node, one case a check; a warning is a passing case that says so."""
    suites = []
    for node in nodes:
        cases = []
        for check in node.checks:
            body = ""
            reason = quoteattr(_xml(check["reason"]))
            if check["outcome"] == "fail":
                body = f"<failure message={reason}>{escape(_xml(check['hint']))}</failure>"
            elif check["outcome"] == "error":
                body = f"<error message={reason}>{escape(_xml(check['hint']))}</error>"
            elif check["outcome"] == "skip":
                body = f"<skipped message={reason}/>"
            elif check["outcome"] == "warn":
                body = f"<system-out>{escape('warning: ' + _xml(check['reason']))}</system-out>"
            name = quoteattr(f"{check['id']} {check['name']}")
            cases.append(f"<testcase classname={quoteattr(_xml(_name(node)))} name={name}>{body}</testcase>")
        for name in node.missing:
            cases.append(
                f"<testcase classname={quoteattr(_xml(_name(node)))} name={quoteattr(name)}><error message='did not run'/></testcase>"
            )
        counts = {word: sum(c["outcome"] == word for c in node.checks) for word in ("fail", "error", "skip")}
        suites.append(
            f"<testsuite name={quoteattr(_xml(_name(node)))} tests='{len(cases)}' failures='{counts['fail']}' "
            f"errors='{counts['error'] + len(node.missing)}' skipped='{counts['skip']}'>\n"
            + "\n".join(cases)
            + "\n</testsuite>"
        )
    for one in found.absent:
        name = quoteattr(_xml(_line(one.name)))
        suites.append(
            f"<testsuite name={name} tests='1' failures='0' errors='1' skipped='0'>\n<testcase classname={name} "
            f"name={quoteattr(_xml(one.outcome))}><error message={quoteattr(_xml(one.reason))}>{escape(_xml(one.hint))}</error>"
            "</testcase>\n</testsuite>"
        )
    return '<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n' + "\n".join(suites) + "\n</testsuites>\n"


def _grouped(checks: Iterable[dict[str, Any]]) -> list[tuple[list[str], dict[str, Any]]]:
    """Checks that failed for one and the same reason, told once: a GPU that does not answer fails twenty of them."""
    groups: dict[str, tuple[list[str], dict[str, Any]]] = {}
    for check in checks:
        groups.setdefault(f"{check['reason']}\n{check['hint']}", ([], check))[0].append(str(check["id"]))
    return list(groups.values())


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _line(value: object) -> str:
    """One line that acts on no terminal, whoever wrote the evidence."""
    return " ".join("".join(c if c.isprintable() else " " for c in _text(value)).split())


def _xml(value: object) -> str:
    """Text without the characters that XML cannot hold."""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in _text(value))
