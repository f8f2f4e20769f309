"""The text about a node that fails the handover."""

from __future__ import annotations

from typing import Any

from gpuinfra.handover.explain import MOST_FINDINGS, node_reason
from gpuinfra.handover.judge import NodeVerdict


def _check(number: int, reason: str) -> dict[str, Any]:
    return {
        "id": f"G{number}",
        "name": f"check_{number}",
        "outcome": "fail",
        "found": "7",
        "reason": reason,
        "hint": "",
    }


def test_findings_that_are_not_shown_state_how_many_checks_they_contain() -> None:
    """Checks with the same reason are one finding, so the line about the other findings also counts their checks,
    and the sum is the number of failed checks."""
    shown = [_check(number, f"reason {number}") for number in range(MOST_FINDINGS)]
    hidden = [_check(number, "no output" if number % 2 else "no answer") for number in range(10, 20)]
    node = NodeVerdict(
        label="gpu-1", pool="gpu", group="gpu-spot-0", instance_id="i-1", outcome="failed", reason="", settled=True,
        blocking=(*shown, *hidden),
    )  # fmt: skip
    lines = node_reason(node).splitlines()
    assert lines[0] == f"gpu-1 (i-1): failed {MOST_FINDINGS + 10} checks"
    assert lines[-1] == "  and 2 more findings from 10 checks; see the report"
