"""Narrows optional values for the type checker, and fails the test if a value is missing."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def present(value: T | None) -> T:
    """Return a value that the test requires, such as an optional capability of a cloud."""
    assert value is not None
    return value
