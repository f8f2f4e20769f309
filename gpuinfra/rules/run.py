"""Running every rule over a declaration."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date

from gpuinfra.clouds import profile_of
from gpuinfra.rules import common
from gpuinfra.rules.finding import Finding, Level
from gpuinfra.spec.model import ClusterSpec

Rule = Callable[[ClusterSpec, date], Iterable[Finding]]

_ORDER = {Level.ERROR: 0, Level.WARN: 1, Level.INFO: 2}


def run(spec: ClusterSpec, today: date) -> tuple[Finding, ...]:
    """Findings of the common rules and of the cloud's own, errors first."""
    found: list[Finding] = []
    for rule in common.RULES:
        found.extend(rule(spec, today))
    found.extend(profile_of(spec.cloud).rules(spec, today))
    unique = {(f.path, f.message): f for f in found}
    return tuple(sorted(unique.values(), key=lambda f: _ORDER[f.level]))
