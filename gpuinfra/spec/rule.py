"""The type of a rule. `gpuinfra/rules` contains the rules of all clouds, and `gpuinfra/clouds/<cloud>/rules` those of one cloud."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from types import FunctionType

from gpuinfra.base.findings import Finding, error
from gpuinfra.spec.files import NodeFile
from gpuinfra.spec.messages import listed
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.steps import NodeStep

Rule = Callable[[ClusterSpec, date], Iterable[Finding]]
"""A rule is a function that takes a declaration and a date, and yields findings."""


def rules_in(module: Mapping[str, object]) -> tuple[Rule, ...]:
    """Return the public functions that a module defines, in order of definition: `RULES = rules_in(vars())`."""
    return tuple(
        one
        for name, one in module.items()
        if isinstance(one, FunctionType) and one.__module__ == module["__name__"] and not name.startswith("_")
    )


def pools_exist(spec: ClusterSpec, path: str, entries: Sequence[NodeFile | NodeStep]) -> Iterator[Finding]:
    """Yield the errors of entries whose pools do not exist or are listed twice. `path` is the field that contains the entries."""
    pools = [pool.name for pool in spec.pools]
    for i, entry in enumerate(entries):
        unknown = [name for name in entry.pools if name not in pools]
        twice = sorted({name for name in entry.pools if entry.pools.count(name) > 1})
        if unknown and pools:
            what = f"contains {unknown[0]}, which is not a pool; allowed: {listed(pools)}"
            yield error(f"{path}[{i}].pools", what, "correct the name, or remove it")
        elif twice:
            yield error(f"{path}[{i}].pools", f"contains {twice[0]} more than once", "list each pool once")
