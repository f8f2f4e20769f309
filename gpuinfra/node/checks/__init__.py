"""All checks, in the order in which they are told: presence, correctness, speed, and by id within each."""

from __future__ import annotations

import re

from ..words import Phase
from . import driver, fabric, gpus, kernel_log, network, platform, software
from .base import Check

_MODULES = (platform, driver, gpus, fabric, kernel_log, network, software)
_PHASES = list(Phase)
_LETTERS = "PDGFXNCLSB"
"""From the bus upwards: platform, driver, GPUs, fabric, kernel log, network, containers, Lustre, steps, burn-in."""


def _place(check: Check) -> tuple[int, int, int]:
    letter, number = re.match(r"^([A-Z]+)(\d+)$", check.id).groups()
    return _PHASES.index(check.phase), _LETTERS.index(letter), int(number)


ALL: dict[str, Check] = {
    check.id: check for check in sorted((kind() for module in _MODULES for kind in module.CHECKS), key=_place)
}
"""Every check by its id."""
