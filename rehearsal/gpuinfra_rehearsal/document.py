"""The report of a rehearsal as a JSON document, and its schema."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

from gpuinfra.handover.explain import hint
from gpuinfra.handover.judge import NodeVerdict
from gpuinfra.report.verification_text import CHECK_FIELDS

SCHEMA = "gpuinfra.report/1"


def report_schema() -> dict[str, Any]:
    """Return the JSON schema of a report."""
    return dict(json.loads((files("gpuinfra_rehearsal") / "report.schema.json").read_text(encoding="utf-8")))


def node_entry(node: NodeVerdict, *, console: Iterable[str] = (), stage: str = "") -> dict[str, Any]:
    """Return the entry for one node in a report."""
    console = list(console)
    return {
        "label": node.label,
        "instance_id": node.instance_id,
        "pool": node.pool,
        "group": node.group,
        "machine": node.machine,
        "zone": node.zone,
        "outcome": "never reported" if node.never_reported else node.outcome,
        "reason": node.reason,
        "hint": hint(node, console),
        "stage": stage,
        "boot_id": node.boot_id,
        "evidence": node.evidence_key,
        "evidence_sha256": node.evidence_sha256,
        "gpus_expected": node.gpus_expected,
        "gpus": [dict(gpu) for gpu in node.gpus],
        "blocking": [str(check.get("id")) for check in node.blocking],
        "checks": [{name: check.get(name) for name in CHECK_FIELDS} for check in node.checks],
        "console": console,
    }


def totals(nodes: Iterable[Mapping[str, Any]], missing: int = 0) -> dict[str, int]:
    """Return the totals for all nodes. `missing` is the number of nodes that were never launched."""
    rows = list(nodes)
    verified = [n for n in rows if n["outcome"] == "verified"]
    return {
        "nodes": len(rows) + missing,
        "nodes_verified": len(verified),
        "gpus": sum(n["gpus_expected"] for n in rows) + missing * max((n["gpus_expected"] for n in rows), default=0),
        "gpus_verified": sum(n["gpus_expected"] for n in verified),
        "checks": sum(len(n["checks"]) for n in rows),
        "checks_passed": sum(1 for n in rows for c in n["checks"] if c["outcome"] == "pass"),
    }
