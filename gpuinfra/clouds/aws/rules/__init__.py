"""Rules that only AWS has. Numbers in the docstrings of rules are not needed to read them: each states its own sentence."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from gpuinfra.rules.finding import Finding
from gpuinfra.spec.model import ClusterSpec

RULES: tuple = ()


def run(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Findings of every rule of this cloud."""
    for rule in RULES:
        yield from rule(spec, today)
