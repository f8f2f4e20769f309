"""Parses text in the clouds' responses."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime


def kind_of(message: str, patterns: Iterable[tuple[str, str]]) -> str:
    """Return the kind of the first pattern that matches a cloud's message, or `other`."""
    return next((kind for pattern, kind in patterns if re.search(pattern, message, re.IGNORECASE | re.DOTALL)), "other")


def moment(text: object) -> datetime | None:
    """Parse an RFC 3339 time. Without a time zone, UTC is assumed. Returns None if the time cannot be parsed."""
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found.replace(tzinfo=UTC) if found and found.tzinfo is None else found
