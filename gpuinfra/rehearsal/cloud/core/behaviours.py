"""Finds the behaviour of a resource type and the answer of a function; loads a cloud's behaviours at the first call."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from functools import cache

from gpuinfra.rehearsal.cloud.core import registry
from gpuinfra.rehearsal.cloud.core.behaviour import ANSWERS, BEHAVIOURS, Answer, Behaviour

_GENERIC = Behaviour()


def of(token: str) -> Behaviour:
    """The behaviour of a resource type."""
    stand_in = registry.of_token(token)
    _load(stand_in.name)
    return BEHAVIOURS.get(token) or stand_in.default_behaviour(token) or _GENERIC


def answer(token: str) -> Answer | None:
    """The answer of a function; None where it is only synthesized."""
    _load(registry.of_token(token).name)
    return ANSWERS.get(token)


@cache
def _load(cloud: str) -> None:
    """Import every module of a cloud's package `behaviours`; each registers what it plays."""
    name = f"{registry.ROOT}.{cloud}"
    if importlib.util.find_spec(name) and importlib.util.find_spec(f"{name}.behaviours"):
        package = importlib.import_module(f"{name}.behaviours")
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
