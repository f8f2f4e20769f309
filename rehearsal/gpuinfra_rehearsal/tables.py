"""The tables of a rehearsal's report, which its page and its summary share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpuinfra.report.tables import Cell, Column, Table


def previewed_table(runs: Iterable[Mapping[str, Any]]) -> Table:
    """Return the resources that a preview would change: operation, type and names. `runs` come from a report."""
    names: dict[tuple[str, str], list[str]] = {}
    for entry in (one for run in runs for one in run.get("previewed", ())):
        names.setdefault((entry["operation"], entry["type"]), []).append(entry["name"])
    rows = [
        (operation, len(found), Cell(type_, code=True), ", ".join(sorted(found)))
        for (operation, type_), found in sorted(names.items())
    ]
    return Table(["", Column(right=True), Column("type", wrap=True), Column("name", wrap=True)], rows)


def drill_table(drill: Mapping[str, Any]) -> Table:
    """Return the timeline of a drill: the measured steps, then the simulated times of the cloud."""
    rows = [
        (Cell(badge="ok" if one["ok"] else "failed"), one["step"], "-" if one["seconds"] is None else f"{one['seconds']:g} s", one["found"])
        for one in drill["steps"]
    ]  # fmt: skip
    rows += [
        (Cell(badge="simulated"), f"{one['target']}: {one['what']}", f"{one['minutes']:g} min", one["how"])
        for one in drill["simulated"]
    ]
    return Table(["", "step", Column("time", right=True), Column("result", wrap=True)], rows)
