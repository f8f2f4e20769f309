"""The patterns of text fields, each with a description for messages and `gpuinfra explain`."""

from __future__ import annotations

from typing import Any

from pydantic import StringConstraints

FORMATS: dict[str, str] = {}
"""Maps the pattern of a text field to a description of the allowed text, for messages and `gpuinfra explain`."""


REASONS: dict[tuple[str, ...], str] = {}
"""Maps the allowed values of a field to the reason why no other value is allowed, for messages."""


def text(pattern: str, words: str, *, min_length: int | None = None, max_length: int | None = None) -> Any:
    """Return the constraints of a text field and register a description of its pattern."""
    FORMATS[pattern] = words
    return StringConstraints(pattern=pattern, min_length=min_length, max_length=max_length)
