"""All checks in report order: presence, correctness, speed, and by ID within each phase.

To add a check, write a `Check` class in the module for its subject, and add the machines that must pass the check to `REQUIRED` in
`gpuinfra/plan/expectation.py`. A class with an ID registers itself when this package imports its module.
If the check requires output that no probe collects, add a probe to `gpuinfra/node/probes.py`. If a failed check requires an action other
than `configure`, add the ID to `gpuinfra/node/advice.py`. `python -m tests.node.test_docs` regenerates the table in `docs/reference/checks.md`.
"""

from __future__ import annotations

from ..outcome import Phase
from . import (  # noqa: F401 - the import registers the checks
    burn_in,
    containers,
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

_PHASES = list(Phase)
_LETTERS = "PDGFXNCLSMB"
"""Order within a phase: platform, driver, GPUs, fabric, kernel log, network, containers, storage, steps, metrics, measurements."""


def _order(check: Check) -> tuple[int, int, int]:
    return _PHASES.index(check.phase), _LETTERS.index(check.id[0]), int(check.id[1:])


ALL: dict[str, Check] = {check.id: check for check in sorted((kind() for kind in KINDS), key=_order)}
"""All checks by ID."""
