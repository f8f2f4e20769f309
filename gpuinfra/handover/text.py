"""Parse texts in the clouds' answers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime


def kind_of(message: str, patterns: Iterable[tuple[str, str]]) -> str:
    """The kind of the first pattern that matches a cloud's message; `other` if none does."""
    return next((kind for pattern, kind in patterns if re.search(pattern, message, re.IGNORECASE | re.DOTALL)), "other")


def moment(text: object) -> datetime | None:
    """A time in RFC 3339, as clouds write it; without a zone it is UTC. None if it cannot be parsed."""
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found.replace(tzinfo=UTC) if found and found.tzinfo is None else found
