"""The report as one HTML page: nothing from elsewhere, everything escaped, readable on a phone and in the dark.

Output of nodes is hostile by assumption. Every value goes through `_t`, which escapes; there is no script on the page,
and its content security policy forbids any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from gpuinfra.report.document import checks_text

OUTCOME_CLASS = {
    "verified": "good", "pass": "good", "skip": "quiet", "warn": "warn", "waiting": "warn", "not rehearsed": "quiet",
    "fail": "bad", "failed": "bad", "refused": "bad", "never reported": "bad", "error": "bad",
}  # fmt: skip
CSP = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(report: Mapping[str, Any]) -> str:
    """The page."""
    title = f"{'Rehearsal' if report['rehearsal'] else 'Report'} of {report['stack']}"
    body = [
        _header(report, title),
        _problems(report.get("problems", [])),
        _life(report.get("life", [])),
        _nodes(report.get("nodes", [])),
        _cost(report.get("cost")),
        _engine(report["engine"]),
        _kept(report.get("kept", [])),
        _not_shown(report),
    ]
    return whole(title, body)


def whole(title: str, body: Iterable[str]) -> str:
    """A page of its own: head, style, and the parts of the body that are there."""
    style = (files("gpuinfra.report") / "page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{CSP}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="color-scheme" content="light dark">\n'
        f"<title>{_t(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in body if part)
        + "\n</main>\n</body>\n</html>\n"
    )


def _t(value: object) -> str:
    """Any value as escaped text; control characters made visible."""
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        value = ", ".join(str(v) for v in value)
    return escape("".join(c if c.isprintable() or c == "\n" else "�" for c in str(value)))


def _badge(outcome: str) -> str:
    return f'<span class="badge {OUTCOME_CLASS.get(outcome, "quiet")}">{_t(outcome)}</span>'


def _header(report: Mapping[str, Any], title: str) -> str:
    sums = report["totals"]
    good = "good" if report["ok"] else "bad"
    where = " · ".join(_t(v) for v in (report.get("cluster"), report.get("cloud"), report.get("region")) if v)
    tiles = [
        _tile(f"{sums['nodes_verified']} of {sums['nodes']}", "nodes verified"),
        _tile(f"{sums['gpus_verified']} of {sums['gpus']}", "GPUs verified"),
        _tile(*_hour(report.get("cost") or {})),
        _tile(str(report["engine"]["resources"]), "resources in the state"),
    ]
    banner = (
        '<p class="banner">This is a rehearsal: the program and the engine are the real ones, the cloud and the nodes are stand-ins. Nothing was deployed and nothing was bought.</p>'
        if report["rehearsal"]
        else ""
    )
    faults = f'<p class="quiet">Ordered faults: {_t(report["faults"])}</p>' if report.get("faults") else ""
    return (
        f'<header><h1>{_t(title)} <span class="badge {good}">{_t(report["action"])} {"ok" if report["ok"] else "failed"}</span></h1>'
        f'<p class="quiet">{where} · {_t(report.get("finished"))} · {_t(report.get("seconds"))} s in the engine</p>{banner}{faults}'
        f'<div class="tiles">{"".join(tiles)}</div></header>'
    )


def _hour(cost: Mapping[str, Any]) -> tuple[str, str]:
    """A sum without the nodes says nothing about a cluster; one that lacks less says that it is the least."""
    hour = cost.get("usd_per_hour")
    if not isinstance(hour, int | float) or not cost.get("nodes_priced", True):
        return "unknown", "an hour, if it were real"
    return f"{hour:,.2f} USD", f"an hour{'' if cost.get('complete', True) else ' at least'}, if it were real"


def _tile(value: str, label: str) -> str:
    return f'<div class="tile"><b>{_t(value)}</b><span>{_t(label)}</span></div>'


def _section(title: str, body: str, *, open_: bool = True) -> str:
    return (
        f'<details class="section"{" open" if open_ else ""}><summary><h2>{_t(title)}</h2></summary>{body}</details>'
        if body
        else ""
    )


def _problems(problems: Sequence[str]) -> str:
    return _section("What is wrong", "".join(f'<pre class="problem">{_t(text)}</pre>' for text in problems))


def _life(steps: Sequence[Mapping[str, Any]]) -> str:
    rows = [[_badge("pass" if s["ok"] else "fail"), _t(s["step"]), _t(s["found"])] for s in steps]
    return _section("A whole life", _table(("", "step", "what was seen"), rows)) if rows else ""


def _nodes(nodes: Sequence[Mapping[str, Any]]) -> str:
    return _section("Nodes", "".join(_node(node) for node in nodes))


def _node(node: Mapping[str, Any]) -> str:
    sums = _t(checks_text(node))
    bad = _blocking(node)
    hints = "".join(
        f'<div class="problem"><b>{_t(first["id"])} {_t(first.get("name"))}</b><br>{_t(first.get("reason") or _found(first))}'
        + (f"<br>The same holds for {_t([c['id'] for c in others])}." if others else "")
        + f"<br><b>What to do:</b> {_t(first.get('hint'))}</div>"
        for first, *others in bad
    )
    reason = f'<p class="problem">{_t(node["reason"])}</p>' if node.get("reason") and not bad else ""
    console = f'<pre class="console">{_t(chr(10).join(node["console"]))}</pre>' if node.get("console") else ""
    rows = [
        [
            _badge(c["outcome"]),
            f"<b>{_t(c['id'])}</b> {_t(c.get('name'))}{_small(c.get('reason') if c['outcome'] != 'pass' else '')}",
            _value(c.get("found")),
            f"{_value(c.get('expected'))} <span class='quiet'>{_t(c.get('unit'))}</span>",
        ]
        for c in node["checks"]
    ]
    facts = " · ".join(
        _t(v) for v in (node.get("machine"), node.get("group"), node.get("zone"), f"{node['gpus_expected']} GPUs") if v
    )
    return (
        f'<details class="node"><summary>{_badge(node["outcome"])} <b>{_t(node["label"])}</b> <code>{_t(node["instance_id"])}</code> <span class="quiet">{sums}</span></summary>'
        f'<p class="quiet">{facts}</p>{reason}{hints}{console}'
        + (_table(("", "check", "found", "expected"), rows) if rows else "")
        + _gpus(node.get("gpus", []))
        + (
            f'<p class="quiet">Evidence <code>{_t(node["evidence"])}</code>, SHA-256 <code>{_t(node["evidence_sha256"])}</code></p>'
            if node.get("evidence")
            else ""
        )
        + "</details>"
    )


def _blocking(node: Mapping[str, Any]) -> list[list[Mapping[str, Any]]]:
    """The checks that keep the node back, causes first; those that say the same are one problem: a lost GPU fails fifteen."""
    by_id = {check["id"]: check for check in node["checks"]}
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for check in (by_id[name] for name in node.get("blocking", []) if name in by_id):
        groups.setdefault(str(check.get("reason") or _found(check)), []).append(check)
    return list(groups.values())


def _value(value: object) -> str:
    """What a check found or expected, as people say it."""
    words: dict[object, str] = {True: "yes", False: "no"}
    if isinstance(value, bool):
        return words[value]
    return "none" if value == [] else _t(value)


def _found(check: Mapping[str, Any]) -> str:
    return f"found {check.get('found')}, expected {check.get('expected')} {check.get('unit') or ''}"


def _gpus(gpus: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        [
            _t(g.get("index")),
            f"<code>{_t(g.get('uuid'))}</code>",
            _t(g.get("serial")),
            f"<code>{_t(g.get('pci'))}</code>",
        ]
        for g in gpus
    ]
    return _table(("GPU", "UUID", "serial", "PCI address"), rows) if rows else ""


def _cost(cost: Mapping[str, Any] | None) -> str:
    if not cost:
        return _section(
            "Price",
            '<p class="quiet">The declaration is not in the stack file, so the price of the plan is not known here.</p>',
        )
    rows = [[_what(line), _number(line.get("usd_per_hour")), _price_of(line)] for line in cost.get("lines", [])]
    least = "" if cost.get("complete", True) else "at least "
    head = f"<p>{least}{_money(cost.get('usd_per_hour'))} an hour, {least}{_money(cost.get('usd_per_month'))} a month of running.</p>"
    if not cost.get("nodes_priced", True):
        head = f"<p><b>Not known</b>, because the nodes' own price is not; what is known of the rest makes {_money(cost.get('usd_per_hour'))} an hour.</p>"
    # What has a row of its own says there that its price is unknown.
    told = {str(line.get("what")) for line in cost.get("lines", [])}
    others = [text for text in cost.get("unknown") or [] if not any(text.startswith(f"{what}: ") for what in told)]
    rest = f'<p class="quiet">Not in the sum: {_t("; ".join(others))}.</p>' if others else ""
    return _section(
        "Price, if it were real", head + rest + (_table(("what", "USD/h", "price of"), rows) if rows else "")
    )


def _what(line: Mapping[str, Any]) -> str:
    return f"{_t(line.get('what'))}{_small(line.get('note'))}"


def _number(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, int | float) else "unknown"


def _price_of(line: Mapping[str, Any]) -> str:
    doubt = "" if line.get("certain", True) else ' <span class="badge warn">not certain</span>'
    return f"{_t(line.get('read'))}{doubt}{_small(line.get('source'))}"


def _small(text: object) -> str:
    """A second, quieter line below a cell's first."""
    return f'<br><small class="quiet">{_t(text)}</small>' if text else ""


def _money(value: object) -> str:
    return f"<b>{value:,.2f} USD</b>" if isinstance(value, int | float) else "<b>unknown</b>"


def _engine(engine: Mapping[str, Any]) -> str:
    rows = [
        [
            _badge("pass" if run["exit_code"] == 0 else "fail"),
            _t(run["name"]),
            _t(", ".join(f"{n} {op}" for op, n in sorted(run["operations"].items()))),
            f"{_t(run['seconds'])} s",
        ]
        for run in engine.get("runs", [])
    ]
    return _section(f"Engine: Pulumi {engine['version']}", _table(("", "operation", "resources", "time"), rows))


def _kept(kept: Sequence[Mapping[str, Any]]) -> str:
    rows = [[f"<b>{_t(k.get('name'))}</b>", f"<code>{_t(k.get('type'))}</code>", _t(k.get("why"))] for k in kept]
    return _section("What destroy keeps on purpose", _table(("what", "type", "why"), rows), open_=False) if rows else ""


def _not_shown(report: Mapping[str, Any]) -> str:
    items = "".join(f"<li>{_t(text)}</li>" for text in report["not_shown"])
    rows = report.get("provenance", [])
    keys = list(dict.fromkeys(k for row in rows for k in row))
    table = (
        _table([k.replace("_", " ") for k in keys], [[_t(row.get(k)) for k in keys] for row in rows]) if rows else ""
    )
    return _section("What this cannot show", f"<ul>{items}</ul>") + _section(
        "Where the stand-ins' device outputs come from", table, open_=False
    )


def _table(head: Iterable[str], rows: Sequence[Sequence[str]]) -> str:
    names = list(head)
    top = "".join(f"<th>{_t(name)}</th>" for name in names)
    # On a phone a row is a block, and each cell says of which column it is (page.css).
    body = "".join(
        "<tr>"
        + "".join(f'<td data-of="{_t(name)}">{cell}</td>' for name, cell in zip(names, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
