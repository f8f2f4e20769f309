"""Reads and checks the declaration of a stack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

from gpuinfra.clouds import profile_of
from gpuinfra.errors import SpecError
from gpuinfra.findings import Finding, Level, error
from gpuinfra.rules.run import check
from gpuinfra.spec.load import LoadedStack, read_stack, with_line
from gpuinfra.spec.messages import nearest
from gpuinfra.spec.shown import shown


def load_stack(name_or_path: str | Path, today: date) -> LoadedStack:
    """Read, parse, and check a stack. If there are errors, raises `SpecError` with all findings."""
    stack = read_stack(name_or_path)
    found = check_stack(stack, today)
    if any(finding.level is Level.ERROR for finding in found):
        raise SpecError(found)
    return replace(stack, findings=found)


def check_stack(stack: LoadedStack, today: date) -> tuple[Finding, ...]:
    """Return all findings for a parsed stack, each with its line in the file."""
    found = (
        with_line(finding, stack.document, (*stack.route, *_route(finding.path)))
        for finding in check(stack.spec, today)
    )
    return (*region_agrees_with_provider(stack), *found)


def _route(path: str) -> tuple[str | int, ...]:
    parts: list[str | int] = []
    for piece in path.replace("]", "").split("."):
        name, *indices = piece.split("[")
        if name:
            parts.append(name)
        parts.extend(int(index) for index in indices if index.isdigit())
    return tuple(parts)


def region_agrees_with_provider(stack: LoadedStack) -> Iterator[Finding]:
    """The region in the provider's configuration matches the region in the declaration."""
    cloud = profile_of(stack.spec.cloud)
    key = cloud.region_setting
    given, declared = stack.config.get(key) if key else None, stack.spec.where.region
    if key is None or not isinstance(given, str) or given == declared:
        return
    known = cloud.regions
    what = f"but where.region is {shown(declared)}"
    if declared in known:
        hint = f"set it to {declared}, or change where.region" if given in known else f"did you mean {declared}?"
    elif given in known:
        return  # A different rule already reports where.region.
    else:
        near = nearest(given, list(known))
        what = f"which is not a valid {cloud.title} region"
        hint = f"did you mean {near}?" if near else "set it to the value of where.region"
    finding = error(key, f"is {shown(given)}, {what}", hint, rule=region_agrees_with_provider.__name__)
    yield with_line(finding, stack.document, (*stack.route[:-1], key))
