"""Compares versions such as `580.95.05`, `2.28.9-1+cuda13.0`, and `13.0`."""

from __future__ import annotations

import re


def key(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: `580.95.05` -> (580, 95, 5)."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def at_least(version: str, floor: str) -> bool:
    """Return True if `version` is `floor` or newer. Missing parts count as zero."""
    have, want = key(version), key(floor)
    width = max(len(have), len(want))
    return have + (0,) * (width - len(have)) >= want + (0,) * (width - len(want))
