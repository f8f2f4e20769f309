"""Making findings inside a rule: the rule itself is named, so that `gpuinfra explain` finds its sentence."""

from __future__ import annotations

from collections.abc import Callable

from gpuinfra.rules.finding import Finding, Level


def error(rule: Callable[..., object], path: str, message: str, hint: str) -> Finding:
    """A finding that stops."""
    return Finding(level=Level.ERROR, path=path, message=message, hint=hint, rule=rule.__name__)


def warn(rule: Callable[..., object], path: str, message: str, hint: str) -> Finding:
    """A finding that teaches."""
    return Finding(level=Level.WARN, path=path, message=message, hint=hint, rule=rule.__name__)


def info(rule: Callable[..., object], path: str, message: str, hint: str = "") -> Finding:
    """A finding that only says what was decided."""
    return Finding(level=Level.INFO, path=path, message=message, hint=hint, rule=rule.__name__)
