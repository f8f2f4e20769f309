"""Parse the output of `dcgmi diag --json`. The parser collects statuses at any depth, so that it misses no status if the layout differs between versions.

Formats: NVIDIA/DCGM, testing/python3/dcgm_diag_schema.json (DCGM 4), and real outputs of DCGM 3 and 4.2.3 in tests/recordings/outputs.
Levels: NVIDIA/DCGM at 72fa3fea (2026-07-06), nvvs/src/NvidiaValidationSuite.cpp, `FillTestVectors`.
Severities: 0 none, 1 monitor, 2 isolate, 3 unknown, 4 triage, 5 configuration, 6 reset (DCGM's error reference).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from .cause import Cause
from .outcome import Unreadable, shortened

LEVELS = {1: ("quick", 600), 2: ("medium", 1800), 3: ("long", 3600), 4: ("extra long", 4 * 3600)}
"""Level of `dcgmi diag -r` -> its name, and the time limit in seconds. Level 4 took 45 min to 2.25 h on eight GPUs."""

TESTS = {
    1: ("software",),
    2: ("software", "memory", "pcie"),
    3: ("software", "memory", "pcie", "diagnostic", "nvbandwidth", "memory_bandwidth", "targeted_stress", "targeted_power"),
}  # fmt: skip
TESTS[4] = (*TESTS[3], "memtest", "pulse_test")
"""Level -> tests that must pass on every GPU. A missing plugin package results in `Skip`. `eud`, `cpu_eud`, `nccl_tests` and `rist` require software
that DCGM's packages do not contain, so they may be skipped."""
PERSISTENCE_MODE = 29
"""DCGM_FR_PERSISTENCE_MODE: a setting of the node, not a fault of the GPU. Check D5 reports it."""

SEVERITIES = {
    1: "monitor it",
    2: "isolate the GPU",
    3: "unknown",
    4: "run a longer level",
    5: "fix the configuration",
    6: "reset the GPU",
}
_REQUIRED = {2: Cause.REPLACEMENT_REQUIRED, 6: Cause.RESET_REQUIRED}
"""Severities that decide what to do with the node."""


@dataclass(frozen=True)
class DcgmStatus:
    """One status from one test."""

    test: str
    where: str
    """`GPU 3`, or empty for a status of the whole test."""
    status: str
    warnings: str
    """The warnings from the test in one line."""
    errors: tuple[int | None, ...] = ()
    """The number of each error (dcgm_errors.h), or None for an error without one."""
    causes: tuple[Cause, ...] = ()
    """What the severities of the errors require."""
    serious: bool = False
    """True if an error of the status is more than a note. DCGM reports such an error beside `Pass`, for example for a memory test that could not allocate
    memory (https://github.com/NVIDIA/DCGM/issues/284, retrieved 2026-11)."""

    @property
    def is_pass(self) -> bool:
        """True if the test ran and found nothing."""
        return self.status.lower() == "pass" and not self.serious


def results(text: str) -> list[DcgmStatus]:
    """Return all statuses in the output. Raises `Unreadable` if it is not JSON."""
    try:
        document = json.loads(text[text.index("{") :])
    except (ValueError, RecursionError):
        raise Unreadable("dcgmi printed no JSON: %s" % shortened(text, 120)) from None
    statuses: list[DcgmStatus] = []
    _walk(document, "", statuses)
    return statuses


def test_name(name: str) -> str:
    """Return the name of a test as DCGM 4 prints it: DCGM 3 prints `GPU Memory` and `Targeted Stress`."""
    plain = name.lower().replace(" ", "_")
    return "memory" if plain == "gpu_memory" else plain


def _walk(value: Any, test: str, dcgm_statuses: list[DcgmStatus]) -> None:
    if isinstance(value, dict):
        test = str(value.get("name") or value.get("category") or test)
        if "status" in value:
            status = value["status"]
            word = status if isinstance(status, str) else "?"
            dcgm_statuses.append(
                DcgmStatus(
                    test, _where(value), word, _warnings(value), _errors(value), _causes(value), _is_serious(value)
                )
            )
        if "runtime_error" in value:
            raise Unreadable("dcgmi could not run the diagnostics: %s" % shortened(str(value["runtime_error"]), 200))
        for key, inner in value.items():
            if key != "status":
                _walk(inner, test, dcgm_statuses)
    elif isinstance(value, list):
        for inner in value:
            _walk(inner, test, dcgm_statuses)


def _where(value: dict[str, Any]) -> str:
    if value.get("entity_group") == "GPU" and isinstance(value.get("entity_id"), int):
        return "GPU %d" % value["entity_id"]
    return "GPU %s" % shortened(str(value["gpu_id"]), 20) if "gpu_id" in value else ""


def _listed(value: dict[str, Any]) -> list[Any]:
    """Return the warnings and errors of a status."""
    return [
        entry
        for key in ("warnings", "warning", "errors", "error")
        for entry in (value[key] if isinstance(value.get(key), list) else [value[key]] if key in value else [])
    ]


def _number(entry: Any, key: str) -> int | None:
    number = entry.get(key) if isinstance(entry, dict) else None
    return number if isinstance(number, int) else None


def _errors(value: dict[str, Any]) -> tuple[int | None, ...]:
    return tuple(_number(entry, "error_id") for entry in _listed(value))


def _is_serious(value: dict[str, Any]) -> bool:
    """Return True for an error whose severity is unknown, or higher than `monitor it`."""
    return any(
        _number(entry, "error_id") is not None and (_number(entry, "error_severity") or 3) > 1
        for entry in _listed(value)
        if _number(entry, "error_severity") != 0
    )


def _causes(value: dict[str, Any]) -> tuple[Cause, ...]:
    severities = [_number(entry, "error_severity") for entry in _listed(value)]
    return tuple(_REQUIRED[severity] for severity in severities if severity in _REQUIRED)


def _warnings(value: dict[str, Any]) -> str:
    texts = []
    for entry in _listed(value):
        if isinstance(entry, dict):
            severity = SEVERITIES.get(_number(entry, "error_severity") or 0)
            text = str(entry.get("warning") or entry.get("error") or entry.get("message") or "")
            texts.append("%s%s" % (text, " (%s)" % severity if severity else ""))
        elif isinstance(entry, str):
            texts.append(entry)
    return shortened("; ".join(texts), 200)
