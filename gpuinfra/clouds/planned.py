"""What a plan will be made of, as each cloud's `resources.py` lists it: one row for each resource, and what a destroy leaves. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from gpuinfra.plan.model import Kept

Parents = tuple[tuple[str, str], ...]
"""Type and logical name of components, outermost first."""


@dataclass(frozen=True, kw_only=True)
class Made:
    """One resource of a plan. Each cloud adds how it finds again what was kept."""

    type: str
    name: str
    """Logical name."""
    kept: str | None = None
    """Why a destroy leaves it, None where it is removed."""
    parents: Parents = ()
    """Components around a kept thing, outermost first: with them it can be taken back under the same name."""


def count(things: Iterable[Made]) -> dict[str, int]:
    """Resources by type."""
    return dict(sorted(Counter(thing.type for thing in things).items()))


def kept(things: Iterable[Made]) -> tuple[Kept, ...]:
    """What a destroy leaves, and why."""
    return tuple(Kept(what=thing.name, type=thing.type, why=thing.kept) for thing in things if thing.kept)
