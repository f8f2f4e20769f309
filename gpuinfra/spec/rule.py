"""The type of a rule. `gpuinfra/rules` contains the rules of all clouds, and `gpuinfra/clouds/<cloud>/rules` those of one cloud."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import date
from types import FunctionType

from gpuinfra.base.findings import Finding
from gpuinfra.spec.model import ClusterSpec

Rule = Callable[[ClusterSpec, date], Iterable[Finding]]
"""A rule is a function that takes a declaration and a date, and yields findings."""


def rules_in(module: Mapping[str, object]) -> tuple[Rule, ...]:
    """Return the public functions that a module defines, in order of definition: `RULES = rules_in(vars())`."""
    return tuple(
        one
        for name, one in module.items()
        if isinstance(one, FunctionType) and one.__module__ == module["__name__"] and not name.startswith("_")
    )
