"""All checks in report order: presence, correctness, speed, and by subject and ID within each phase.

A check is one class: what it proves, which pools require it, how severe a failure is and what to do about it are attributes of the class
(`base.py`). A class with an ID registers itself when its module is imported. docs/internals/add-a-check.md is the guide.
"""

from __future__ import annotations

from ..outcome import Phase
from . import (
    burn_in,
    containers,
    copies,
    driver,
    fabric,
    fabric_test,
    gpu_health,
    gpus,
    kernel_log,
    links,
    network,
    platform,
    ports,
    software,
    speed,
    storage,
)
from .base import KINDS, Check

_MODULES = (
    platform, driver, gpus, gpu_health, fabric, kernel_log, network, ports,
    links, containers, storage, software, speed, copies, burn_in, fabric_test,
)  # fmt: skip
"""The modules in report order, which is the order of the letters of the IDs within a phase."""
_NAMES = [module.__name__ for module in _MODULES]
_LETTERS = list(dict.fromkeys(kind.id[0] for kind in sorted(KINDS, key=lambda kind: _NAMES.index(kind.__module__))))
_PHASES = list(Phase)


def _order(check: Check) -> tuple[int, int, int]:
    return _PHASES.index(check.phase), _LETTERS.index(check.id[0]), int(check.id[1:])


ALL: dict[str, Check] = {check.id: check for check in sorted((kind() for kind in KINDS), key=_order)}
"""All checks by ID."""
