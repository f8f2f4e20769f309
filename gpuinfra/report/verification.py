"""Judged evidence as one page, in the shape and under the rules of the report's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuinfra.node.advice import ACTIONS
from gpuinfra.report.page import _badge, _node, _section, _t, _table, _tile, whole

_CLASS = {"nothing": "good", "look": "warn"}


def verification_page(document: Mapping[str, Any], title: str = "Verification") -> str:
    """The page of a `gpuinfra.verification/1` document."""
    sums, nodes = document["totals"], document["nodes"]
    tiles = [
        _tile(f"{sums['nodes_verified']} of {sums['nodes']}", "nodes verified"),
        _tile(f"{sums['gpus_verified']} of {sums['gpus']}", "GPUs verified"),
        _tile(str(sum(len(node["checks"]) for node in nodes)), "checks judged from raw output"),
    ]
    about = _t(document["about"])
    word = "verified" if document["verified"] else "failed"
    body = [
        f"<header><h1>{_t(title)} {_badge(word)}</h1><p class='quiet'>{about}</p><div class='tiles'>{''.join(tiles)}</div></header>",
        _section("What to do", _to_do(nodes)),
        _section("Worse than before", _worse(nodes)),
        _section("Nodes", "".join(_node(node) for node in nodes)),
        _section("Not checked", _unchecked(nodes), open_=False),
        _section("About the files", "".join(f'<p class="problem">{_t(text)}</p>' for text in document["problems"])),
    ]
    return whole(title, body)


def _to_do(nodes: Sequence[Mapping[str, Any]]) -> str:
    """Whoever needs most comes first; nodes that are ready come last."""
    rows = [
        [
            _action(node["action"]),
            f'<code class="id">{_t(node["instance_id"])}</code>',
            _t(node["machine"]),
            _t(node["what_to_do"]),
            f'<span class="quiet">{_t(node["reason"])}</span>',
        ]
        for node in sorted(nodes, key=lambda node: -ACTIONS.index(node["action"]))
    ]
    counts = {action: sum(node["action"] == action for node in nodes) for action in reversed(ACTIONS)}
    sums = " ".join(_action(action, f"{count} ") for action, count in counts.items() if count)
    return f"<p>{sums}</p>" + _table(("", "node", "machine", "what to do", "because"), rows)


def _action(action: str, count: str = "") -> str:
    word = "ready" if action == "nothing" else action
    return f'<span class="badge {_CLASS.get(action, "bad")}">{count}{_t(word)}</span>'


def _worse(nodes: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        [f'<code class="id">{_t(node["instance_id"])}</code>', _t(text)] for node in nodes for text in node["worse"]
    ]
    return _table(("node", "what changed"), rows) if rows else ""


def _unchecked(nodes: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        [f"<code>{_t(node['instance_id'])}</code>", _t(node["not_checked"])] for node in nodes if node["not_checked"]
    ]
    return _table(("node", "checks that its machine does not ask for"), rows) if rows else ""
