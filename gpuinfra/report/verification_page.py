"""Renders evaluated evidence as a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuinfra.node.cause import Action
from gpuinfra.report.html import render
from gpuinfra.report.nodes import cells, node_view
from gpuinfra.report.tables import Cell, Column, Table

READY = {"nothing": "ready"}


def page(document: Mapping[str, Any], title: str, notice: str = "") -> str:
    """Render the page of a `gpuinfra.verification/1` document."""
    sums, nodes = document["totals"], document["nodes"]
    ordered = sorted(nodes, key=lambda node: -Action(node["action"]).strength)
    counts = [(action, sum(node["action"] == action.value for node in nodes)) for action in reversed(Action)]
    to_do = [
        (
            Cell(badge=_word(node["action"])),
            Cell(node["label"], strong=True),
            Cell(node["instance_id"], code=True),
            node["machine"],
            node["what_to_do"],
            node["reason"],
        )
        for node in ordered
    ]
    worse = [(Cell(node["label"], strong=True), text) for node in nodes for text in node["worse"]]
    unchecked = [
        (Cell(node["label"], strong=True), ", ".join(node["not_checked"])) for node in nodes if node["not_checked"]
    ]
    return render(
        "verification.html.j2",
        kind="Verification",
        title=title,
        outcome="verified" if document["verified"] else "failed",
        status="verified" if document["verified"] else "not verified",
        subtitle=document["about"],
        banners=[notice] if notice else [],
        tiles=[
            (f"{sums['nodes_verified']} of {sums['nodes']}", "nodes verified"),
            (f"{sums['gpus_verified']} of {sums['gpus']}", "GPUs verified"),
            (sum(len(node["checks"]) for node in nodes), "checks evaluated"),
        ],
        actions=[(_word(action.value), count) for action, count in counts if count],
        to_do=Table(["", "node", "instance", "machine", Column("what to do", wrap=True), Column("reason", wrap=True)], to_do),
        worse=Table(["node", Column("change", wrap=True)], worse),
        cells=cells(ordered),
        nodes=[node_view(node) for node in ordered],
        unchecked=Table(["node", Column("checks that its machine type does not require", wrap=True)], unchecked),
        problems=document["problems"],
        origin=f"document {document['schema']}",
    )  # fmt: skip


def _word(action: str) -> str:
    return READY.get(action, action)
