"""Shows nodes on a page, from the node entries in a report or in a verification document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuinfra.base.words import counted
from gpuinfra.node.judge import causes_of, root_cause_order
from gpuinfra.report.tables import BAD, GOOD, QUIET, WARN, Cell, Column, Table, tone

MOST_DRAWN = 256
"""Maximum number of nodes in a group that are drawn individually. In a larger group, only nodes with trouble are drawn."""
_ORDER = (BAD, WARN, QUIET, GOOD)
"""Styles of outcomes, trouble first."""

MISSED = {"fail": "failed", "error": "could not be evaluated", "warn": "with a warning"}


def trouble_first(nodes: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the nodes with the worst outcomes first. Nodes with the same style keep their order."""
    return sorted(nodes, key=_rank)


def _rank(node: Mapping[str, Any]) -> int:
    return _ORDER.index(tone(str(node["outcome"])))


def cells(nodes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the zones, their groups, and one cell per GPU of each node, for the page's template. Trouble comes first on each level."""
    zones: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for node in trouble_first(nodes):
        zones.setdefault(str(node.get("zone") or "no zone"), {}).setdefault(str(node.get("group") or ""), []).append(
            node
        )
    return [
        {"name": zone, "groups": [_group(name, found) for name, found in groups.items()]}
        for zone, groups in zones.items()
    ]


def _group(name: str, nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    verified = sum(node["outcome"] == "verified" for node in nodes)
    gpus = sum(node["gpus_expected"] for node in nodes)
    drawn = nodes if len(nodes) <= MOST_DRAWN else [node for node in nodes if tone(str(node["outcome"])) != GOOD]
    return {
        "text": f"{name}: {verified} of {counted(len(nodes), 'node')} verified, {counted(gpus, 'GPU')}".removeprefix(
            ": "
        ),
        "nodes": [_cell(node) for node in drawn[:MOST_DRAWN]],
        "more": len(nodes) - len(drawn[:MOST_DRAWN]),
    }


def _cell(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return one node with the style of each GPU. A GPU that the driver does not detect is `gone`."""
    outcome, expected = str(node["outcome"]), int(node["gpus_expected"])
    detected = min(len(node.get("gpus") or []), expected) if node["checks"] else expected
    return {
        "label": node["label"],
        "outcome": outcome,
        "good": tone(outcome) == GOOD,
        "text": f"{node['label']}: {outcome}, {gpus_text(node)}",
        "gpus": [tone(outcome)] * detected + ["gone"] * (expected - detected),
    }


def node_view(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values for the page's node template."""
    problems = _problems(node)
    facts = (node.get("machine"), node.get("group"), node.get("zone"), gpus_text(node))
    checks = [
        (
            Cell(badge=check["outcome"]),
            Cell(f"{check['id']} {check.get('name') or ''}", note="" if check["outcome"] == "pass" else str(check.get("reason") or "")),
            value_text(check.get("found")),
            _expected(check),
        )
        for check in node["checks"]
    ]  # fmt: skip
    gpus = [
        (f"GPU {gpu.get('index')}", Cell(str(gpu.get("uuid") or ""), code=True), gpu.get("serial"), Cell(str(gpu.get("pci") or ""), code=True))
        for gpu in node.get("gpus", [])
    ]  # fmt: skip
    return {
        "outcome": node["outcome"],
        "label": node["label"],
        "id": node["instance_id"],
        "sums": checks_text(node),
        "facts": " · ".join(str(fact) for fact in facts if fact),
        "reason": "" if problems else str(node.get("reason") or ""),
        "problems": problems,
        "console": "\n".join(node.get("console") or []),
        "checks": Table(
            ["", Column("check", wrap=True), Column("found", wrap=True), Column("expected", wrap=True)], checks
        ),
        "gpus": Table(["", "UUID", "serial", "PCI address"], gpus),
        "evidence": node.get("evidence") or "",
        "sha256": node.get("evidence_sha256") or "",
    }


def gpus_text(node: Mapping[str, Any]) -> str:
    """Return how many GPUs the driver detects: `8 GPUs`, `7 of 8 GPUs detected`. Without evidence, the expected number."""
    expected, answers = node["gpus_expected"], len(node.get("gpus") or [])
    if node["checks"] and answers != expected:
        return f"{answers} of {counted(expected, 'GPU')} detected"
    return counted(expected, "GPU") if node["checks"] else f"{counted(expected, 'GPU')} expected"


def checks_text(node: Mapping[str, Any]) -> str:
    """Summarize the outcomes of a node's checks: `37 checks passed, 2 do not apply`."""
    checks = node["checks"]
    if not checks:
        return "evidence not evaluated" if node.get("evidence") else "no evidence"
    counts = Counter(str(check["outcome"]) for check in checks)
    if causes := causes_of(sorted(checks, key=root_cause_order)):
        first = causes[0]
        parts = [f"{first['id']} {first['name']} failed"]
        if others := counts["fail"] + counts["error"] - 1:
            parts.append(f"{counted(others, 'other check')} did not pass")
        return ", ".join([*parts, f"{counts['pass']} passed"])
    parts = [f"{counted(counts['pass'], 'check')} passed"]
    parts += [f"{counts[outcome]} {word}" for outcome, word in MISSED.items() if counts[outcome]]
    if counts["skip"]:
        parts.append(f"{counts['skip']} {'does' if counts['skip'] == 1 else 'do'} not apply")
    return ", ".join(parts)


def value_text(value: object) -> str:
    """Format a value that a check found or expected."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(str(one) for one in value) or "none"
    return "" if value is None else str(value)


def _problems(node: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the blocking checks, root cause first. Checks with the same reason form one problem: a lost GPU causes fifteen checks to fail."""
    by_id = {check["id"]: check for check in node["checks"]}
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for check in (by_id[name] for name in node.get("blocking", []) if name in by_id):
        groups.setdefault(str(check.get("reason") or _found(check)), []).append(check)
    return [
        {
            "title": f"{first['id']} {first.get('name') or ''}",
            "reason": reason,
            "others": ", ".join(str(check["id"]) for check in others),
            "hint": str(first.get("hint") or ""),
        }
        for reason, (first, *others) in groups.items()
    ]


def _found(check: Mapping[str, Any]) -> str:
    return f"found {value_text(check.get('found'))}, expected {_expected(check)}"


def _expected(check: Mapping[str, Any]) -> str:
    value, unit = value_text(check.get("expected")), str(check.get("unit") or "")
    return f"no {unit}" if unit and value == "none" else f"{value} {unit}".strip()
