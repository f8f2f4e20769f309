"""Imports the public names of a package on first use, so that a plan does not import an SDK and a program imports only the SDK of one cloud."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping


def lazy_exports(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return `__getattr__` for a package. `homes` maps each public name to the module that defines it."""

    def exported(name: str) -> object:
        if name in homes:
            return getattr(importlib.import_module(homes[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return exported
