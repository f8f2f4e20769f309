"""Finds the behavior of a resource type and the implementation of a function. Loads a cloud's behaviors on the first
call."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from functools import cache

from gpuinfra_rehearsal.cloud.core import registry
from gpuinfra_rehearsal.cloud.core.behavior import ANSWERS, BEHAVIORS, Answer, Behavior

_GENERIC = Behavior()


def of(token: str) -> Behavior:
    """Return the behavior of a resource type."""
    stand_in = registry.of_token(token)
    _load(stand_in.name)
    return BEHAVIORS.get(token) or stand_in.default_behavior(token) or _GENERIC


def answer(token: str) -> Answer | None:
    """Return the implementation of a function, or None if its result is only synthesized."""
    _load(registry.of_token(token).name)
    return ANSWERS.get(token)


@cache
def _load(cloud: str) -> None:
    """Import every module of a cloud's `behaviors` package. Each module registers its behaviors."""
    name = f"{registry.ROOT}.{cloud}"
    if importlib.util.find_spec(name) and importlib.util.find_spec(f"{name}.behaviors"):
        package = importlib.import_module(f"{name}.behaviors")
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
