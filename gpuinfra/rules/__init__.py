"""Rules: small pure functions over a declaration, each named after the sentence it defends.

Every rule runs, so a person sees all findings at once. Questions for a cloud (quota, capacity, image) are preflight and not here.
Rules that hold on every cloud are in this package, by what they are about; a cloud's own are in `gpuinfra/clouds/<cloud>/rules`.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from gpuinfra.findings import Finding, Level

if TYPE_CHECKING:
    from gpuinfra.spec.model import ClusterSpec

__all__ = ["Finding", "Level", "check"]


def check(spec: ClusterSpec, today: date) -> tuple[Finding, ...]:
    """Every finding of every rule, errors first, then in the order of the declaration."""
    from gpuinfra.rules.run import run

    return run(spec, today)
