"""The writes of hostile nodes on Google Cloud. One file for each cloud, because the workers of a test run share files."""

from __future__ import annotations

from .fuzz import PARTS, part_of


@PARTS
def test_hostile_writes_change_no_other_verdict(part: int) -> None:
    """Whatever a hostile node writes, the other nodes keep their verdicts, nothing raises, and no output has its control characters."""
    part_of("gcp", part)
