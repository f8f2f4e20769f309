"""Explains fields, rules, node checks, bootstrap steps, Xids, and alerts.

All text comes from the code or table that it describes, so that the help matches the behavior.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from typing import Any

from gpuinfra.base.errors import UsageError
from gpuinfra.base.findings import READING_RULES
from gpuinfra.reference.fields import all_fields
from gpuinfra.spec.messages import listed, nearest
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.shown import shown

_MAX_COMMAND = 160
"""Maximum number of characters of a probe's command to show. The nvidia-smi query has 40 columns."""
_SEVERITY = {
    "block": "the node is not handed over",
    "drain": "the node does not get new work until you take action",
    "warn": "investigate; work on the node continues",
    "info": "for information only",
}


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """The description of a rule, check, step, Xid or alert."""

    title: str
    rows: tuple[tuple[str, str], ...]
    """Labels and texts."""

    def text(self) -> str:
        """Format the entry in the layout of `FieldHelp.lines`."""
        rows = (f"  {label:<9}" + textwrap.indent(value, " " * 11).lstrip() for label, value in self.rows)
        return "\n".join((self.title, *rows))


def explain(name: str) -> str:
    """Return all meanings of a name. If the name is unknown, raises `UsageError` with the nearest known name."""
    clean = re.sub(r"\[\d*\]", "", name).strip(".")
    fields, rules, checks, steps = all_fields(), known_rules(), known_checks(), known_steps()
    alerts = known_alerts()
    # A full path matches one field. A partial path matches every field whose path ends with it.
    paths = [clean] if clean in fields else [path for path in fields if path.endswith(f".{clean}")]
    texts = ["\n".join(field.lines()) for path in paths for field in fields[path]]
    for table, key in (
        (rules, clean),
        (checks, clean.upper()),
        (checks, clean),
        (steps, clean.removesuffix(".sh")),
        (alerts, clean),
    ):
        if key in table and table[key].text() not in texts:
            texts.append(table[key].text())
    if xid := re.fullmatch(r"(?i)xid[ -]?(\d+)", clean):
        texts.append(known_xid(int(xid[1])).text())
    if texts:
        return "\n\n".join(texts)
    near = nearest(name, [*(path.rsplit(".", 1)[-1] for path in fields), *fields, *rules, *checks, *steps, *alerts])
    hint = f"did you mean {near}?" if near else f"top-level fields are {listed(list(ClusterSpec.model_fields), 20)}"
    raise UsageError(f"{shown(name)} is not a field, rule, check, step, Xid or alert; {hint}")


@cache
def known_rules() -> dict[str, Explanation]:
    """Return the description of each rule by name."""
    from gpuinfra.rules.run import all_rules
    from gpuinfra.rules.stack import FILE_RULES

    meanings = {**READING_RULES, **{one.__name__: one.__doc__ or "" for one in FILE_RULES}}
    meanings |= {name: rule.__doc__ or "" for name, rule in all_rules().items()}
    return {name: _entry(f"rule {name}", (("meaning", meaning),)) for name, meaning in meanings.items()}


@cache
def known_checks() -> dict[str, Explanation]:
    """Return the description of each check by ID and by name."""
    from gpuinfra.node.checks import ALL

    return {key: _check(check) for check in ALL.values() for key in (check.id, check.name)}


@cache
def known_steps() -> dict[str, Explanation]:
    """Return the header of each bootstrap script by step name, with and without the number."""
    from gpuinfra.base.shipped import shipped

    steps = {}
    for script in sorted(shipped("bootstrap").glob("[0-9]*.sh")):
        header = takewhile(lambda line: line.startswith("#"), script.read_text().splitlines()[1:])
        text = "\n".join(line.removeprefix("#").removeprefix(" ") for line in header)
        steps[script.stem] = _entry(f"step {script.stem}", (("meaning", text),))
        steps.setdefault(script.stem.split("-", 1)[-1], steps[script.stem])
    return steps


def known_alerts() -> dict[str, Explanation]:
    """Return the description of each alert by name."""
    from gpuinfra.monitoring.alerts import ALERTS

    return {
        one.name: _entry(
            f"alert {one.name}",
            (
                ("meaning", one.cause),
                ("severity", one.severity.value),
                ("fires", f"after {one.for_s} s" if one.for_s else "at once"),
                ("action", one.action),
                ("metric", one.expression.replace("@S", "...").replace("@N", "GPUS")),
            ),
        )
        for one in ALERTS
    }


def _check(check: Any) -> Explanation:
    from gpuinfra.node.probes import PROBES

    commands = (" ".join(PROBES[name].argv) for name in check.probes)
    severity = check.severity.value
    return _entry(
        f"check {check.id} {check.name}",
        (
            ("meaning", type(check).__doc__ or ""),
            ("phase", check.phase.value),
            ("severity", f"{severity}: {_SEVERITY[severity]}"),
            *(("runs", line if len(line) <= _MAX_COMMAND else f"{line[:_MAX_COMMAND]} ...") for line in commands),
            ("action", check.hint),
            ("source", check.source),
        ),
    )


def known_xid(number: int) -> Explanation:
    """Return the description of an Xid. If the Xid is unknown, the description states this."""
    from gpuinfra.node.xids import xid_of

    xid = xid_of(number)
    severity = f"{xid.severity}: {_SEVERITY[xid.severity]}" if xid.severity in _SEVERITY else xid.severity
    rows = (
        ("meaning", xid.meaning),
        ("severity", severity),
        ("bucket", xid.bucket.value),
        ("action", xid.action),
    )
    return _entry(f"Xid {number}", rows)


def _entry(title: str, rows: Iterable[tuple[str, str]]) -> Explanation:
    return Explanation(title=title, rows=tuple((label, inspect.cleandoc(text)) for label, text in rows))
