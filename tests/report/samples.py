"""Documents of reports and verifications, and the tags of a page."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

from gpuinfra.handover.causes import NodeCause
from gpuinfra.handover.judge import NodeVerdict
from gpuinfra_rehearsal.document import totals

HOSTILE = "<script>alert(1)</script>\x1b[2J\u202e\"'>&<img src=x onerror=y>{{ 7 * 7 }}"


def check(**more: Any) -> dict[str, Any]:
    """One outcome."""
    return {
        "id": "G1", "name": "gpu_count", "phase": "presence", "severity": "block", "outcome": "pass", "found": 8,
        "expected": 8, "unit": "GPUs", "hint": "replace the node", "reason": None, **more,
    }  # fmt: skip


CAUSES = {
    "verified": None,
    "failed": NodeCause.CHECKS_FAILED,
    "refused": NodeCause.IDENTITY,
    "waiting": NodeCause.NO_EVIDENCE,
}


def node(**more: Any) -> NodeVerdict:
    """One node's verdict."""
    given: dict[str, Any] = {
        "label": "gpu-1", "cloud": "aws", "pool": "gpu", "group": "gpu-spot-0", "instance_id": "i-0abc", "outcome": "verified", "reason": "",
        "settled": True, "gpus_expected": 8, "checks": (check(),), "gpus": ({"index": 0, "uuid": "GPU-1"},),
    }  # fmt: skip
    given |= more
    return NodeVerdict(**{"cause": CAUSES[given["outcome"]], **given})


def report(nodes: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A whole report document."""
    cost = {
        "usd_per_hour": 61.83, "usd_per_month": 45135.9, "unknown": [], "excluded": [],
        "lines": [{"what": "gpu: 2 nodes", "usd_per_hour": 43.9, "read": "2026-07-28", "source": "a list", "certain": False}],
    }  # fmt: skip
    return {
        "schema": "gpuinfra.report/1", "rehearsal": True, "stack": "try", "cluster": "train", "cloud": "aws",
        "region": "us-east-1", "action": "up", "ok": True, "finished": "2026-11-21T09:00:00Z", "seconds": 1.0, "faults": [],
        "problems": [], "notes": [], "cost": cost, "nodes": nodes, "totals": totals(nodes), "kept": [],
        "not_shown": ["real bandwidth"], "provenance": [],
        "engine": {"version": "3.259.0", "operations": {}, "runs": [], "resources": 3}, **more,
    }  # fmt: skip


def verification(nodes: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A whole verification document."""
    extra = {"action": "nothing", "what_to_do": "ready", "worse": [], "not_checked": []}
    return {
        "schema": "gpuinfra.verification/1", "about": "Read from a folder.", "verified": True, "problems": [],
        "nodes": [{**one, **extra} for one in nodes], "totals": totals(nodes), **more,
    }  # fmt: skip


class Tags(HTMLParser):
    """Every tag and attribute of a page; asserts that tags are closed in order."""

    VOID = frozenset({"meta", "br", "img", "link"})

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def tags(text: str) -> list[tuple[str, dict[str, str | None]]]:
    """The tags of a well-nested page."""
    parser = Tags()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    return parser.seen
