"""What all parts of a declaration share: frozen, unknown fields refused, numbers taken literally.

Numbers are strict, so that `true` is not 1 and `"4800 GiB"` is not 4800: units are in the names.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints


class Part(BaseModel):
    """A part of a declaration."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=False, hide_input_in_errors=True
    )


Name = Annotated[str, StringConstraints(pattern=r"^[a-z]([a-z0-9-]*[a-z0-9])?$", min_length=1, max_length=24)]
"""Lower-case letters, digits and dashes, from a letter, at most 24 characters: every cloud takes that in every name."""

Word = Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]+$")]
"""One line of text."""

Whole = Annotated[int, Field(strict=True)]
Real = Annotated[float, Field(strict=True, allow_inf_nan=False)]
YesNo = Annotated[bool, Field(strict=True)]
Count = Annotated[int, Field(strict=True, ge=1, le=100_000)]
"""A number of nodes."""
Mount = Annotated[str, StringConstraints(pattern=r"^(/[A-Za-z0-9_.-]+)+$", max_length=128)]
"""An absolute path without spaces."""
Moment = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?Z$")]
"""RFC 3339 in UTC: `2026-12-01T11:30:00Z`."""
